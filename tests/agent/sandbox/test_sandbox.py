"""What a sandboxed command can and cannot do: by real bubblewrap, and as text for macOS."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path

import msgspec
import pytest

from tests.agent.tools.bench import context_for
from vivace.agent.approvals.approvals import Approvals
from vivace.agent.sandbox import base
from vivace.agent.sandbox.base import NoSandbox, detect, trial
from vivace.agent.sandbox.bubblewrap import Bubblewrap
from vivace.agent.sandbox.policy import Policy, clean_environment, git_folders, guarded, policy_for, toolchains
from vivace.agent.sandbox.seatbelt import Seatbelt, profile
from vivace.agent.tools.process import strays
from vivace.agent.tools.shell import Shell, ShellArguments

FOUND = Bubblewrap.find()
REASON = "bubblewrap is not installed" if FOUND is None else trial(FOUND)
real = pytest.mark.skipif(bool(REASON), reason=f"no working bubblewrap: {REASON}")


@pytest.fixture
def box(tmp_path: Path) -> tuple[Bubblewrap, Policy, Path]:
    """A sandbox, and a policy with a home folder of its own."""
    assert FOUND is not None
    home = tmp_path.resolve() / "home"
    root = home / "work"
    (root / "sub").mkdir(parents=True)
    (home / ".ssh").mkdir()
    (home / ".ssh" / "id").write_text("private key")
    (home / ".cargo" / "bin").mkdir(parents=True)
    (home / ".cargo" / "bin" / "tool").write_text("#!/bin/sh\necho tool\n")
    (home / ".cargo" / "credentials.toml").write_text("token")
    return FOUND, Policy(root, home=home, readable=toolchains(home, f"{home}/.cargo/bin")), home


def run(box: tuple[Bubblewrap, Policy, Path], script: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    sandbox, policy, _ = box
    argv = sandbox.wrap(["/bin/bash", "-c", script], policy, cwd)
    return subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=20)


@real
def test_writes_stay_in_the_workspace(box: tuple[Bubblewrap, Policy, Path]) -> None:
    root, home = box[1].root, box[2]
    done = run(
        box,
        f"echo 1 > in; echo 2 > {home}/out; echo 3 > /etc/vivace-x; echo 4 > /tmp/private; cat /tmp/private",
        root / "sub",
    )
    assert (root / "sub" / "in").read_text() == "1\n" and done.stdout == "4\n"
    assert not (home / "out").exists() and not Path("/etc/vivace-x").exists() and not Path("/tmp/private").exists()
    assert "Read-only" in done.stderr


@real
def test_the_home_folder_is_hidden_but_for_toolchains(box: tuple[Bubblewrap, Policy, Path]) -> None:
    home = box[2]
    assert run(box, f"ls -A {home}; ls -A {home}/.cargo; sh {home}/.cargo/bin/tool").stdout.split() == [
        ".cargo",
        "work",
        "bin",
        "tool",
    ]
    assert run(box, f"cat {home}/.ssh/id {home}/.cargo/credentials.toml").returncode


@real
def test_the_network_is_off_and_on(box: tuple[Bubblewrap, Policy, Path]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        port = server.getsockname()[1]
        script = f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo reached"
        assert run(box, script).stdout == ""
        threading.Thread(target=server.accept, daemon=True).start()
        on = msgspec.structs.replace(box[1], network=True)
        assert run((box[0], on, box[2]), script).stdout == "reached\n"


@real
def test_no_way_back_out(box: tuple[Bubblewrap, Policy, Path]) -> None:
    attacks = [
        "mount -o remount,rw /",
        "mount --bind /etc /mnt",
        "umount /tmp",
        "kill -9 1",
        "chroot / true",
        "mknod /tmp/sda b 8 0",
    ]
    for attack in attacks:
        run(box, attack)
        assert run(box, f"{attack}; echo x > /etc/vivace-x").returncode
    assert not Path("/etc/vivace-x").exists()
    (box[1].root / "link").symlink_to("/etc/vivace-y")
    run(box, "echo x > link")
    assert not Path("/etc/vivace-y").exists()
    assert f"{os.getpid()}" not in run(box, "ls /proc").stdout.split() or os.getpid() < 20


@real
def test_git_works_inside_but_cannot_plant_what_runs_outside(box: tuple[Bubblewrap, Policy, Path]) -> None:
    root = box[1].root
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    commit = "git -c user.name=a -c user.email=a@b commit -q -m x"
    assert run(box, f"echo 1 > f && git add f && {commit} && git log --oneline | wc -l").stdout.strip() == "1"
    planted = run(box, "echo evil > .git/hooks/pre-commit; git config core.fsmonitor evil; echo x >> .git/config")
    assert planted.stderr.count("Read-only") >= 2 and "fsmonitor" not in (root / ".git" / "config").read_text()
    assert not (root / ".git" / "hooks" / "pre-commit").exists()
    subprocess.run(["git", "worktree", "add", "-q", "../tree"], cwd=root, check=True)
    linked = msgspec.structs.replace(box[1], root=(root.parent / "tree").resolve())
    assert run((box[0], linked, box[2]), f"echo 2 > g && git add g && {commit} && git status --short").stdout == ""
    run((box[0], linked, box[2]), f"echo x > {root}/f; echo x > {root}/.git/config")
    assert (root / "f").read_text() == "1\n" and (root / ".git" / "config").read_text().startswith("[core]")


@real
def test_gits_folder_can_be_neither_moved_away_nor_given_hooks(box: tuple[Bubblewrap, Policy, Path]) -> None:
    root = box[1].root
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    shutil.rmtree(root / ".git" / "hooks", ignore_errors=True)
    run(box, "mv .git .old; mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit; echo evil > .git/config")
    assert not (root / ".old").exists() and "evil" not in (root / ".git" / "config").read_text()
    assert not (root / ".git" / "hooks" / "pre-commit").exists()


@real
def test_whoever_works_in_the_home_folder_keeps_the_keys(box: tuple[Bubblewrap, Policy, Path]) -> None:
    home = box[2]
    (home / ".netrc").write_text("password")
    (home / ".bashrc").write_text("start\n")
    at_home = (box[0], msgspec.structs.replace(box[1], root=home), home)
    done = run(at_home, "cat .ssh/id .netrc .cargo/credentials.toml; echo evil >> .bashrc; echo ok > note; cat note")
    assert done.stdout == "ok\n" and (home / ".bashrc").read_text() == "start\n"


def test_a_git_file_that_lies_opens_nothing(tmp_path: Path) -> None:
    (tmp_path / ".git").write_text("gitdir: /etc\n")
    assert git_folders(tmp_path) == () and guarded(Policy(tmp_path)) == ()


@real
def test_a_stop_ends_everything_inside_at_once(box: tuple[Bubblewrap, Policy, Path]) -> None:
    context = context_for(box[1].root)
    context.sandbox, context.policy = box[0], box[1]
    context.approvals = Approvals(context.root, "auto")

    async def work() -> tuple[float, str]:
        command = "trap '' TERM; (setsid sleep 300 &) ; touch started; while :; do sleep 0.1; done"
        task = asyncio.ensure_future(Shell().run(ShellArguments(command), context))
        while not (context.root / "started").exists():
            await asyncio.sleep(0.01)
        (process,) = context.processes._front
        before = time.perf_counter()
        await context.processes.interrupt()
        took = time.perf_counter() - before
        assert strays(process._mark) == []
        return took, (await task).text

    took, text = asyncio.run(work())
    assert took < 0.1 and "interrupted" in text


@real
def test_it_starts_fast(box: tuple[Bubblewrap, Policy, Path]) -> None:
    run(box, "true")
    started = time.perf_counter()
    for _ in range(10):
        run(box, "true")
    assert (time.perf_counter() - started) / 10 < 0.1


def test_where_there_is_none_it_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "there is no sandbox for win32" in detect("win32").reason
    monkeypatch.setattr(shutil, "which", lambda name: None)
    found = detect("linux")
    assert not found.sandbox.holds and "not installed; commands run with your own rights" in found.reason
    assert found.sandbox.wrap(["a", "b"], Policy(tmp_path)) == ["a", "b"]
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'No permissions to create new namespace' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda name: str(broken))
    found = detect("linux")
    assert isinstance(found.sandbox, NoSandbox) and "No permissions to create new namespace" in found.reason
    broken.write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\n')
    assert "a file outside the workspace could be written" in detect("linux").reason
    assert base.detect is detect


def test_the_profile_for_macos() -> None:
    policy = Policy(Path('/Users/a/my "work"'), home=Path("/Users/a"), readable=(Path("/Users/a/.cargo/bin"),))
    text = profile(policy)
    lines = text.split("\n")
    assert lines[:2] == ["(version 1)", "(deny default)"]
    hidden = lines.index('(deny file-read* (subpath "/Users/a"))')
    opened = lines.index('(allow file-read* file-write* (subpath "/Users/a/my \\"work\\""))')
    assert hidden < lines.index('(allow file-read* (subpath "/Users/a/.cargo/bin"))') < opened  # the last match decides
    assert "network" not in text
    assert "(allow network*)" in profile(msgspec.structs.replace(policy, network=True))
    assert text.count("(") == text.count(")")
    argv = Seatbelt().wrap(["ls", "-l"], policy, Path("/Users/a/x y"))
    assert argv[0] == "/usr/bin/sandbox-exec" and argv[-2:] == ["ls", "-l"] and "/Users/a/x y" in argv


def test_the_profile_keeps_git_from_being_given_code(tmp_path: Path) -> None:
    (tmp_path / ".git" / "hooks").mkdir(parents=True)
    (tmp_path / ".git" / "config").touch()
    lines = profile(Policy(tmp_path)).split("\n")
    write = next(n for n, line in enumerate(lines) if line.startswith("(allow file-read* file-write*"))
    assert [line for line in lines[write:] if line.startswith("(deny file-write*")] == [
        f'(deny file-write* (literal "{tmp_path}/.git") (subpath "{tmp_path}/.git/hooks"))',
        *(f'(deny file-write* (subpath "{tmp_path}/.git/{name}"))' for name in ("hooks", "config")),
    ]


def test_the_policy_of_this_machine_and_a_clean_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    (home / "conda" / "bin").mkdir(parents=True)
    (home / "conda" / "conda-meta").mkdir()
    (home / ".local" / "bin").mkdir(parents=True)
    (home / ".local" / "share" / "keyrings").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{home}/conda/bin:{home}/.local/bin:/usr/bin")
    policy = policy_for(tmp_path / "x", writable=[tmp_path / "y"])
    assert policy.home == home.resolve() and not policy.network
    assert {p.relative_to(policy.home).as_posix() for p in policy.readable} == {"conda", ".local/bin"}
    environment = {
        "A_TOKEN": "1",
        "AWS_PROFILE": "1",
        "MY_API_KEY": "1",
        "SSH_AUTH_SOCK": "1",
        "PATH": "p",
        "MONKEY": "m",
    }
    assert clean_environment(environment) == {"PATH": "p", "MONKEY": "m"}

"""Reading with exact bytes, refusals, and writing all or none."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from vivace.agent import workspace
from vivace.agent.workspace import Workspace, interrupts_held, write_all
from vivace.errors import UsageError, VivaceError


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    ("name", "raw", "code"),
    [
        ("none.py", None, "file_not_found"),
        ("zero.bin", b"a\0b", "binary"),
        ("latin.py", b"x = '\xe9'\n", "not_utf8"),
        ("huge.py", b"x" * (workspace.MAX_BYTES + 1), "too_large"),
        ("../outside.py", b"x\n", "outside_workspace"),
        ("folder", None, "not_a_file"),
        ("bad\0name", None, "bad_path"),
    ],
)
def test_what_cannot_be_edited_is_refused_with_the_reason(
    tmp_path: Path, name: str, raw: bytes | None, code: str
) -> None:
    root = tmp_path / "root"
    (root / "folder").mkdir(parents=True)
    if raw is not None:
        (root / name).write_bytes(raw)
    with pytest.raises(UsageError) as caught:
        Workspace(root).read(name)
    assert (caught.value.code, caught.value.exit_code) == (code, 2)


def test_a_symlink_is_followed_inside_and_refused_outside(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "out.py").write_text("x\n")
    (root / "real.py").write_text("x\n")
    (root / "in.py").symlink_to("real.py")
    (root / "leak.py").symlink_to("../out.py")
    (root / "loop.py").symlink_to("loop.py")
    source = Workspace(root).read("in.py")
    write_all([(source, b"y\n")])
    assert (root / "in.py").is_symlink() and (root / "real.py").read_text() == "y\n"
    for name in ("leak.py", "loop.py"):
        with pytest.raises(UsageError):
            Workspace(root).read(name)


def test_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="regular"):
        Workspace(tmp_path).read("pipe")


def test_an_absolute_path_inside_is_fine_and_a_file_named_twice_is_one(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x\n")
    (source,) = Workspace(tmp_path).read_all([tmp_path / "a.py", "a.py", "./a.py"])
    assert source.name == "a.py"


def test_what_the_model_sees(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("\ufeffa\r\nb\x0c\u2028c\nd".encode())
    source = Workspace(tmp_path).read("a.txt")
    assert source.text == "a\nb\x0c\u2028c\nd"
    assert (source.newline, source.final_newline, len(source.sha256)) == ("\n", False, 64)


def test_the_mode_is_kept_and_nothing_is_left_behind(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_bytes(b"echo\n")
    path.chmod(0o750)
    write_all([(Workspace(tmp_path).read("run.sh"), b"echo 1\n")])
    assert path.read_bytes() == b"echo 1\n" and path.stat().st_mode & 0o777 == 0o750
    assert names(tmp_path) == ["run.sh"]


def test_a_file_that_changed_meanwhile_is_left_alone(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("old\n")
    first, second = Workspace(tmp_path).read_all(["a", "b"])
    (tmp_path / "b").write_text("theirs\n")
    with pytest.raises(VivaceError) as caught:
        write_all([(first, b"new\n"), (second, b"new\n")])
    assert caught.value.code == "changed_meanwhile"
    assert [(tmp_path / name).read_text() for name in ("a", "b")] == ["old\n", "theirs\n"]
    assert names(tmp_path) == ["a", "b"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_at_the_second_file_puts_the_first_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("old\n")
    first, second = Workspace(tmp_path).read_all(["a", "b"])
    replace = Path.replace

    def fails_on_b(self: Path, target: Path) -> Path:
        if target.name == "b":
            raise error
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", fails_on_b)
    with pytest.raises((VivaceError, KeyboardInterrupt)):
        write_all([(first, b"new\n"), (second, b"new\n")])
    assert [(tmp_path / name).read_text() for name in ("a", "b")] == ["old\n", "old\n"]
    assert names(tmp_path) == ["a", "b"]


def test_ctrl_c_between_two_files_puts_the_first_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("old\n")
    first, second = Workspace(tmp_path).read_all(["a", "b"])
    monkeypatch.setattr(workspace, "_sync_folder", lambda _: os.kill(os.getpid(), signal.SIGINT))
    with interrupts_held() as pressed, pytest.raises(KeyboardInterrupt):
        write_all([(first, b"new\n"), (second, b"new\n")], pressed)
    assert [(tmp_path / name).read_text() for name in ("a", "b")] == ["old\n", "old\n"]


def test_other_threads_may_write(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old\n")
    source = Workspace(tmp_path).read("a")

    def work() -> None:
        with interrupts_held() as pressed:
            write_all([(source, b"new\n")], pressed)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert (tmp_path / "a").read_text() == "new\n"


@pytest.mark.parametrize("mode", [0o444, 0o400, 0o555])
def test_a_read_only_file_is_refused_whoever_asks(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "read only.py"
    path.write_text("x\n")
    path.chmod(mode)
    (tmp_path / "link.py").symlink_to(path.name)
    for name, shown in ((path.name, "'read only.py'"), ("link.py", "link.py")):
        with pytest.raises(UsageError, match="is read-only") as caught:
            Workspace(tmp_path).read(name)
        assert f"chmod u+w {shown}" in caught.value.hint
    assert path.read_text() == "x\n" and path.stat().st_mode & 0o777 == mode
    path.chmod(0o644)
    assert Workspace(tmp_path).read(path.name).text == "x\n"


def test_a_file_that_became_read_only_meanwhile_is_left_alone(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("old\n")
    first, second = Workspace(tmp_path).read_all(["a", "b"])
    (tmp_path / "b").chmod(0o444)
    with pytest.raises(VivaceError, match="b: is read-only"):
        write_all([(first, b"new\n"), (second, b"new\n")])
    assert [(tmp_path / name).read_text() for name in ("a", "b")] == ["old\n", "old\n"]
    assert names(tmp_path) == ["a", "b"]

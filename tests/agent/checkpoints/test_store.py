"""What a checkpoint holds, what it leaves out and says so, and what going back never touches."""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.checkpoints.looking import look
from tests.agent.test_ignoring import git, needs_git
from vivace.agent.checkpoints import CheckpointStore, Position, database, scanning, shown
from vivace.errors import UsageError, VivaceError


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.fixture
def store(workspace: Path, tmp_path: Path) -> Iterator[CheckpointStore]:
    with CheckpointStore(workspace, tmp_path / "state") as store:
        yield store


def left_out(store: CheckpointStore) -> dict[str, tuple[str, ...]]:
    return {out.reason: out.paths for out in store.take("look").left_out}


def test_a_checkpoint_says_what_it_is(workspace: Path, store: CheckpointStore) -> None:
    (workspace / "a").write_bytes(b"x" * 1000)
    first = store.take("before", "turn", Position("c", "e"))
    second = store.take("again")
    assert (first.id, first.parent, first.kind, first.label) == (1, None, "turn", "before")
    assert first.position == Position("c", "e") and abs(first.created - time.time()) < 60
    assert (first.stats.files, first.stats.size, first.stats.hashed) == (1, 1000, 1)
    assert (second.parent, second.tree, second.stats.stored) == (1, first.tree, 0)
    assert store.checkpoints() == [second, first] and store.checkpoints(1) == [second] and store.head == second
    assert store.get(1) == first
    with pytest.raises(UsageError, match="no checkpoint 7"):
        store.restore(7)


def test_changes_have_their_kinds(workspace: Path, store: CheckpointStore) -> None:
    for name in ("changed", "mode", "gone", "folder", "same"):
        (workspace / name).write_text(name)
    first = store.take("1").id
    (workspace / "changed").write_text("else")
    (workspace / "mode").chmod(0o755)
    (workspace / "gone").unlink()
    (workspace / "folder").unlink()
    (workspace / "folder").mkdir()
    (workspace / "folder" / "new").write_text("")
    expected = [
        ("changed", "changed"),
        ("folder", "kind"),
        ("folder/new", "added"),
        ("gone", "removed"),
        ("mode", "mode"),
    ]
    assert [(change.path, change.change) for change in store.diff(first)] == expected
    second = store.take("2").id
    assert [(change.path, change.change) for change in store.diff(first, second)] == expected
    assert store.read(first, "changed") == b"changed" and store.read(second, "changed") == b"else"
    for path in ("gone", "folder", "folder/none", "same/none"):
        with pytest.raises(UsageError, match="no such file"):
            store.read(second, path)


def test_what_commands_did_is_undone_without_any_edit_tool(workspace: Path, store: CheckpointStore) -> None:
    """Edits through the shell that a rewind knows nothing of: anthropics/claude-code#94657, #87575."""
    (workspace / "kept.py").write_text("kept")
    (workspace / "lost.py").write_text("lost")
    before = look(workspace)
    store.take("before a command", "command")
    subprocess.run(
        "rm lost.py; echo x >> kept.py; mkdir -p build/deep; echo y > build/deep/made; chmod 700 kept.py; ln -s / all",
        shell=True, cwd=workspace, check=True,
    )  # fmt: skip
    restored = store.undo()
    assert look(workspace) == before
    assert {change.path for change in restored.unsaved} == {
        "lost.py",
        "kept.py",
        "build",
        "build/deep",
        "build/deep/made",
        "all",
    }
    assert restored.saved is not None and store.read(restored.saved.id, "build/deep/made") == b"y\n"


def test_what_the_user_changed_since_is_saved_first_and_told(workspace: Path, store: CheckpointStore) -> None:
    """Going back never loses anything: anthropics/claude-code#39514."""
    (workspace / "a").write_text("1")
    first = store.take("1").id
    (workspace / "a").write_text("2")
    store.take("2")
    (workspace / "a").write_text("by hand")
    (workspace / "b").write_text("by hand, too")
    restored = store.restore(first)
    assert (workspace / "a").read_text() == "1" and not (workspace / "b").exists()
    assert [change.path for change in restored.unsaved] == ["a", "b"]
    assert restored.saved is not None and restored.saved.kind == "safety"
    store.redo()
    assert (workspace / "a").read_text() == "by hand" and (workspace / "b").read_text() == "by hand, too"


def test_a_new_turn_ends_redo_but_its_files_stay_reachable(workspace: Path, store: CheckpointStore) -> None:
    (workspace / "a").write_text("1")
    store.take("1")
    (workspace / "a").write_text("2")
    undone = store.undo()
    store.take("on from here")
    with pytest.raises(UsageError, match="nothing to redo"):
        store.redo()
    assert undone.saved is not None
    store.restore(undone.saved.id)
    assert (workspace / "a").read_text() == "2"


def test_a_file_that_changes_while_it_is_restored_is_not_lost(
    workspace: Path, store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "a").write_text("1")
    first = store.take("1").id
    (workspace / "a").write_text("2")
    store.take("2")
    write_to = database.Database.write_to
    hands = ["by hand"]

    def meanwhile(self: database.Database, digest: bytes, target: int) -> None:
        write_to(self, digest, target)
        if hands:
            (workspace / "a").write_text(hands.pop())

    monkeypatch.setattr(database.Database, "write_to", meanwhile)
    restored = store.restore(first)
    assert (workspace / "a").read_text() == "1" and not restored.refused
    assert restored.saved is not None and store.read(restored.saved.id, "a") == b"by hand"
    store.restore(2)
    hands.extend(f"{number}" * 50 for number in range(9))
    busy = store.restore(first)
    assert [(refused.path, refused.reason) for refused in busy.refused] == [("a", "was changed meanwhile")]
    assert (workspace / "a").read_text() == "6" * 50


def test_an_edit_of_the_same_size_and_time_is_seen(workspace: Path, store: CheckpointStore) -> None:
    path = workspace / "a"
    path.write_bytes(b"one")
    status = path.stat()
    first = store.take("1")
    for content in (b"two", b"six"):  # in the same tick of the clock, as far as that can be done
        path.write_bytes(content)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert store.take("x").tree != first.tree
        assert store.read(store.take("y").id, "a") == content


def test_an_unchanged_tree_is_not_read_again(workspace: Path, tmp_path: Path) -> None:
    for number in range(50):
        (workspace / f"{number}").write_text("x")
    time.sleep(0.1)
    with CheckpointStore(workspace, tmp_path / "state") as store:
        assert store.take("1").stats.hashed == 50
        assert store.take("2").stats.hashed == 0
    with CheckpointStore(workspace, tmp_path / "state") as store:
        (workspace / "7").write_text("y")
        assert store.take("3").stats.hashed == 1


def test_a_file_whose_stamp_proves_nothing_is_read_every_time(workspace: Path, store: CheckpointStore) -> None:
    """As one that changed in the tick in which it was read; the future lasts longer than a tick."""
    (workspace / "a").write_text("x")
    os.utime(workspace / "a", (time.time() + 1000, time.time() + 1000))
    assert [store.take("x").stats.hashed for _ in range(3)] == [1, 1, 1]


def test_links_are_kept_as_links_and_never_followed(workspace: Path, store: CheckpointStore, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("precious")
    (workspace / "d").mkdir()
    (workspace / "d" / "precious").write_text("inside")
    first = store.take("1").id
    shutil.rmtree(workspace / "d")
    (workspace / "d").symlink_to(outside)
    second = store.take("2").id
    assert store.read(second, "d") == os.fsencode(outside)
    store.restore(first)
    assert (workspace / "d" / "precious").read_text() == "inside" and not (workspace / "d").is_symlink()
    store.restore(second)
    assert (workspace / "d").is_symlink()
    assert look(outside) == {b"precious": ("file", 0o644, b"precious")}


def test_caches_histories_and_special_files_are_left_out_and_said(workspace: Path, store: CheckpointStore) -> None:
    for folder in ("node_modules/x", ".git", "sub/.git", "pkg/__pycache__", "target", "env/lib", "notcache"):
        (workspace / folder).mkdir(parents=True)
        (workspace / folder / "file").write_text("x")
    (workspace / "target" / "CACHEDIR.TAG").write_text("Signature: 8a477f597d28d172789f06886806bc55\n")
    (workspace / "notcache" / "CACHEDIR.TAG").write_text("hello")
    (workspace / "env" / "pyvenv.cfg").write_text("home = /usr/bin\n")
    os.mkfifo(workspace / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(workspace / "socket"))
        said = left_out(store)
    assert sorted(said[scanning.CACHE]) == ["env", "node_modules", "pkg/__pycache__", "target"]
    assert sorted(said[scanning.HISTORY]) == [".git", "sub/.git"]
    assert sorted(said[scanning.SPECIAL]) == ["pipe", "socket"]
    assert store.read(1, "notcache/file") == b"x"
    before = look(workspace / "target")
    (workspace / "pkg" / "code.py").write_text("x")
    store.undo()
    assert look(workspace / "target") == before and (workspace / "pipe").is_fifo()


def test_a_new_folder_goes_with_its_bytecode_but_not_with_what_nobody_holds(
    workspace: Path, store: CheckpointStore
) -> None:
    (workspace / ".gitignore").write_text("*.secret\n")
    store.take("1")
    for name in ("plain", "holding"):
        (workspace / name / "__pycache__").mkdir(parents=True)
        (workspace / name / "__pycache__" / "code.pyc").write_text("x")
        (workspace / name / "code.py").write_text("x")
    (workspace / "holding" / "my.secret").write_text("secret")
    restored = store.undo()
    assert not restored.refused and [kept.path for kept in restored.kept] == ["holding"]
    assert not (workspace / "plain").exists() and not (workspace / "holding" / "code.py").exists()
    assert (workspace / "holding" / "my.secret").read_text() == "secret"


def test_ignored_files_are_left_out_but_for_touched_and_tracked_ones(workspace: Path, store: CheckpointStore) -> None:
    (workspace / ".gitignore").write_text("out/\n.env\n*.log\n")
    (workspace / "out" / "deep").mkdir(parents=True)
    for name in ("out/deep/made", "out/other", ".env", "a.log", "a.py"):
        (workspace / name).write_text("1")
    assert sorted(left_out(store)[scanning.IGNORED]) == [".env", "a.log", "out"]
    store.include(["out/deep/made", workspace / ".env", "../elsewhere", "/etc/passwd", "."])
    store.take("before")
    for name in ("out/deep/made", "out/other", ".env", "a.log", "a.py"):
        (workspace / name).write_text("2")
    store.undo()
    read = {name: (workspace / name).read_text() for name in ("out/deep/made", "out/other", ".env", "a.log", "a.py")}
    assert read == {"out/deep/made": "1", "out/other": "2", ".env": "1", "a.log": "2", "a.py": "1"}


def test_a_file_that_is_ignored_by_now_is_saved_before_it_is_overwritten(
    workspace: Path, store: CheckpointStore
) -> None:
    (workspace / "a.log").write_text("1")
    first = store.take("1").id
    (workspace / ".gitignore").write_text("*.log\n")
    store.take("2")
    (workspace / "a.log").write_text("precious")
    (workspace / "b.log").write_text("never held")
    restored = store.restore(first)
    assert (workspace / "a.log").read_text() == "1" and not restored.refused
    assert (workspace / "b.log").read_text() == "never held"
    assert restored.saved is not None and store.read(restored.saved.id, "a.log") == b"precious"


def test_what_stands_in_the_way_and_is_in_no_checkpoint_stays(workspace: Path, store: CheckpointStore) -> None:
    (workspace / "a").write_text("1")
    first = store.take("1").id
    (workspace / "a").unlink()
    os.mkfifo(workspace / "a")
    restored = store.restore(first)
    assert [(refused.path, refused.reason) for refused in restored.refused] == [
        ("a", "something stands there that no checkpoint holds")
    ]
    assert (workspace / "a").is_fifo()


@needs_git
def test_the_repository_is_not_touched(workspace: Path, store: CheckpointStore) -> None:
    """Undo that commits, or plays with the index: openai/codex#9203, anomalyco/opencode#31338."""
    git(workspace, "init", "-q", "-b", "main")
    git(workspace, "config", "user.email", "a@b")
    git(workspace, "config", "user.name", "a")
    (workspace / ".gitignore").write_text("*.log\n")
    (workspace / "tracked.log").write_text("1")
    (workspace / "a.py").write_text("1")
    git(workspace, "add", "-f", ".")
    git(workspace, "commit", "-q", "-m", "one")
    (workspace / "staged.py").write_text("s")
    git(workspace, "add", "staged.py")
    (workspace / "a.py").write_text("dirty")
    inside = look(workspace / ".git")
    status = git(workspace, "--no-optional-locks", "status", "--porcelain", "-z")
    store.take("1")
    (workspace / "tracked.log").write_text("2")
    (workspace / "new.py").write_text("x")
    (workspace / "staged.py").unlink()
    store.undo()
    assert (workspace / "tracked.log").read_text() == "1", "a tracked file is kept though it is ignored"
    assert look(workspace / ".git") == inside
    assert git(workspace, "--no-optional-locks", "status", "--porcelain", "-z") == status
    store.redo()
    assert look(workspace / ".git") == inside


def test_the_store_inside_the_workspace_is_not_part_of_it(workspace: Path) -> None:
    with CheckpointStore(workspace, workspace / ".state") as store:
        (workspace / "a").write_text("1")
        store.take("1")
        (workspace / "a").write_text("2")
        store.undo()
        assert (workspace / "a").read_text() == "1"
        assert left_out(store) == {scanning.STORE: (".state",)}
    with pytest.raises(UsageError, match="cannot be a workspace"):
        CheckpointStore(workspace, workspace)


def test_large_files_are_kept_and_huge_ones_said(
    workspace: Path, store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "LARGE", 10_000)
    monkeypatch.setattr(scanning, "HUGE", 100_000)
    (workspace / "large").write_bytes(b"1" * 50_000)
    (workspace / "huge").write_bytes(b"1" * 200_000)
    first = store.take("1")
    assert [(out.reason, out.paths) for out in first.left_out] == [(scanning.TOO_LARGE, ("huge",))]
    (workspace / "large").write_bytes(b"2" * 50_000)
    (workspace / "huge").write_bytes(b"2" * 200_000)
    store.undo()
    assert (workspace / "large").read_bytes() == b"1" * 50_000
    assert (workspace / "huge").read_bytes() == b"2" * 200_000
    (workspace / "large").unlink()
    store.undo()
    assert (workspace / "large").read_bytes() == b"1" * 50_000
    kept = list((store._database.folder / "large").iterdir())
    assert len(kept) == 2
    store.take("last")
    store.prune(keep=1)
    assert len(list((store._database.folder / "large").iterdir())) == 1


def test_pruning_drops_what_nothing_holds_and_keeps_the_rest_whole(workspace: Path, store: CheckpointStore) -> None:
    for number in range(10):
        (workspace / "a").write_bytes(os.urandom(50_000))
        (workspace / "same").write_text("same")
        store.take(f"{number}")
    size = (store._database.folder / "store.sqlite").stat().st_size
    newest = [checkpoint.id for checkpoint in store.checkpoints(3)]
    pruned = store.prune(keep=3)
    assert pruned.checkpoints == 7 and pruned.size > 7 * 50_000
    assert (store._database.folder / "store.sqlite").stat().st_size < size - 6 * 50_000
    assert [checkpoint.id for checkpoint in store.checkpoints()] == newest
    assert store.checkpoints()[-1].parent is None
    for number in newest:
        store.restore(number)
        assert (workspace / "same").read_text() == "same"
    assert store.prune(keep=100, days=0).checkpoints == 1  # where the files are, and where redo goes, stay
    (workspace / "a").write_bytes(os.urandom(50_000))
    store.take("the cache of the scan was forgotten with the objects")
    assert store.diff(store.checkpoints()[0].id) == []


def test_two_processes_share_a_store(workspace: Path, store: CheckpointStore, tmp_path: Path) -> None:
    (workspace / "a").write_text("1")
    store.take("1")
    with CheckpointStore(workspace, tmp_path / "state") as other:
        (workspace / "a").write_text("2")
        other.take("2")
        (workspace / "a").write_text("3")
        other.take("3")
        other.prune(keep=1)
        (workspace / "a").write_text("2")
        assert store.read(store.take("4").id, "a") == b"2"
        assert [checkpoint.label for checkpoint in other.checkpoints()] == ["4", "3"]


def test_who_waits_too_long_is_told(workspace: Path, store: CheckpointStore, monkeypatch: pytest.MonkeyPatch) -> None:
    script = (
        "import sys; from pathlib import Path; from vivace.agent.checkpoints import CheckpointStore\n"
        "store = CheckpointStore(Path(sys.argv[1]), Path(sys.argv[2]))\n"
        "with store._held(): print('held', flush=True); sys.stdin.read()\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script, workspace, store.state_dir],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[3],
    )  # fmt: skip
    assert child.stdout is not None and child.stdout.readline() == b"held\n"
    monkeypatch.setattr(database, "LOCK_SECONDS", 0.1)
    with pytest.raises(VivaceError, match="another process") as busy:
        store.take("1")
    assert busy.value.code == "store_busy"
    child.communicate()
    store.take("1")


def test_a_lost_or_damaged_object_refuses_before_anything_is_touched(workspace: Path, store: CheckpointStore) -> None:
    (workspace / "a").write_text("first content")
    (workspace / "b").write_text("b")
    first = store.take("1").id
    (workspace / "a").write_text("2")
    (workspace / "b").write_text("2")
    store.take("2")
    before = look(workspace)
    with sqlite3.connect(store._database.folder / "store.sqlite") as connection:
        connection.execute("DELETE FROM objects WHERE size=?", (len("first content"),))
    with pytest.raises(VivaceError, match="has lost a part") as lost:
        store.restore(first)
    assert lost.value.code == "object_lost" and look(workspace) == before


def test_a_store_that_is_no_store_says_so(workspace: Path, store: CheckpointStore) -> None:
    file = store._database.folder / "store.sqlite"
    store.close()
    file.write_bytes(b"not a database, but long enough to be looked at" * 100)
    with pytest.raises(VivaceError, match="are damaged") as broken:
        CheckpointStore(workspace, store.state_dir)
    assert broken.value.code == "store_broken"
    file.unlink()
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA user_version=99")
    with pytest.raises(VivaceError, match="version 99"):
        CheckpointStore(workspace, store.state_dir)


def test_names_that_are_no_text_and_text_of_all_kinds(workspace: Path, store: CheckpointStore) -> None:
    names = [
        b"\xff\xfe",
        "é".encode(),
        "e\u0301".encode(),
        "日本".encode(),
        b"a\nb",
        b"tab\t",
        b"-rf",
        "\U0001f600".encode(),
        b"x" * 255,
    ]
    for name in names:
        (workspace / os.fsdecode(name)).write_bytes(name)
    before = look(workspace)
    store.take("1")
    for name in names:
        (workspace / os.fsdecode(name)).unlink()
    restored = store.undo()
    assert look(workspace) == before
    for change in restored.unsaved:
        shown(change.path).encode()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody who may not read")
def test_unreadable_files_are_said_and_what_was_made_unreadable_is_restored(tmp_path: Path) -> None:
    script = (
        "import os, sys; from pathlib import Path; from vivace.agent.checkpoints import CheckpointStore\n"
        "base = Path(sys.argv[1]); work = base / 'work'; os.chown(base, 65534, 65534)\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "(work / 'd').mkdir(parents=True); (work / 'd' / 'a').write_text('1'); (work / 'b').write_text('1')\n"
        "(work / 'locked').mkdir(); (work / 'locked' / 'c').write_text('1'); (work / 'locked').chmod(0o555)\n"
        "store = CheckpointStore(work, base / 'state'); store.take('1')\n"
        "(work / 'd').chmod(0); (work / 'b').chmod(0); (work / 'locked').chmod(0o755)\n"
        "(work / 'locked' / 'c').write_text('2'); (work / 'locked').chmod(0o555)\n"
        "print([(out.reason, sorted(out.paths)) for out in store.take('2').left_out])\n"
        "print(store.restore(1).refused); mode = lambda name: (work / name).stat().st_mode & 0o777\n"
        "print(mode('d'), (work / 'd' / 'a').read_text())\n"
        "print(mode('b'), (work / 'locked' / 'c').read_text(), mode('locked'))\n"
    )
    home = tmp_path / "home"
    home.mkdir()
    for folder in (home, *home.parents):
        if folder.is_relative_to(tmp_path.parents[2]):
            folder.chmod(0o755)
    environ = os.environ | {"HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script, home],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[3],
        env=environ,
        check=False,
    )
    assert done.stdout.splitlines() == ["[('not readable', ['b', 'd'])]", "()", f"{0o755} 1", f"{0o644} 1 {0o555}"], (
        done.stderr
    )

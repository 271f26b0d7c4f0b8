"""Background workers: copies of the dirty tree, results that are offered, nothing that is lost or copied over."""

from __future__ import annotations

import asyncio
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent.turns.stage import Seen, Stage, call, play, say, stage
from vivace.agent.turns import crew, landing, worktree
from vivace.agent.turns.events import CheckpointTaken, Said, ToolBegan, TurnEnded, WorkerChanged
from vivace.agent.turns.limits import Limits
from vivace.agent.turns.threeway import merge_all
from vivace.agent.turns.worktree import LINK, FileChange, Worktree
from vivace.backends.paced_script import Step
from vivace.errors import UsageError, VivaceError


def git(root: Path, *arguments: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    return subprocess.run(["git", *who, *arguments], cwd=root, check=True, capture_output=True, text=True).stdout


def repository(base: Path) -> Path:
    """One committed file, one staged, one changed, one new, one ignored."""
    root = base / "work"
    root.mkdir()
    git(root, "init", "-q")
    (root / ".gitignore").write_text("ignored\n")
    for name in ("a.txt", "b.txt"):
        (root / name).write_text("".join(f"{name} {n}\n" for n in range(9)))
    git(root, "add", ".")
    git(root, "commit", "-qm", "one")
    (root / "staged.txt").write_text("staged\n")
    git(root, "add", "staged.txt")
    (root / "b.txt").write_text((root / "b.txt").read_text() + "dirty\n")
    (root / "new.txt").write_text("new\n")
    (root / "ignored").write_text("x\n")
    return root


def standing(root: Path) -> tuple[str, ...]:
    """What is changed and staged, and the branches."""
    return git(root, "status", "--porcelain"), git(root, "for-each-ref", "refs/heads"), git(root, "diff", "--cached")


def worker(seen: Seen) -> list[Step]:
    """Does what its task says: ``set FILE LINE WORD``."""
    if seen.outputs:
        return [say("Done.")]
    _, file, line, word = seen.users[-1].split("\n")[0].split()
    return [call("shell", command=f"sed -i '{line}s/.*/{word}/' {file}")]


async def over(scene: Stage, *names: str) -> None:
    assert scene.agent.crew is not None
    for name in names:
        await asyncio.wait_for(scene.agent.crew.wait(name), 30)


def test_two_workers_beside_the_foreground_from_the_dirty_tree(tmp_path: Path) -> None:
    """Agents overwrite uncommitted work, worktrees are deleted with work in them, two share one index:
    anthropics/claude-code#39514, #35983, #35862."""
    root = repository(tmp_path)
    before = standing(root)

    async def run() -> None:
        async with stage(tmp_path, worker) as scene:
            one = await scene.agent.background("set a.txt 2 ONE")
            two = await scene.agent.background("set b.txt 10 TWO")
            await over(scene, one, two)
            assert [w.state for w in scene.agent.workers()] == ["done", "done"], scene.agent.workers()
            assert standing(root) == before
            assert git(root, "worktree", "list").count("\n") == 1
            assert "ONE" in git(root, "show", f"{scene.agent.workers()[0].ref}:a.txt")
            assert "dirty" not in git(root, "show", f"{scene.agent.workers()[1].ref}:b.txt")
            diff = await scene.agent.preview_worker(two)
            assert "-dirty" in diff and "+TWO" in diff
            assert await scene.agent.accept_worker(two) == ("b.txt",)
            assert (root / "b.txt").read_text().endswith("TWO\n")
            await scene.agent.undo()
            assert (root / "b.txt").read_text().endswith("dirty\n")

    play(run)


def test_a_result_is_merged_with_what_went_on_meanwhile_or_named_as_a_conflict(tmp_path: Path) -> None:
    root = repository(tmp_path)

    async def run() -> None:
        async with stage(tmp_path, worker) as scene:
            one = await scene.agent.background("set a.txt 2 ONE")
            two = await scene.agent.background("set a.txt 5 FIVE")
            await over(scene, one, two)
            text = (root / "a.txt").read_text().replace("a.txt 8", "mine").replace("a.txt 4", "my")
            (root / "a.txt").write_text(text)
            assert await scene.agent.accept_worker(one) == ("a.txt",)
            text = (root / "a.txt").read_text()
            assert "ONE" in text and "mine" in text
            with pytest.raises(VivaceError, match="both sides changed the same lines"):
                await scene.agent.accept_worker(two)
            assert (root / "a.txt").read_text() == text
            assert "conflict in a.txt" in await scene.agent.preview_worker(two)

    play(run)


def test_stop_does_not_end_background_workers(tmp_path: Path) -> None:
    """Esc also kills background tasks: anthropics/claude-code#26100."""
    (tmp_path / "work").mkdir()

    def act(seen: Seen) -> list[Step]:
        if seen.users[0] == "front":
            return [Step(tokens=50_000, pause=0.005)]
        return [call("shell", command="sleep 0.5; echo made > made.txt")] if not seen.outputs else [say("ok")]

    async def run() -> None:
        async with stage(tmp_path, act) as scene:
            name = await scene.agent.background("back")
            while not any(event.worker for event in scene.of(ToolBegan)):
                await asyncio.sleep(0.005)
            scene.agent.say("front")
            while not any(not event.worker for event in scene.of(Said)):
                await asyncio.sleep(0.005)
            await scene.agent.stop()
            assert scene.agent.workers()[0].state == "running"
            await over(scene, name)
            assert scene.agent.workers()[0].state == "done"
            assert await scene.agent.accept_worker(name) == ("made.txt",)
            assert (tmp_path / "work" / "made.txt").read_text() == "made\n"

    play(run)


def test_a_worker_has_its_own_stop_and_caps_and_no_workers(tmp_path: Path) -> None:
    """Children spend unseen, grandchildren are orphaned: anthropics/claude-code#94013, #74133."""
    (tmp_path / "work").mkdir()

    def act(seen: Seen) -> list[Step]:
        assert "delegate" not in seen.tools and "ask" not in seen.tools
        if seen.users[0] == "long":
            return [call("shell", command="echo half > half.txt; sleep 60")]
        return [call("shell", command=f"echo {len(seen.outputs)}")]

    async def run() -> None:
        caps = Limits(steps=3)
        async with stage(tmp_path, act, worker_limits=caps, max_workers=2) as scene:
            endless = await scene.agent.background("endless")
            long = await scene.agent.background("long")
            with pytest.raises(UsageError, match="2 workers run already"):
                await scene.agent.background("one too many")
            await over(scene, endless)
            assert "3 steps" in scene.agent.workers()[0].note
            root = tmp_path / "state" / "crew"
            while not list(root.glob("*/tree/half.txt")):
                await asyncio.sleep(0.01)
            with pytest.raises(UsageError, match="not done yet"):
                await scene.agent.accept_worker(long)
            await scene.agent.stop_worker(long)
            state = scene.of(WorkerChanged)[-1]
            assert (state.state, state.offer) == ("stopped", 1)
            assert not list(root.glob("*"))
            with pytest.raises(UsageError, match="no worker 'worker-7'"):
                await scene.agent.stop_worker("worker-7")

    play(run)


def test_the_model_can_delegate(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()

    def act(seen: Seen) -> list[Step]:
        if seen.users[0] != "go":
            return [say("I am the worker.")]
        return [call("delegate", task="look around")] if not seen.outputs else [say("It is on its way.")]

    async def run() -> None:
        async with stage(tmp_path, act) as scene:
            scene.agent.say("go")
            while not [event for event in scene.of(TurnEnded) if not event.worker]:
                await asyncio.sleep(0.005)
            assert scene.agent.workers()[0].task == "look around"
            await over(scene, "worker-1")
            assert scene.agent.workers()[0].said == "I am the worker."

    play(run)


def test_the_model_is_told_when_a_worker_ends_and_can_ask_for_it(tmp_path: Path) -> None:
    """Jobs are killed although a notice was promised: anthropics/claude-code#83627."""
    root = repository(tmp_path)

    def act(seen: Seen) -> list[Step]:
        if seen.users[0].startswith("set "):
            return worker(seen)
        asked = [
            call("delegate", task="set a.txt 2 ONE"),
            call("workers", do="wait", worker="worker-1", seconds=20),
            call("workers", do="diff", worker="worker-1"),
            call("workers"),
            call("workers", do="stop", worker="worker-9"),
        ]
        return [asked[len(seen.outputs)]] if len(seen.outputs) < len(asked) else [say("ok")]

    async def run() -> None:
        async with stage(tmp_path, act, worker_limits=Limits(steps=7, tokens=9000, seconds=60.0)) as scene:
            scene.agent.say("go")
            await scene.until(TurnEnded)
            while not [event for event in scene.of(TurnEnded) if not event.worker]:
                await asyncio.sleep(0.005)
            started, waited, diff, listed, unknown = scene.seen[-1].outputs
            assert "workers(do='list'" in started and "worker-1" in started
            assert waited.startswith("worker-1: done, 2 of 7 steps") and "of 9,000 tokens" in waited
            assert "offered to the user: a.txt" in waited and "Its last words: Done." in waited
            assert "+ONE" in diff and listed == waited and "no worker 'worker-9'" in unknown
            told = [text for text in scene.seen[-1].users if "A background worker has ended. worker-1: done" in text]
            assert len(told) == 1 and "a.txt" in told[0]
            assert (root / "a.txt").read_text().startswith("a.txt 0\na.txt 1\n")
            await scene.turn("again")
            assert sum("A background worker has ended" in text for text in scene.seen[-1].users) == 1

    play(run)


def test_where_nobody_stays_to_accept_there_are_no_workers(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()

    async def run() -> None:
        async with stage(tmp_path, lambda seen: [say("ok")], max_workers=0) as scene:
            await scene.turn("go")
            assert not {"delegate", "workers"} & set(scene.seen[-1].tools) and "ask" in scene.seen[-1].tools
            with pytest.raises(VivaceError, match="no background workers"):
                await scene.agent.background("x")
        async with stage(tmp_path, lambda seen: [Step(tokens=9000, pause=0.01)]) as scene:
            name = await scene.agent.background("x")
            while scene.agent.workers()[0].state != "running":
                await asyncio.sleep(0.01)
        last = scene.of(WorkerChanged)[-1]
        assert (last.worker, last.state, last.note) == (name, "stopped", "ended with the conversation")

    play(run)


def test_a_worker_is_seen_at_work_with_its_caps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three agents spend unseen: anthropics/claude-code#94013."""
    (tmp_path / "work").mkdir()
    monkeypatch.setattr(crew, "TICK", 0.05)

    def act(seen: Seen) -> list[Step]:
        return [call("shell", command="sleep 0.6")] if not seen.outputs else [say("ok")]

    async def run() -> None:
        limits = Limits(steps=5, tokens=90_000, seconds=30.0, cost=1.0)
        async with stage(tmp_path, act, worker_limits=limits) as scene:
            await over(scene, await scene.agent.background("look"))
            seen = scene.of(WorkerChanged)
            running = [event for event in seen if event.state == "running"]
            seconds = [event.seconds for event in running]
            assert len(running) > 6 and seconds == sorted(seconds) and seconds[-1] > 0.4
            caps = {(e.most_steps, e.most_tokens, e.most_seconds, e.most_cost, e.model) for e in seen}
            assert caps == {(5, 90_000, 30.0, 1.0, "acting")}
            assert (seen[-1].state, seen[-1].steps, seen[-1].cost) == ("done", 2, 0.0)

    play(run)


@pytest.mark.parametrize(("place", "state"), [("_make", "failed"), ("_finish", "failed"), ("_changes", "failed")])
@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied", "secret.bin"), ValueError("odd")])
def test_a_worker_whose_copy_fails_ends_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, state: str, error: Exception
) -> None:
    """A worker whose end nobody notices holds its place for ever."""
    (tmp_path / "work").mkdir()

    def fails(self: Worktree) -> None:
        raise error

    monkeypatch.setattr(Worktree, place, fails)

    async def run() -> None:
        async with stage(tmp_path, lambda seen: [say("ok")], max_workers=1) as scene:
            for _ in range(2):  # the place is free again
                await over(scene, await scene.agent.background("look"))
            for found in scene.agent.workers():
                assert found.state == state
                assert ("Permission denied" if isinstance(error, OSError) else "ValueError: odd") in found.note
                assert found.note.startswith("its copy is left in") == (place != "_make")
            assert [event.state for event in scene.of(WorkerChanged)].count("failed") == 2
            assert scene.agent.crew is not None and scene.agent.desk is not None
            assert sum("has ended" in text and "failed" in text for text in scene.agent.desk.news) == 2
            assert scene.agent.crew._clock is not None
            await asyncio.wait_for(scene.agent.crew._clock, 3)

    play(run)


@pytest.mark.parametrize("git_too", [True, False])
@pytest.mark.parametrize("place", ["copy_files", "look"])
def test_a_worker_that_is_stopped_while_its_copy_is_made_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, git_too: bool, place: str
) -> None:
    if git_too:
        repository(tmp_path)
    else:
        (tmp_path / "work").mkdir()
        (tmp_path / "work" / "a.txt").write_text("a\n")
    reached, go_on = threading.Event(), threading.Event()
    real = getattr(worktree, place)

    def slow(*arguments: object) -> object:
        reached.set()
        assert go_on.wait(10)
        return real(*arguments)

    monkeypatch.setattr(worktree, place, slow)

    async def run() -> None:
        async with stage(tmp_path, lambda seen: [say("ok")]) as scene:
            name = await scene.agent.background("look")
            if git_too and place == "copy_files":
                go_on.set()
                return  # git makes the copy by itself
            while not reached.is_set():
                await asyncio.sleep(0.005)
            stopping = asyncio.create_task(scene.agent.stop_worker(name))
            await asyncio.sleep(0.05)
            assert not stopping.done()
            go_on.set()
            await asyncio.wait_for(stopping, 10)
            found = scene.agent.workers()[0]
            assert (found.state, found.note, found.changes) == ("stopped", "stopped by the user", [])
            assert not list((tmp_path / "state" / "crew").glob("*"))
            if git_too:
                assert git(tmp_path / "work", "worktree", "list").count("\n") == 1

    play(run)


def accepting(tmp_path: Path, meanwhile: Callable[[Path], None]) -> list[str]:
    """What became of a result (a.txt, line 2 and 5; b.txt, line 10) when something happens at the checkpoint before."""
    root = repository(tmp_path)
    failures: list[str] = []

    def act(seen: Seen) -> list[Step]:
        if seen.outputs:
            return [say("Done.")]
        return [
            call("shell", command="sed -i '2s/.*/ONE/' a.txt; sed -i '10s/.*/TWO/' b.txt; mkdir n; echo n > n/n.txt")
        ]

    async def run() -> None:
        async with stage(tmp_path, act) as scene:
            await over(scene, await scene.agent.background("go"))

            def told(event: object) -> None:
                if isinstance(event, CheckpointTaken) and event.label.startswith("accept"):
                    meanwhile(root)

            scene.on_event = told
            try:
                await scene.agent.accept_worker("worker-1")
            except VivaceError as error:
                failures.append(error.code)
                assert not scene.agent.workers()[0].accepted
            assert not list(root.rglob("*.vivace"))

    play(run)
    return failures


def test_what_an_editor_saves_while_a_result_is_accepted_is_merged_and_not_lost(tmp_path: Path) -> None:
    def save(root: Path) -> None:
        (root / "a.txt").write_text((root / "a.txt").read_text().replace("a.txt 8", "saved"))

    assert accepting(tmp_path, save) == []
    text = (tmp_path / "work" / "a.txt").read_text()
    assert "saved" in text and "ONE" in text and (tmp_path / "work" / "n" / "n.txt").exists()


def test_what_an_editor_saves_on_the_same_lines_meanwhile_is_a_conflict_and_nothing_is_written(tmp_path: Path) -> None:
    def save(root: Path) -> None:
        (root / "b.txt").write_text((root / "b.txt").read_text().replace("dirty", "mine"))

    assert accepting(tmp_path, save) == ["conflict"]
    assert "mine" in (tmp_path / "work" / "b.txt").read_text()
    assert "ONE" not in (tmp_path / "work" / "a.txt").read_text()


@pytest.mark.parametrize("fault", ["saved", "full"])
def test_a_result_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """A disk that is full, or a save, when half of the files are replaced."""
    real = Path.replace
    count = 0

    def replace(self: Path, target: Path) -> Path:
        nonlocal count
        count += self.name.endswith(".vivace")
        if self.name.endswith(".vivace") and count == 1 and fault == "saved":
            (tmp_path / "work" / "b.txt").write_text("saved\n")
        if self.name.endswith(".vivace") and count == 2 and fault == "full":
            raise OSError(28, "No space left on device", str(self))
        return real(self, target)

    def begin(root: Path) -> None:
        monkeypatch.setattr(Path, "replace", replace)

    before = "".join(f"a.txt {n}\n" for n in range(9))
    found = accepting(tmp_path, begin)
    assert found == ["changed_meanwhile" if fault == "saved" else "write_failed"] and count >= 2
    root = tmp_path / "work"
    assert (root / "a.txt").read_text() == before and not (root / "n").exists()
    assert (root / "b.txt").read_text() == "saved\n" if fault == "saved" else "TWO" not in (root / "b.txt").read_text()


@pytest.mark.parametrize("git_too", [True, False])
def test_modes_and_links_are_part_of_a_result_and_what_is_not_is_named(tmp_path: Path, git_too: bool) -> None:
    root = repository(tmp_path) if git_too else tmp_path / "work"
    root.mkdir(exist_ok=True)
    (root / ".gitignore").write_text("ignored\nout/\n__pycache__\n")
    for name in ("a.txt", "b.txt", "kept.txt"):
        (root / name).write_text("x\n")
    (root / "a.txt").chmod(0o600)
    (root / "sub").mkdir()
    (root / "sub" / "s.txt").write_text("s\n")
    (root / "old").symlink_to("sub")
    command = (
        "chmod +x a.txt; ln -sfn a.txt b.txt; ln -sfn gone old; ln -s sub folder; "
        "printf '#!/bin/sh\\n' > run.sh; chmod +x run.sh; mkdir -p out/deep __pycache__; echo > out/deep/o; "
        "echo > __pycache__/p; echo > ignored; mkfifo pipe; echo more >> kept.txt"
    )

    def act(seen: Seen) -> list[Step]:
        return [call("shell", command=command)] if not seen.outputs else [say("Done.")]

    async def run() -> None:
        async with stage(tmp_path, act) as scene:
            await over(scene, await scene.agent.background("go"))
            found = scene.agent.workers()[0]
            assert "it is no file: ignored, out/, pipe" in found.note, found
            assert "out/" in scene.of(WorkerChanged)[-1].note
            diff = await scene.agent.preview_worker("worker-1")
            assert "a.txt: mode 600 before, 711 after" in diff and "run.sh: mode 755" in diff
            assert "b.txt: a file of 2 bytes before, a link to a.txt after" in diff
            assert "old: a link to sub before, a link to gone after" in diff
            paths = await scene.agent.accept_worker("worker-1")
            assert paths == ("a.txt", "b.txt", "folder", "kept.txt", "old", "run.sh")
            assert (root / "a.txt").stat().st_mode & 0o777 == 0o711 and (root / "run.sh").stat().st_mode & 0o111
            assert [str((root / name).readlink()) for name in ("b.txt", "old", "folder")] == ["a.txt", "gone", "sub"]
            assert await scene.agent.preview_worker("worker-1") == ""
            await scene.agent.undo()
            assert (root / "a.txt").stat().st_mode & 0o777 == 0o600 and (root / "b.txt").read_text() == "x\n"
            assert str((root / "old").readlink()) == "sub" and not (root / "run.sh").exists()

    play(run)


def test_a_link_or_a_folder_in_the_place_of_a_file_is_a_conflict(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "folder").symlink_to("other")
    (tmp_path / "link").symlink_to("other/x")
    (tmp_path / "dir").mkdir()
    changes = [
        FileChange("folder/a", None, b"a\n"),
        FileChange("link", b"1\n", b"2\n"),
        FileChange("dir", b"1\n", b"2\n"),
        FileChange("link", b"other/y", b"other/z", LINK, LINK),
    ]
    assert all(merge.conflict for merge in merge_all(tmp_path, changes))
    fine = merge_all(tmp_path, [FileChange("link", b"other/x", None, 0, LINK)])
    landing.land(tmp_path, fine)
    assert not (tmp_path / "link").is_symlink()


@pytest.mark.parametrize(
    ("now", "before", "after", "merged"),
    [
        (b"1\n2\n3\n", b"1\n2\n3\n", b"1\n2\n4\n", b"1\n2\n4\n"),
        (b"0\n2\n3\n", b"1\n2\n3\n", b"1\n2\n4\n", b"0\n2\n4\n"),
        (b"1\n2\n4\n", b"1\n2\n3\n", b"1\n2\n4\n", b"1\n2\n4\n"),
        (b"1\n2\n5\n", b"1\n2\n3\n", b"1\n2\n4\n", None),
        (None, b"1\n", b"2\n", None),
        (b"2\n", b"1\n", None, None),
        (b"1\n", b"1\n", None, "gone"),
        (None, None, b"1\n", b"1\n"),
        (b"mine\n", None, b"theirs\n", None),
        (b"\xff\x00", b"1\n", b"2\n", None),
    ],
)
def test_a_three_way_merge_never_copies_over(
    tmp_path: Path, now: bytes | None, before: bytes | None, after: bytes | None, merged: bytes | str | None
) -> None:
    if now is not None:
        (tmp_path / "f").write_bytes(now)
    found = merge_all(tmp_path, [FileChange("f", before, after)])
    if merged is None:
        assert found[0].conflict
    elif merged == "gone":
        assert found[0].merged is None and not found[0].conflict
    else:
        assert (found[0].merged if found else now) == merged

"""What a turn says that it changed is its own work, also where others change files of the workspace meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent.turns.stage import Seen, call, play, say, stage, whole
from vivace.agent.checkpoints import CheckpointStore
from vivace.agent.turns.events import TurnBegan
from vivace.backends.paced_script import Step
from vivace.errors import VivaceError

OLD, NEW = "def f():\n    return 1\n", "def f():\n    return 3\n"


def test_a_fast_turn_does_not_take_the_work_of_others_for_its_own(tmp_path: Path) -> None:
    root = tmp_path / "work"
    root.mkdir()
    (root / "a.py").write_text(OLD)
    (root / "other.py").write_text(OLD)

    def act(seen: Seen) -> list[Step]:
        (root / "other.py").write_text(NEW)
        (root / "new.py").write_text(NEW)
        return [whole(NEW)]

    async def run() -> None:
        async with stage(tmp_path, act, mode="fast") as scene:
            ended = await scene.turn("let f return 3 in a.py")
            assert (ended.status, ended.changed) == ("done", ("a.py",))
            await scene.agent.undo()
            assert (root / "a.py").read_text() == OLD

    play(run)


def test_a_deep_turn_tells_what_its_tools_and_commands_changed(tmp_path: Path) -> None:
    root = tmp_path / "work"
    root.mkdir()
    (root / "other.py").write_text(OLD)
    steps = [
        call("shell", command="echo hi > made.txt"),
        call("write", path="b.py", content="x = 1\n"),
        call("shell", command="cat other.py"),
    ]

    def act(seen: Seen) -> list[Step]:
        (root / "other.py").write_text(f"{len(seen.outputs)}\n")
        return [steps[len(seen.outputs)]] if len(seen.outputs) < len(steps) else [say("ok")]

    async def run() -> None:
        async with stage(tmp_path, act) as scene:
            ended = await scene.turn("go")
            assert (ended.status, set(ended.changed)) == ("done", {"made.txt", "b.py"})
            ended = await scene.turn("go again")
            assert ended.changed == ()

    play(run)


def test_a_job_may_have_changed_anything(tmp_path: Path) -> None:
    root = tmp_path / "work"
    root.mkdir()
    (root / "other.py").write_text(OLD)

    def act(seen: Seen) -> list[Step]:
        if not seen.outputs:
            return [call("shell", command="sleep 0.2; echo hi > made.txt", background=True)]
        if len(seen.outputs) == 1:
            return [call("jobs", do="wait", job="job-1", seconds=5)]
        return [say("ok")]

    async def run() -> None:
        async with stage(tmp_path, act) as scene:
            assert (await scene.turn("go")).changed == ("made.txt",)

    play(run)


def test_a_turn_that_cannot_begin_has_an_end_that_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise VivaceError("the disk is full", code="disk_full")

    async def run() -> None:
        async with stage(tmp_path, lambda seen: [say("never")]) as scene:
            monkeypatch.setattr(CheckpointStore, "take", full)
            ended = await scene.turn("go")
            assert (ended.status, ended.reason) == ("failed", "the disk is full")
            assert not scene.of(TurnBegan) and scene.agent.idle

    play(run)

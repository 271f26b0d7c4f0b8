"""What is kept of edits for a later fine-tuning: what stands is accepted, and what does not is said to be refused."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.agent.turns.stage import Seen, call, play, say, stage, whole
from tests.agent.turns.test_fast import DOC, THREE
from vivace.agent.turns.kept_edits import read_kept
from vivace.backends.paced_script import Step


@pytest.fixture
def work(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    root.mkdir()
    (root / "a.py").write_text(DOC + "def f():\n    return 1\n\n\ndef g():\n    return 2\n")
    return root


@pytest.mark.parametrize("how", ["edit", "shell"])
def test_a_quick_answer_that_the_deep_mode_changes_is_kept_as_replaced(tmp_path: Path, work: Path, how: str) -> None:
    def act(seen: Seen) -> list[Step]:
        if not seen.tools:
            return [whole(THREE.replace("return 3", "return 4"))]
        if not seen.outputs:
            return [call("read", path="a.py")]
        if len(seen.outputs) == 1 and how == "edit":
            return [call("edit", path="a.py", edits=[{"search": "    return 4", "replace": "    return 3"}])]
        return [call("shell", command="sed -i s/4/3/ a.py")] if len(seen.outputs) == 1 else [say("Now 3.")]

    async def run() -> None:
        async with stage(tmp_path, act, mode="auto", weak=False) as scene:
            await scene.turn("let f return 3 in a.py")
            assert (work / "a.py").read_text() == THREE
            kept = read_kept(tmp_path / "state")
            by_tool = [(True, "applied")] if how == "edit" else []
            assert [(edit.accepted, edit.reason) for edit in kept] == [(True, "applied"), *by_tool, (False, "replaced")]
            assert "return 4" in kept[-1].after and kept[-1].instruction == "let f return 3 in a.py"
            await scene.agent.undo()
            undone = read_kept(tmp_path / "state")[len(kept) :]
            assert [(edit.accepted, edit.reason) for edit in undone] == [(False, "undone")] * len(by_tool)

    play(run)


def test_an_answer_that_is_taken_back_and_put_back_is_kept_as_accepted(tmp_path: Path, work: Path) -> None:
    numbers = itertools.count(5)

    def act(seen: Seen) -> list[Step]:
        return [whole(THREE.replace("return 3", f"return {next(numbers)}"))]

    async def run() -> None:
        async with stage(tmp_path, act, mode="auto", weak=True, candidates=1) as scene:
            await scene.turn("let f return 3 in a.py")
            assert "return 5" in (work / "a.py").read_text()
            last = {edit.after: edit for edit in read_kept(tmp_path / "state")}
            assert len(last) > 1 and [edit.after for edit in last.values() if edit.accepted] == [
                (work / "a.py").read_text()
            ]

    play(run)


def test_what_tools_edit_is_kept_and_disowned_when_it_is_undone(tmp_path: Path) -> None:
    root = tmp_path / "work"
    root.mkdir()
    (root / "a.py").write_text("x = 1\n")
    steps = [
        call("read", path="a.py"),
        call("edit", path="a.py", edits=[{"search": "x = 1", "replace": "x = 2"}]),
        call("edit", path="a.py", edits=[{"search": "x = 9", "replace": "x = 3"}]),
        call("write", path="new.py", content="y = 1\n"),
        call("write", path="new.py", content="y = 2\n", replace=True),
        call("rewrite", path="a.py", instruction="set x to 4"),
        call("shell", command="echo z = 1 > z.py"),
    ]

    def act(seen: Seen) -> list[Step]:
        if not seen.tools:
            return [Step(text="```python\nx = 4\n```")]
        return [steps[len(seen.outputs)]] if len(seen.outputs) < len(steps) else [say("done")]

    async def work() -> None:
        async with stage(tmp_path, act) as scene:
            await scene.turn("set things")
            kept = read_kept(tmp_path / "state")
            assert [(edit.path, edit.before, edit.after, edit.instruction) for edit in kept] == [
                ("a.py", "x = 1\n", "x = 2\n", "set things"),
                ("new.py", "", "y = 1\n", "set things"),
                ("new.py", "y = 1\n", "y = 2\n", "set things"),
                ("a.py", "x = 2\n", "x = 4\n", "set x to 4"),
            ]
            assert {(edit.accepted, edit.reason, edit.language) for edit in kept} == {(True, "applied", "python")}
            assert all(edit.diff.count("\n+") > 1 for edit in kept) and {edit.model for edit in kept} == {"acting"}
            await scene.agent.undo()
            undone = read_kept(tmp_path / "state")[4:]
            assert [(edit.path, edit.accepted, edit.reason) for edit in undone] == [
                (edit.path, False, "undone") for edit in kept
            ]

    play(work)

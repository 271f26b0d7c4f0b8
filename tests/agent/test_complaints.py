"""What users of other agents complain about, as whole conversations; docs/agent.md lists the tests of all of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.agent.turns.stage import Seen, Stage, call, play, say, stage, whole
from vivace.agent.turns.events import Applied, Asked, Noted, Proposed, ToolEnded
from vivace.backends.paced_script import Step

HERE = Path(__file__).resolve().parents[2]
NAMED = re.compile(r"`(tests/[\w/]+\.py)?::(test_\w+)`")


def test_every_complaint_has_a_test_that_is_there() -> None:
    section = (HERE / "docs" / "agent.md").read_text().split("## What users complain about")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if re.match(r"\| \d+ \|", line)]
    assert [int(row.split("|")[1]) for row in rows] == list(range(1, 28))
    for row in rows:
        found = NAMED.findall(row)
        assert found and found[0][0], row
        file = ""
        for given, name in found:
            file = given or file
            assert f"def {name}(" in (HERE / file).read_text(), f"{file}::{name}"


def work_in(base: Path, **files: str) -> Path:
    root = base / "work"
    root.mkdir()
    for name, text in files.items():
        (root / name.replace("_py", ".py")).write_text(text)
    return root


def test_a_background_job_belongs_to_the_conversation_not_to_the_turn(tmp_path: Path) -> None:
    work_in(tmp_path)

    def act(seen: Seen) -> list[Step]:
        if seen.user == "start":
            return [call("shell", command="sleep 0.3; echo it is built; sleep 60", background=True)]
        if seen.user == "look":
            return [call("jobs", do="wait", job="job-1", seconds=1.0)]
        return [say("ok")]

    async def work() -> None:
        async with stage(tmp_path, act) as scene:
            await scene.turn("start")
            assert scene.agent.desk is not None
            job = scene.agent.desk.context.processes.job("job-1")
            scene.agent.say("wait")
            await scene.agent.stop()
            assert job.state == "running"
            await scene.turn("look")
            assert "it is built" in scene.seen[-1].outputs[-1]
        assert job.state != "running"

    play(work)


@pytest.mark.parametrize("cap", [12])
def test_an_edit_that_never_matches_is_shown_the_real_lines_and_ends(tmp_path: Path, cap: int) -> None:
    """It burns no tokens for ever: the error has the nearest lines, then another way to edit, then an end."""
    root = work_in(tmp_path, a_py="def total(rows):\n    return sum(row.price for row in rows)\n")

    def act(seen: Seen) -> list[Step]:
        if not seen.outputs:
            return [call("read", path="a.py")]
        wrong = f"    return sum(r.price for r in rows)  # {len(seen.outputs)}"
        return [call("edit", path="a.py", edits=[{"search": wrong, "replace": "    return 0"}])]

    async def work() -> None:
        async with stage(tmp_path, act) as scene:
            ended = await scene.turn("return 0")
            assert ended.status == "limit" and ended.changed == ()
            assert len(scene.of(ToolEnded)) <= cap
            assert all("return sum(row.price for row in rows)" in text for text in scene.seen[-1].outputs[1:])
            assert any("Use rewrite" in text for text in scene.seen[-1].users)

    play(work)
    assert "sum(row.price" in (root / "a.py").read_text()


def test_what_the_user_saved_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    root = work_in(tmp_path, a_py="x = 1\ny = 2\n")

    def act(seen: Seen) -> list[Step]:
        steps = [
            [call("read", path="a.py")],
            [call("edit", path="a.py", edits=[{"search": "y = 2", "replace": "y = 3"}])],
            [call("read", path="a.py")],
            [call("edit", path="a.py", edits=[{"search": "y = 2", "replace": "y = 3"}])],
            [call("edit", path="a.py", edits=[{"search": "y = 3", "replace": "y = 3"}])],
            [say("y is 3.")],
        ]
        if len(seen.outputs) == 1:
            (root / "a.py").write_text("x = 1\n# mine\ny = 2\n")
        return steps[len(seen.outputs)]

    async def work() -> None:
        async with stage(tmp_path, act) as scene:
            await scene.turn("let y be 3")
            ends = scene.of(ToolEnded)
            assert [end.ok for end in ends] == [True, False, True, True, False]
            assert "changed" in ends[1].text and "read" in ends[1].text.lower()
            assert (root / "a.py").read_text() == "x = 1\n# mine\ny = 3\n"
            assert not ends[4].changed  # the same text again is no success

    play(work)


def test_a_comment_that_is_put_in_again_and_again_does_not_pile_up(tmp_path: Path) -> None:
    text = "x = 1\n# The end of the settings, keep it.\n"
    root = work_in(tmp_path, a_py=text)

    def act(seen: Seen) -> list[Step]:
        if not seen.outputs:
            return [call("read", path="a.py")]
        if len(seen.outputs) > 6:
            return [say("ok")]
        again = {"search": "x = 1\n", "replace": "x = 1\n# The end of the settings, keep it.\n"}
        return [call("edit", path="a.py", edits=[again])]

    async def work() -> None:
        async with stage(tmp_path, act) as scene:
            await scene.turn("go")
            assert not any(end.ok for end in scene.of(ToolEnded)[1:])

    play(work)
    assert (root / "a.py").read_text() == text


def test_a_whole_file_that_is_written_anew_is_shown_and_stored_as_the_lines_that_changed(tmp_path: Path) -> None:
    lines = [f"def f{n}():\n    # Reason {n}.\n    return {n}\n\n\n" for n in range(8)]
    root = work_in(tmp_path, a_py="".join(lines))
    changed = list(lines)
    changed[4] = "def f4():\n    return 41\n\n\n"

    async def work() -> None:
        async with stage(tmp_path, lambda seen: [whole("".join(changed))], mode="fast", candidates=1) as scene:
            ended = await scene.turn("let f4 return 41 in a.py")
            assert ended.status == "done", ended
            proposed = scene.of(Proposed)[-1]
            assert (proposed.added, proposed.removed) == (1, 2) and len(proposed.diff.splitlines()) < 16
            assert "Reason 4" in proposed.diff
            assert (root / "a.py").read_text() == "".join(changed)
            entries = scene.agent.conversation.path_of_file.read_text()
            assert "return 41" in entries and "Reason 6" not in entries

    play(work)


def test_one_approval_is_enough_whatever_stands_before_the_command(tmp_path: Path) -> None:
    work_in(tmp_path)

    def act(seen: Seen) -> list[Step]:
        commands = ["make check", "CI=1 make check fast", "timeout 60 make check slow", "git commit -m x"]
        return [call("shell", command=commands[len(seen.outputs)])] if len(seen.outputs) < 4 else [say("ok")]

    async def work() -> None:
        async with stage(tmp_path, act, approvals="ask") as scene:
            scene.on_event = lambda event: answer(scene, event)
            await scene.turn("go")
            asked = [event.text for event in scene.of(Asked)]
            assert len(asked) == 2 and "make check" in asked[0] and "git commit" in asked[1]

    def answer(scene: Stage, event: object) -> None:
        if isinstance(event, Asked):
            wanted = next((key for key, _ in event.choices if key == "prefix"), "once")
            scene.agent.answer(event.ask, wanted if "make" in event.text else "no")

    play(work)


def test_an_answer_that_was_cut_off_is_never_applied_in_the_fast_mode(tmp_path: Path) -> None:
    text = "x = 1\ny = 2\nz = 3\n"
    root = work_in(tmp_path, a_py=text)

    async def work() -> None:
        async with stage(tmp_path, lambda seen: [say("```python\nx = 1\ny = 5\n")], mode="fast", candidates=1) as scene:
            ended = await scene.turn("let y be 5 in a.py")
            assert ended.status == "failed" and not scene.of(Applied)

    play(work)
    assert (root / "a.py").read_text() == text


def test_success_is_never_said_of_a_file_that_is_not_there(tmp_path: Path) -> None:
    work_in(tmp_path)

    def act(seen: Seen) -> list[Step]:
        if not seen.outputs:
            return [call("edit", path="gone.py", edits=[{"search": "a", "replace": "b"}])]
        return [say("I have changed gone.py.")]

    async def work() -> None:
        async with stage(tmp_path, act) as scene:
            ended = await scene.turn("go")
            assert ended.changed == () and not scene.of(ToolEnded)[0].ok
            assert not any(isinstance(event, Noted) and "gone.py" in event.text for event in scene.events)

    play(work)

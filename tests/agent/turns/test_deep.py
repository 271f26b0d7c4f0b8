"""The deep mode: what is whole is run, what is cut off is not; limits hold; nothing is read in circles."""

from __future__ import annotations

import asyncio
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.agent.turns.stage import Seen, Stage, call, play, say, stage
from vivace.agent.sessions import Compaction
from vivace.agent.turns.events import (
    Asked,
    CheckpointTaken,
    Meters,
    Noted,
    PlanChanged,
    ToolBegan,
    ToolEnded,
    ToolOutput,
    TurnEnded,
)
from vivace.agent.turns.limits import Limits
from vivace.backends.paced import Pace
from vivace.backends.paced_script import Step
from vivace.errors import UsageError


def test_a_truncated_call_is_never_executed(tmp_path: Path) -> None:
    """Interrupting while an edit streams applies half of it, file deleted: cline/cline#9165."""
    (tmp_path / "work").mkdir()
    file = tmp_path / "work" / "a.py"
    file.write_text("whole = True\n")

    def act(seen: Seen) -> list[Step]:
        if seen.user != "go":
            return [say("ok")]
        content = "x = 1\n" * 4000
        return [Step(call="write", arguments={"path": "a.py", "content": content, "replace": True}, pause=0.002)]

    async def work() -> None:
        async with stage(tmp_path, act) as scene:
            scene.agent.say("go")
            while not scene.backend.runs:
                await asyncio.sleep(0.002)
            await asyncio.sleep(0.2)
            await scene.agent.stop()
            assert file.read_text() == "whole = True\n"
            assert not scene.of(ToolBegan)
            await scene.turn("on")
            assert scene.of(TurnEnded)[-1].status == "done"

    play(work)


def test_a_call_that_a_limit_cut_is_not_run_and_the_model_is_told(tmp_path: Path) -> None:
    def act(seen: Seen) -> list[Step]:
        if seen.user == "go":
            return [Step(call="write", arguments='{"path": "a.py", "content": "x')]
        return [say("I see.")]

    async def work() -> None:
        async with stage(tmp_path, act) as scene:
            ended = await scene.turn("go")
            assert not scene.of(ToolBegan) and not (tmp_path / "work" / "a.py").exists()
            assert ended.status == "done"

    play(work)


def test_undo_after_a_turn_restores_files_and_context(tmp_path: Path) -> None:
    """Undone code still in context, only messages reverted, edits through Bash not tracked: openai/codex#9203,
    anomalyco/opencode#27664, anthropics/claude-code#94657."""
    (tmp_path / "work" / "sub").mkdir(parents=True)
    (tmp_path / "work" / "a.py").write_text("one\n")
    (tmp_path / "work" / "sub" / "b.py").write_text("two\n")

    def act(seen: Seen) -> list[Step]:
        if seen.user == "go":
            return [
                call("shell", command="mv sub/b.py c; echo secretword > a.py; mkdir new; touch new/c; chmod 600 a.py")
            ]
        return [say("done with secretword")]

    async def work() -> None:
        async with stage(tmp_path, act) as scene:
            root = tmp_path / "work"
            before = look(root)
            await scene.turn("go")
            after = look(root)
            assert after != before
            await scene.agent.undo()
            assert look(root) == before
            await scene.turn("next")
            assert "secretword" not in scene.seen[-1].text
            with pytest.raises(UsageError, match="redo"):
                await scene.agent.redo()
            await scene.agent.undo()
            await scene.agent.redo()
            assert any(getattr(entry.data, "text", "") == "next" for entry in scene.agent.conversation.path())
            first = scene.agent.checkpoints()[-1]
            await scene.agent.go_to(first.id)
            assert look(root) == before

    play(work)


def look(root: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(root)): (path.stat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in sorted(root.rglob("*"))
    }


def test_destructive_git_asks_in_every_mode(tmp_path: Path) -> None:
    """Unasked ``git reset --hard``: google-gemini/gemini-cli#5352, anthropics/claude-code#4541."""
    root = tmp_path / "work"
    root.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    (root / "mine.txt").write_text("uncommitted\n")
    subprocess.run(["git", "add", "."], cwd=root, check=True)

    def act(seen: Seen) -> list[Step]:
        if not seen.outputs:
            return [call("shell", command="git reset --hard"), call("shell", command="rm -rf ."), say("ok")]
        return [say("as you wish")]

    async def work() -> None:
        async with stage(tmp_path, act, approvals="full") as scene:
            scene.agent.say("clean")
            asked = await scene.until(Asked)
            assert asked.kind == "approval" and "git reset --hard" in asked.text
            scene.agent.answer(asked.ask, "no: I have work there")
            asked = await scene.until(Asked, count=2)
            scene.agent.answer(asked.ask, "no")
            await scene.until(TurnEnded)
            assert (root / "mine.txt").read_text() == "uncommitted\n"
            assert "I have work there" in scene.seen[1].outputs[0]

    play(work)


def test_an_approval_that_is_open_gives_way_to_a_new_message(tmp_path: Path) -> None:
    def act(seen: Seen) -> list[Step]:
        return [call("shell", command="git reset --hard")] if not seen.outputs else [say("fine")]

    async def work() -> None:
        async with stage(tmp_path, act) as scene:
            scene.agent.say("go")
            await scene.until(Asked)
            scene.agent.say("rather not", "steer")
            assert (await scene.until(TurnEnded)).status == "done"
            assert scene.agent.asks == []
            assert scene.seen[1].users[-1] == "rather not"
            assert "not approved" in scene.seen[1].outputs[0]

    play(work)


def test_questions_of_the_model_are_asked_and_answered(tmp_path: Path) -> None:
    def act(seen: Seen) -> list[Step]:
        return [call("ask", question="Which?", options=["red", "blue"])] if not seen.outputs else [say("ok")]

    async def work() -> None:
        async with stage(tmp_path, act) as scene:
            scene.agent.say("paint")
            asked = await scene.until(Asked)
            assert asked.choices == (("1", "red"), ("2", "blue"))
            scene.agent.answer(asked.ask, "2")
            await scene.until(TurnEnded)
            assert seen_last(scene).outputs == ["The user answers: blue"]

    play(work)


def seen_last(scene: Stage) -> Seen:
    return scene.seen[-1]


@pytest.mark.parametrize(
    ("limits", "says"),
    [(Limits(steps=4), "4 steps"), (Limits(tokens=1500), "tokens"), (Limits(seconds=0.05), "seconds")],
)
def test_limits_end_the_turn_with_their_name(tmp_path: Path, limits: Limits, says: str) -> None:
    def act(seen: Seen) -> list[Step]:
        return [call("shell", command=f"echo {len(seen.outputs)}")]

    async def work() -> None:
        async with stage(tmp_path, act, limits=limits) as scene:
            ended = await scene.turn("for ever")
            assert ended.status == "limit" and says in ended.reason
            assert not scene.agent.unfinished

    play(work)


def test_a_model_that_walks_in_circles_is_ended(tmp_path: Path) -> None:
    """Tokens burnt unseen, loops eat the quota: anthropics/claude-code#94013, #72080."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.py").write_text("x\n")

    def act(seen: Seen) -> list[Step]:
        return [call("read", path="a.py")]

    async def work() -> None:
        async with stage(tmp_path, act) as scene:
            ended = await scene.turn("go")
            assert ended.status == "limit"
            assert len(scene.of(ToolEnded)) <= 10
            assert any("same result" in text or "shown before" in text for text in scene.seen[-1].users)

    play(work)


def test_success_is_what_is_on_the_disk(tmp_path: Path) -> None:
    """The model prints a call as text, no file is written, success is shown: opencode#7030, #590."""

    def act(seen: Seen) -> list[Step]:
        return [say('```json\n{"name": "write", "arguments": {"path": "a.py", "content": "x"}}\n```\nWritten!')]

    async def work() -> None:
        async with stage(tmp_path, act) as scene:
            assert (await scene.turn("write a.py")).changed == ()

    play(work)


def test_what_commands_change_is_told(tmp_path: Path) -> None:
    def act(seen: Seen) -> list[Step]:
        return [call("shell", command="echo hi | tee made.txt")] if not seen.outputs else [say("ok")]

    async def work() -> None:
        async with stage(tmp_path, act) as scene:
            ended = await scene.turn("go")
            assert ended.changed == ("made.txt",)
            assert "".join(event.text for event in scene.of(ToolOutput)).strip() == "hi"
            assert [event.label for event in scene.of(CheckpointTaken)] == ["go", "shell echo hi | tee made.txt"]
            assert scene.of(Meters)[-1].ttft is not None

    play(work)


def test_the_plan_is_shown(tmp_path: Path) -> None:
    def act(seen: Seen) -> list[Step]:
        steps = [{"step": "look", "state": "done"}, {"step": "act", "state": "active"}]
        return [call("plan", steps=steps)] if not seen.outputs else [say("ok")]

    async def work() -> None:
        async with stage(tmp_path, act) as scene:
            await scene.turn("go")
            assert scene.of(PlanChanged)[0].steps == (("look", "done"), ("act", "active"))

    play(work)


def test_a_chain_that_is_gone_is_sent_again_once(tmp_path: Path) -> None:
    def act(seen: Seen) -> list[Step]:
        return [call("shell", command="echo one")] if not seen.outputs else [say("ok")]

    async def work() -> None:
        async with stage(tmp_path, act) as scene:
            await scene.turn("first")
            assert scene.agent.desk is not None and scene.agent.desk.chain is not None
            gateway: Any = scene.agent.service
            gateway.chains.drop(scene.agent.desk.chain.response)
            ended = await scene.turn("second")
            assert ended.status == "done"
            assert scene.seen[-1].users == ["first", "second"]
            assert scene.seen[-1].outputs == ["[exit code 0]\none"]

    play(work)


def test_a_busy_server_is_asked_again_and_a_broken_request_is_not(tmp_path: Path) -> None:
    tries = 0

    def act(seen: Seen) -> list[Step]:
        nonlocal tries
        tries += 1
        if seen.user == "bad":
            return [Step(error="invalid_request_error", message="no such thing")]
        return [Step(error="rate_limit_exceeded", message="slow down")] if tries == 1 else [say("ok")]

    async def work() -> None:
        async with stage(tmp_path, act) as scene:
            assert (await scene.turn("go")).status == "done"
            assert tries == 2
            ended = await scene.turn("bad")
            assert ended.status == "failed" and "no such thing" in ended.reason

    play(work)


def test_compaction_keeps_what_was_learned_and_reads_nothing_again(tmp_path: Path) -> None:
    """An endless round of read, compact, read again: openai/codex#13279."""
    (tmp_path / "work").mkdir()
    for n in range(12):
        (tmp_path / "work" / f"f{n}.py").write_text("".join(f"value_{n}_{k} = {k}\n" for k in range(60)))

    def act(seen: Seen) -> list[Step]:
        if seen.compacts:
            return [say("The user wants the sum of all values; f0 to f2 were looked at.")]
        for n in range(12):
            if (
                f"f{n}.py: lines 1-60" not in seen.text
                and f"f{n}.py was read" not in seen.text
                and (f"Text of f{n}.py" not in seen.text)
            ):
                return [call("read", path=f"f{n}.py")]
        return [say("I know them all.")]

    async def work() -> None:
        async with stage(tmp_path, act, window=4_400) as scene:
            ended = await scene.turn("Add up all values. Do not touch f3.py.")
            assert ended.status == "done"
            reads = [event.brief for event in scene.of(ToolBegan)]
            assert sorted(reads) == sorted(f"f{n}.py" for n in range(12))
            found = [entry.data for entry in scene.agent.conversation.path() if isinstance(entry.data, Compaction)]
            assert found and "Do not touch f3.py." in "\n".join(found[-1].facts)
            assert any("sum of all values" in text for text in scene.seen[-1].users)
            assert any("shortened" in event.text for event in scene.of(Noted))

    play(work)


def test_compaction_without_a_summary_keeps_the_facts(tmp_path: Path) -> None:
    """The model that should summarise fails on its window: openai/codex#11641."""

    def act(seen: Seen) -> list[Step]:
        if seen.compacts:
            return [Step(error="server_error", message="out of memory")]
        shown = "\n".join([*seen.outputs, *seen.users])
        done = max((int(n) for n in re.findall(r"counted (\d+)\.", shown)), default=0)
        if done < 20:
            return [call("shell", command=f"seq 120; echo counted {done + 1}.")]
        return [say("ok")]

    async def work() -> None:
        async with stage(tmp_path, act, window=4_400) as scene:
            ended = await scene.turn("count, and remember the milk")
            assert ended.status == "done"
            assert any(isinstance(entry.data, Compaction) for entry in scene.agent.conversation.path())
            await scene.turn("what did I say?")
            assert "remember the milk" in scene.seen[-1].text

    play(work)


def test_a_fork_goes_on_without_the_old_conversation(tmp_path: Path) -> None:
    async def work() -> None:
        async with stage(tmp_path, lambda seen: [say("ok")]) as scene:
            await scene.turn("one")
            old = scene.agent.conversation.id
            new = await scene.agent.fork()
            assert new != old and scene.agent.conversation.id == new
            await scene.turn("two")
            assert scene.seen[-1].users == ["one", "two"]
            assert scene.agent.conversation.header.forked_from == (old, scene.agent.conversation.header.forked_from[1])

    play(work)


def test_rules_of_the_project_are_told_and_those_of_a_folder_when_it_is_entered(tmp_path: Path) -> None:
    root = tmp_path / "work"
    (root / "sub").mkdir(parents=True)
    (root / "AGENTS.md").write_text("Use tabs.\n")
    (root / "CLAUDE.md").write_text("Not this.\n")
    (root / "sub" / "CLAUDE.md").write_text("Use spaces here.\n")
    (root / "sub" / "a.py").write_text("x\n")

    def act(seen: Seen) -> list[Step]:
        return [call("read", path="sub/a.py")] if not seen.outputs else [say("ok")]

    async def work() -> None:
        async with stage(tmp_path, act) as scene:
            await scene.turn("go")
            assert "Use tabs." in scene.seen[0].text and "Not this." not in scene.seen[0].text
            assert "Use spaces here." not in scene.seen[0].text
            assert "Use spaces here." in scene.seen[1].text

    play(work)


def test_the_rewrite_tool_changes_a_file_from_a_description(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.py").write_text("x = 1\n")

    def act(seen: Seen) -> list[Step]:
        if "updated file" in seen.user:
            return [Step(text="```python\nx = 5\n```")]
        return [call("rewrite", path="a.py", instruction="set x to 5")] if not seen.outputs else [say("ok")]

    async def work() -> None:
        async with stage(tmp_path, act) as scene:
            ended = await scene.turn("go")
            assert ended.changed == ("a.py",)
            assert (tmp_path / "work" / "a.py").read_text() == "x = 5\n"

    play(work)


def test_a_slow_model_shows_its_measured_speed(tmp_path: Path) -> None:
    """ "Fast" that feels like 5 tok/s: openai/codex#24549, #45313."""

    async def work() -> None:
        async with stage(tmp_path, lambda seen: [Step(tokens=60)], pace=Pace(tok_s=300, ttft=0.05)) as scene:
            await scene.turn("talk")
            meters = scene.of(Meters)[-1]
            assert meters.ttft is not None and meters.ttft >= 0.05
            assert meters.tokens_per_second == pytest.approx(300, rel=0.25)

    play(work)


def test_the_map_of_the_repository_is_shown_once(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "engine.py").write_text("class Motor:\n    def start(self):\n        pass\n")

    async def work() -> None:
        async with stage(tmp_path, lambda seen: [say("ok")]) as scene:
            await scene.turn("make the Motor start faster")
            await scene.turn("and stop")
            assert scene.seen[0].text.count("class Motor") == 1
            assert scene.seen[1].text.count("class Motor") == 1

    play(work)

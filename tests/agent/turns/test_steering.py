"""Three verbs, and what users of other agents complain about: messages that vanish, wait, kill, or come twice."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path

import pytest

from tests.agent.turns.stage import Seen, Stage, call, play, say, stage, whole
from vivace.agent.turns.events import MessageChanged, Said, ToolBegan, ToolEnded, TurnEnded
from vivace.agent.turns.history import INTERRUPTED, NOT_RUN
from vivace.backends.paced import Pace
from vivace.backends.paced_script import Step
from vivace.errors import UsageError

SLOW = Pace(tok_s=200, ttft=0.01)


def living(group: int) -> list[int]:
    """Processes of the group that are not dead and only waiting to be buried."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                state, _, its_group = (entry / "stat").read_text().rsplit(")", 1)[1].split()[:3]
                if int(its_group) == group and state not in "ZX":
                    found.append(int(entry.name))
    return found


def states(scene: Stage, number: int) -> list[str]:
    return [event.state for event in scene.of(MessageChanged) if event.number == number]


def test_every_accepted_message_has_a_visible_state(tmp_path: Path) -> None:
    """Messages sent during work vanish, neither steered nor queued: openai/codex#34599."""

    def act(seen: Seen) -> list[Step]:
        return [call("shell", command="sleep 0.2")] if len(seen.outputs) < 1 else [say("ok")]

    async def work() -> None:
        async with stage(tmp_path, act) as scene:
            scene.agent.say("first")
            await scene.until(ToolBegan)
            steer, queue = scene.agent.say("also this", "steer"), scene.agent.say("then this", "queue")
            assert (steer.state, queue.state) == ("queued", "queued")
            await scene.agent.wait_idle()
            for number in (1, 2, 3):
                assert states(scene, number) == ["queued", "sent", "delivered"]
            assert len(scene.of(TurnEnded)) == 2
            assert any("also this" in text for text in scene.seen[1].users)

    play(work)


def test_a_steer_while_the_turn_unwinds_is_answered(tmp_path: Path) -> None:
    """Accepted, never delivered until Esc, a race as the turn unwinds: Yeachan-Heo/gajae-code#4739."""
    asked: list[str] = []

    def act(seen: Seen) -> list[Step]:
        asked.append(seen.user)
        return [say("done")]

    async def work() -> None:
        async with stage(tmp_path, act) as scene:
            spoken = False

            def at_the_end(event: object) -> None:
                nonlocal spoken
                if isinstance(event, TurnEnded) and not spoken:
                    spoken = True
                    scene.agent.say("one more", "steer")

            scene.on_event = at_the_end
            await scene.turn("first")
            await scene.until(TurnEnded, count=2)
            assert asked == ["first", "one more"]
            assert states(scene, 2)[-1] == "delivered"

    play(work)


def test_a_steer_does_not_wait_for_a_long_command_that_is_interrupted(tmp_path: Path) -> None:
    """Answered after 35.2 s because a tool ran: pingdotgg/t3code#12541."""

    def act(seen: Seen) -> list[Step]:
        return [call("shell", command="echo begun; sleep 60")] if not seen.outputs else [say("as you say")]

    async def work() -> None:
        async with stage(tmp_path, act) as scene:
            scene.agent.say("run it")
            await scene.until(ToolBegan)
            await asyncio.sleep(0.2)
            began = time.perf_counter()
            scene.agent.say("never mind", "steer")
            assert await scene.agent.interrupt()
            ended = await scene.until(TurnEnded)
            assert time.perf_counter() - began < 2.0
            assert ended.status == "done"
            assert "interrupted by the user" in scene.seen[1].outputs[0]
            assert "begun" in scene.seen[1].outputs[0]
            assert scene.seen[1].users[-1] == "never mind"

    play(work)


def test_a_steer_keeps_the_work_that_was_done(tmp_path: Path) -> None:
    """ "Send now" kills the turn instead of steering it: getpaseo/paseo#4061."""

    def act(seen: Seen) -> list[Step]:
        if not seen.outputs:
            return [call("write", path="one.txt", content="1\n"), call("shell", command="sleep 0.3; echo slept")]
        return [say("I have both.")]

    async def work() -> None:
        async with stage(tmp_path, act) as scene:
            scene.agent.say("do one and two")
            await scene.until(ToolBegan, count=2)
            scene.agent.say("and mind the gap", "steer")
            ended = await scene.until(TurnEnded)
            assert ended.status == "done" and len(scene.of(TurnEnded)) == 1
            assert (tmp_path / "work" / "one.txt").read_text() == "1\n"
            assert "slept" in scene.seen[1].outputs[1]

    play(work)


def test_calls_that_were_not_begun_are_not_run_after_a_steer(tmp_path: Path) -> None:
    def act(seen: Seen) -> list[Step]:
        if not seen.outputs:
            return [call("shell", command="sleep 0.3"), call("shell", command="rm keep.txt")]
        return [say("I kept it.")]

    async def work() -> None:
        (tmp_path / "work").mkdir()
        (tmp_path / "work" / "keep.txt").touch()
        async with stage(tmp_path, act) as scene:
            scene.agent.say("clean up")
            await scene.until(ToolBegan)
            scene.agent.say("keep keep.txt", "steer")
            await scene.until(TurnEnded)
            assert (tmp_path / "work" / "keep.txt").exists()
            assert scene.seen[1].outputs[1] == NOT_RUN

    play(work)


def test_a_queued_message_waits_for_the_end_of_the_turn_and_can_be_edited(tmp_path: Path) -> None:
    """A message cannot be held until the turn ends: anthropics/claude-code#85210."""

    def act(seen: Seen) -> list[Step]:
        return [call("shell", command="sleep 0.2")] if seen.user == "first" else [say("ok")]

    async def work() -> None:
        async with stage(tmp_path, act) as scene:
            scene.agent.say("first")
            await scene.until(ToolBegan)
            letter = scene.agent.say("secnd", "queue")
            dropped = scene.agent.say("never", "queue")
            assert scene.agent.inbox.change(letter.number, text="second")
            assert scene.agent.inbox.drop(dropped.number)
            await scene.agent.wait_idle()
            assert [seen.user for seen in scene.seen if seen.user] == ["first", "second"]
            assert not any("second" in seen.text for seen in scene.seen[:2])

    play(work)


def test_stop_runs_no_more_steps_and_kills_the_process_group(tmp_path: Path) -> None:
    """Esc ignored, five or six more steps run: anthropics/claude-code#11803, #46698."""

    def act(seen: Seen) -> list[Step]:
        return [call("shell", command="echo $$ > pid; sleep 60 & sleep 60"), call("write", path="late", content="x")]

    async def work() -> None:
        async with stage(tmp_path, act) as scene:
            scene.agent.say("go")
            pid = tmp_path / "work" / "pid"
            while not pid.exists() or not pid.read_text().strip():
                await asyncio.sleep(0.005)
            requests = len(scene.seen)
            began = time.perf_counter()
            assert await scene.agent.stop() == []
            seconds = time.perf_counter() - began
            assert seconds < 0.4, seconds
            assert living(int(pid.read_text())) == []
            assert scene.of(TurnEnded)[-1].status == "stopped"
            await asyncio.sleep(0.1)
            assert len(scene.seen) == requests and not (tmp_path / "work" / "late").exists()
            assert scene.of(ToolEnded)[-1].text == INTERRUPTED

    play(work)


def test_stop_ends_a_generation_within_its_budget(tmp_path: Path) -> None:
    def act(seen: Seen) -> list[Step]:
        return [Step(tokens=100_000)]

    async def work() -> list[float]:
        seconds = []
        async with stage(tmp_path, act, pace=SLOW) as scene:
            for n in range(7):
                scene.agent.say(f"talk {n}")
                await scene.until(Said, count=len(scene.of(Said)) + 3)
                began = time.perf_counter()
                await scene.agent.stop()
                seconds.append(time.perf_counter() - began)
                assert not scene.backend.runs
        return seconds

    assert sorted(play(work))[3] < 0.1


def test_stop_gives_back_the_text_that_nobody_answered_and_keeps_the_partial_answer(tmp_path: Path) -> None:
    """An accidental Esc loses work: anthropics/claude-code#23774, #7391, #6643."""

    def act(seen: Seen) -> list[Step]:
        return [Step(tokens=100_000)] if seen.user == "go" else [say("ok")]

    async def work() -> None:
        async with stage(tmp_path, act, pace=SLOW) as scene:
            scene.agent.say("go")
            await scene.until(Said, count=3)
            scene.agent.say("a steer", "steer")
            scene.agent.say("a queued one", "queue")
            assert await scene.agent.stop() == ["a steer", "a queued one"]
            assert scene.agent.idle
            assert states(scene, 2)[-1] == states(scene, 3)[-1] == "failed"
            said = "".join(event.text for event in scene.of(Said))
            await scene.turn("and now?")
            assert said and said in scene.seen[-1].text
            assert "a steer" not in scene.seen[-1].text

    play(work)


def test_stop_before_the_answer_began_gives_the_message_itself_back(tmp_path: Path) -> None:
    def act(seen: Seen) -> list[Step]:
        return [Step(hang=True)]

    async def work() -> None:
        async with stage(tmp_path, act, pace=Pace(prefill_tok_s=1.0)) as scene:
            scene.agent.say("go")
            while not scene.seen:
                await asyncio.sleep(0.002)
            back = await scene.agent.stop()
            delivered = "delivered" in states(scene, 1)
            assert back == ([] if delivered else ["go"])

    play(work)


def test_a_steer_pre_empts_the_fast_mode_at_the_next_token(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.py").write_text("x = 1\n")

    def act(seen: Seen) -> list[Step]:
        if "seven" in seen.user:
            return [whole("x = 7\n")]
        return [Step(text="```python\nx = 2\n", pause=0.02), Step(tokens=10_000, pause=0.02)]

    async def work() -> None:
        async with stage(tmp_path, act, mode="fast") as scene:
            scene.agent.say("set x to 2 in a.py")
            await scene.until(MessageChanged, count=3)
            await asyncio.sleep(0.1)
            began = time.perf_counter()
            scene.agent.say("no, to seven", "steer")
            ended = await scene.until(TurnEnded)
            assert time.perf_counter() - began < 1.0
            assert ended.status == "done" and len(scene.of(TurnEnded)) == 1
            assert (tmp_path / "work" / "a.py").read_text() == "x = 7\n"
            assert "set x to 2" in scene.seen[-1].user

    play(work)


def test_a_steer_does_not_wait_for_the_check_of_an_edit_that_is_written(tmp_path: Path) -> None:
    """The diff is there and tests run behind it: Enter is answered at once, and what was written stays written."""
    root = tmp_path / "work"
    root.mkdir()
    (root / "a.py").write_text("x = 1\n")
    mark = tmp_path / "pid"
    (root / "test_a.py").write_text(
        "import os, time\nfrom pathlib import Path\nimport a\n\n\n"
        f"def test_x():\n    Path({str(mark)!r}).write_text(str(os.getpgid(0)))\n    time.sleep(60)\n"
    )

    def act(seen: Seen) -> list[Step]:
        return [whole("x = 7\ny = 2\n" if "seven" in seen.user else "x = 2\n")]

    async def work() -> None:
        async with stage(tmp_path, act, mode="auto", weak=False) as scene:
            scene.agent.say("set x to 2 in a.py")
            while not mark.exists() or not mark.read_text():
                await asyncio.sleep(0.01)
            assert (root / "a.py").read_text() == "x = 2\n" and not scene.of(TurnEnded)
            group = int(mark.read_text())
            scene.agent.set_mode("fast")
            began = time.perf_counter()
            scene.agent.say("and now set x to seven in a.py", "steer")
            ended = await scene.until(TurnEnded)
            assert (ended.status, ended.changed) == ("done", ("a.py",))
            assert living(group) == []
            await scene.until(TurnEnded, count=2)
            assert time.perf_counter() - began < 3.0
            assert (root / "a.py").read_text() == "x = 7\ny = 2\n"
            assert states(scene, 2)[-1] == "delivered"
            assert scene.agent.desk is not None
            assert not scene.agent.desk.measured.is_late("pytest test_a.py", 30.0)

    play(work)


def test_an_empty_message_is_refused_and_unknown_asks_are_named(tmp_path: Path) -> None:
    async def work() -> None:
        async with stage(tmp_path, lambda seen: [say("ok")]) as scene:
            with pytest.raises(UsageError, match="empty"):
                scene.agent.say("  \n")
            with pytest.raises(UsageError, match="ask-9"):
                scene.agent.answer("ask-9", "yes")

    play(work)


def test_messages_that_waited_are_there_when_it_is_opened_again(tmp_path: Path) -> None:
    async def first() -> None:
        async with stage(tmp_path, lambda seen: [Step(hang=True)]) as scene:
            scene.agent.say("one")
            await scene.until(MessageChanged, count=2)
            scene.agent.say("two", "queue")
            scene.agent.say("three", "queue")

    async def second() -> list[str]:
        async with stage(tmp_path, lambda seen: [say("ok")], resume=True) as scene:
            await scene.agent.wait_idle()
            return scene.seen[-1].users

    play(first)
    assert play(second) == ["one", "two", "three"]


def storm(tmp_path: Path, count: int, every: int = 9) -> None:
    """Messages at any moment, a stop after ``every`` of them: each is answered once or given back once."""
    heard: list[str] = []

    def act(seen: Seen) -> list[Step]:
        heard.extend(word for text in seen.users for word in text.split() if word.startswith("m"))
        steps = [Step(text="thinking", pause=0.0005)]
        return [*steps, call("shell", command="true")] if len(seen.outputs) % 3 == 0 and "m" in seen.user else steps

    async def work() -> None:
        async with stage(tmp_path, act, pace=Pace(tok_s=20_000, ttft=0.001), window=10_000_000) as scene:
            back: list[str] = []
            for n in range(count):
                verb = ("steer", "queue", "send")[n % 3]
                scene.agent.say(f"m{n}", verb)  # type: ignore[arg-type]
                await asyncio.sleep((n * 7 % 11) / 2000)
                if n % every == every - 1:
                    back += await scene.agent.stop()
            await scene.agent.wait_idle()
            last: dict[int, str] = {event.number: event.state for event in scene.of(MessageChanged)}
            texts = {event.number: event.text for event in scene.of(MessageChanged)}
            delivered = [texts[number] for number, state in last.items() if state == "delivered"]
            assert sorted(back + delivered) == sorted(f"m{n}" for n in range(count))
            # The request of the last turn may have been stopped; what the context holds shows in the one after it.
            scene.agent.say("and now")
            await scene.agent.wait_idle()
            final = [word for text in scene.seen[-1].users for word in text.split() if word.startswith("m")]
            assert len(final) == len(set(final)), "a message is in the context twice"
            assert set(delivered) <= set(heard)
            assert not set(back) & set(final)

    play(work, seconds=600.0)


def test_a_storm_of_steers_and_stops_loses_nothing_and_delivers_nothing_twice(tmp_path: Path) -> None:
    storm(tmp_path, 60)

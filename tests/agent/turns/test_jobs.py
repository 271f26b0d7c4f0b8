"""Background commands: the face hears of them while they run, and the model when one has ended."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.agent.turns.stage import Seen, Stage, call, play, say, stage
from vivace.agent.turns import jobs
from vivace.agent.turns.events import JobChanged
from vivace.backends.paced_script import Step
from vivace.errors import UsageError


def told(scene: Stage) -> list[str]:
    """What the model was told of ended jobs, in the last request."""
    return [text for text in scene.seen[-1].users if "A background job has ended" in text]


async def ended(scene: Stage, job: str) -> JobChanged:
    while True:
        for event in scene.of(JobChanged):
            if event.job == job and event.state != "running":
                return event
        await asyncio.sleep(0.005)


def test_a_job_that_ends_between_turns_is_told_with_its_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "TICK", 0.05)

    def act(seen: Seen) -> list[Step]:
        if seen.user == "go" and not seen.output:
            return [call("shell", command="echo broken; sleep 0.4; exit 3", background=True)]
        return [say("ok")]

    async def run() -> None:
        async with stage(tmp_path, act) as scene:
            await scene.turn("go")
            assert (await ended(scene, "job-1")).code == 3
            events = scene.of(JobChanged)
            assert [event.state for event in events] == ["running"] * (len(events) - 1) + ["failed"]
            seconds = [event.seconds for event in events]
            assert len(events) > 4 and seconds == sorted(seconds) and seconds[-1] > 0.3
            assert {event.command for event in events} == {"echo broken; sleep 0.4; exit 3"}
            assert [job.id for job in scene.agent.jobs()] == ["job-1"]
            await scene.turn("again")
            assert len(told(scene)) == 1
            assert "job-1: exited with code 3, after 0." in told(scene)[0] and told(scene)[0].endswith("\nbroken]")
            await scene.turn("and again")
            assert len(told(scene)) == 1

    play(run)


def test_what_the_model_waited_for_or_ended_itself_it_is_not_told_again(tmp_path: Path) -> None:
    def act(seen: Seen) -> list[Step]:
        calls = [
            call("shell", command="sleep 0.2", background=True),
            call("jobs", do="wait", job="job-1", seconds=10),
            call("shell", command="sleep 60", background=True),
            call("jobs", do="wait", job="job-2", seconds=0.05),
            call("jobs", do="kill", job="job-2"),
            call("shell", command="exit 0", background=True),
            call("shell", command="sleep 0.5"),
        ]
        return [calls[len(seen.outputs)]] if len(seen.outputs) < len(calls) else [say("ok")]

    async def run() -> None:
        async with stage(tmp_path, act) as scene:
            await scene.turn("go")
            assert len(told(scene)) == 1 and "job-3: exited with code 0" in told(scene)[0]
            assert [(await ended(scene, f"job-{n}")).state for n in (1, 2, 3)] == ["done", "stopped", "done"]

    play(run)


def test_the_user_ends_a_job_and_the_conversation_ends_the_others(tmp_path: Path) -> None:
    def act(seen: Seen) -> list[Step]:
        if len(seen.outputs) < 2:
            return [call("shell", command=f"sleep 6{len(seen.outputs)}", background=True)]
        return [say("ok")]

    async def run() -> None:
        async with stage(tmp_path, act) as scene:
            await scene.turn("go")
            await scene.agent.stop_job("job-2")
            stopped = await ended(scene, "job-2")
            assert (stopped.state, stopped.note) == ("stopped", "stopped by the user")
            with pytest.raises(UsageError, match="no job 'job-9'"):
                await scene.agent.stop_job("job-9")
        last = await ended(scene, "job-1")
        assert (last.state, last.note) == ("stopped", "ended with the conversation")

    play(run)

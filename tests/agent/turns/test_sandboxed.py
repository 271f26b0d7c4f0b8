"""Turns whose commands run in real bubblewrap: what they can do, and that everything else still holds."""

from __future__ import annotations

import asyncio
import subprocess
import time
from pathlib import Path

import pytest

from tests.agent.turns.stage import Act, Seen, call, play, say, stage
from vivace.agent.sandbox.base import trial
from vivace.agent.sandbox.bubblewrap import Bubblewrap
from vivace.agent.turns.events import Asked, Noted, ToolBegan, ToolEnded, ToolOutput, TurnEnded
from vivace.backends.paced_script import Step

FOUND = Bubblewrap.find()
REASON = "bubblewrap is not installed" if FOUND is None else trial(FOUND)
pytestmark = pytest.mark.skipif(bool(REASON), reason=f"no working bubblewrap: {REASON}")


def runs(*commands: str) -> Act:
    def act(seen: Seen) -> list[Step]:
        return (
            [call("shell", command=commands[len(seen.outputs)])] if len(seen.outputs) < len(commands) else [say("ok")]
        )

    return act


def test_commands_of_a_turn_stay_in_the_workspace_and_are_undone(tmp_path: Path) -> None:
    root = tmp_path / "work"
    root.mkdir()
    (root / "a.txt").write_text("before\n")
    outside = tmp_path / "outside.txt"
    act = runs(
        "echo after > a.txt; mkdir sub; echo new > sub/b.txt",
        f"python3 -c \"open('{outside}', 'w').write('x')\"",
        "python3 -c \"import socket; socket.create_connection(('127.0.0.1', 9), 1)\" || echo no network",
    )

    async def work() -> None:
        async with stage(tmp_path, act, sandbox=True, approvals="auto") as scene:
            ended = await scene.turn("go")
            assert ended.status == "done" and not scene.of(Asked)
            assert set(ended.changed) == {"a.txt", "sub", "sub/b.txt"}, ended
            assert not outside.exists()  # a write to /tmp goes to one of its own
            assert "no network" in scene.seen[-1].outputs[2]
            assert not [note for note in scene.of(Noted) if "No sandbox" in note.text]
            await scene.agent.undo()
            assert (root / "a.txt").read_text() == "before\n" and not (root / "sub").exists()

    play(work)


def test_stop_and_interrupt_reach_into_the_sandbox(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    act = runs("echo began; sleep 97.531; echo never", "echo after the first")

    async def work() -> None:
        async with stage(tmp_path, act, sandbox=True, approvals="auto") as scene:
            scene.agent.say("go")
            await scene.until(ToolOutput)
            assert await scene.agent.interrupt()
            assert (await scene.until(TurnEnded)).status == "done"
            assert "began" in scene.seen[-1].outputs[0] and "after the first" in scene.seen[-1].outputs[1]
            await scene.agent.undo()
            scene.agent.say("go")
            await scene.until(ToolOutput, count=len(scene.of(ToolOutput)) + 1)
            began = time.perf_counter()
            await scene.agent.stop()
            assert time.perf_counter() - began < 1.0
            assert scene.of(TurnEnded)[-1].status == "stopped"
            assert b"97.531" not in subprocess.run(["ps", "-eo", "args"], capture_output=True, check=True).stdout

    play(work)


def test_git_works_in_the_sandbox_and_a_job_lives_on(tmp_path: Path) -> None:
    root = tmp_path / "work"
    root.mkdir()
    subprocess.run(["git", "init", "-q", str(root)], check=True)

    def act(seen: Seen) -> list[Step]:
        who = "-c user.name=a -c user.email=a@b"
        steps = [
            call("shell", command=f"echo x > f && git add f && git {who} commit -qm one && git log --oneline"),
            call("shell", command="sleep 0.3; echo built; sleep 60", background=True),
            call("jobs", do="wait", job="job-1", seconds=1.0),
        ]
        return [steps[len(seen.outputs)]] if len(seen.outputs) < 3 else [say("ok")]

    async def work() -> None:
        async with stage(tmp_path, act, sandbox=True, approvals="auto") as scene:
            scene.on_event = lambda event: yes(event)

            def yes(event: object) -> None:
                if isinstance(event, Asked):
                    asyncio.get_running_loop().call_soon(scene.agent.answer, event.ask, "once")

            assert (await scene.turn("go")).status == "done"
            outputs = scene.seen[-1].outputs
            assert " one" in outputs[0] and "built" in outputs[2], outputs

    play(work)
    log = subprocess.run(["git", "-C", str(root), "log", "--oneline"], capture_output=True, text=True, check=True)
    assert log.stdout.endswith(" one\n")


def test_a_worker_is_in_the_sandbox_and_its_copy_too(tmp_path: Path) -> None:
    root = tmp_path / "work"
    root.mkdir()
    (root / "a.txt").write_text("one\n")
    act = runs("echo two >> a.txt", f"python3 -c \"open('{root}/leak', 'w').write('x')\"")

    async def work() -> None:
        async with stage(tmp_path, act, sandbox=True) as scene:
            assert scene.agent.crew is not None
            name = await scene.agent.background("go")
            worker = await asyncio.wait_for(scene.agent.crew.wait(name), 30)
            assert (worker.state, [change.path for change in worker.changes]) == ("done", ["a.txt"]), worker
            assert not (root / "leak").exists() and (root / "a.txt").read_text() == "one\n"
            assert [event.worker for event in scene.of(ToolBegan)] == [name, name]
            assert [event.ok for event in scene.of(ToolEnded)] == [True, False]
            assert await scene.agent.accept_worker(name) == ("a.txt",)
            assert (root / "a.txt").read_text() == "one\ntwo\n"

    play(work)

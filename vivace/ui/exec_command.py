"""``vivace exec``: one task without a person, for scripts and pipes.

Exit codes: 0 done, 1 failed or a limit was reached, 2 wrong usage, 3 nothing changed, 130 interrupted. What was done
stays done whatever the code; a checkpoint from before is there to go back to.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from vivace.agent.turns import events as ev
from vivace.errors import UsageError, VivaceError
from vivace.ui.contract import Choice, House, Talk
from vivace.ui.exec_faces import JsonFace, PipeFace
from vivace.ui.mentioned import mentioned

OK, FAILED, USAGE, NO_CHANGE, INTERRUPTED = 0, 1, 2, 3, 130
CODES: dict[ev.Status, int] = {
    "done": OK,
    "unchanged": NO_CHANGE,
    "stopped": INTERRUPTED,
    "limit": FAILED,
    "failed": FAILED,
}
NOBODY = "no: nobody is there to ask (vivace exec); --approvals auto or full lets more pass"
DECIDE = "Nobody is there to answer. Decide yourself, and say what you assumed."


class ExecOptions(Struct, frozen=True, kw_only=True):
    """The options of the command that are not those of the conversation."""

    json: bool = False
    go_on: bool = False
    """With the last conversation of the folder, whichever that is."""


def task_of(argument: str) -> str:
    """The task; ``-`` reads it from standard input. Raises :class:`UsageError` for an empty one."""
    task = sys.stdin.read() if argument == "-" else argument
    if not task.strip():
        raise UsageError("the task is empty", hint='vivace exec "add a docstring to main in app.py"', param="task")
    return task


def run_exec(house: House, argument: str, choice: Choice, options: ExecOptions) -> int:
    """Run the command and return its exit code; nothing escapes but defects."""
    face = JsonFace() if options.json else PipeFace(only_shows=choice.approvals == "read-only")
    try:
        code = asyncio.run(_run(house, task_of(argument), choice, face, options))
    except VivaceError as error:
        face.failed(error)
        code = error.exit_code
    except BrokenPipeError:  # whoever read the output is gone; keep the interpreter from flushing into nothing
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    face.exited(code)
    return code


async def _run(house: House, task: str, choice: Choice, face: JsonFace | PipeFace, options: ExecOptions) -> int:
    try:
        if options.go_on:
            choice = msgspec.structs.replace(choice, conversation=house.read(choice.root, "").id)
        await house.check(choice)
        return await _turn(house, task, choice, face)
    finally:
        await house.close()


async def _turn(house: House, task: str, choice: Choice, face: JsonFace | PipeFace) -> int:
    """One turn, from the message to its end. Messages that waited in the conversation come before."""
    letter: Any = None
    ended: asyncio.Future[ev.TurnEnded] = asyncio.get_running_loop().create_future()

    def waits() -> bool:
        return letter is not None and letter.state == "queued"

    def listen(event: ev.Event) -> None:
        try:
            face(event)
        except BrokenPipeError as error:
            if not ended.done():
                ended.set_exception(error)
            return
        if isinstance(event, ev.Asked):
            asyncio.get_running_loop().call_soon(_answer, talk, event)
        elif isinstance(event, ev.TurnEnded) and not event.worker and not ended.done() and not waits():
            ended.set_result(event)

    talk = house.open(choice, listen)
    await talk.begin()
    try:
        face.opened(talk.conversation.id)
        with _stops(talk, ended):
            letter = talk.say(task, "send", mentioned(task, choice.root))
            return CODES[(await ended).status]
    finally:
        await talk.close()


def _answer(talk: Talk, asked: ev.Asked) -> None:
    """What stands in for a person: proposals are what was asked for, everything else needs one."""
    yes = asked.choices[0][0] if asked.choices else "y"
    reply = {"proposal": yes, "approval": NOBODY, "question": DECIDE}[asked.kind]
    with contextlib.suppress(UsageError):  # it waits no more
        talk.answer(asked.ask, reply)


@contextlib.contextmanager
def _stops(talk: Talk, ended: asyncio.Future[ev.TurnEnded]) -> Iterator[None]:
    """The first Ctrl-C ends the turn and the second the process; so does a request to terminate."""
    loop = asyncio.get_running_loop()
    stopping: list[asyncio.Task[None]] = []

    async def end() -> None:
        await talk.stop()
        if not ended.done():  # a turn that had not begun has no end of its own
            ended.set_result(ev.TurnEnded(status="stopped", reason="", seconds=0.0))

    def stop() -> None:
        if stopping:
            os._exit(INTERRUPTED)
        stopping.append(loop.create_task(end()))

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)

"""A conversation without a model: real inbox, real conversation on disk, turns that a script plays."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from vivace.agent.sessions.conversation import Conversation
from vivace.agent.sessions.entries import Note
from vivace.agent.sessions.listing import Summary, conversations, find
from vivace.agent.turns import events as ev
from vivace.agent.turns.inbox import Inbox, Letter
from vivace.errors import UsageError
from vivace.ui.contract import Choice, Listener

Script = Callable[["ScriptedTalk", list[Letter]], Awaitable[ev.TurnEnded | None]]


async def silent(talk: ScriptedTalk, letters: list[Letter]) -> ev.TurnEnded | None:
    return None


class ScriptedTalk:
    """See :class:`vivace.ui.contract.Talk`. ``calls`` keeps what it was asked to do."""

    def __init__(self, choice: Choice, listener: Listener, conversation: Conversation, script: Script) -> None:
        self.choice, self.listener, self.script = choice, listener, script
        self.conversation = conversation
        self.mode, self.model = choice.mode, choice.model
        self.inbox = Inbox(conversation, self._changed)
        self.calls: list[tuple[Any, ...]] = []
        self.turn = 0
        self.unfinished = False
        self.points: list[Any] = []
        self._asks: dict[str, asyncio.Future[str]] = {}
        self._wake = asyncio.Event()
        self._work: asyncio.Task[Any] | None = None
        self._loop: asyncio.Task[None] | None = None

    def emit(self, event: ev.Event) -> None:
        event.turn = event.turn or self.turn
        self.listener(event)

    async def ask(self, ask: ev.Asked) -> str:
        waiting = self._asks[ask.ask] = asyncio.get_running_loop().create_future()
        self.emit(ask)
        reply = ""
        try:
            reply = await waiting
        finally:
            del self._asks[ask.ask]
            self.emit(ev.Answered(ask=ask.ask, reply=reply))
        return reply

    @property
    def idle(self) -> bool:
        return self._work is None and not self.inbox.waiting

    async def begin(self) -> None:
        self._loop = asyncio.create_task(self._run())

    async def close(self) -> None:
        if self._loop is not None:
            self._loop.cancel()
            if self._work is not None:
                self._work.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)
        self.conversation.close()

    def say(self, text: str, verb: str = "send", files: Sequence[str] = ()) -> Letter:
        self.calls.append(("say", text, verb, tuple(files)))
        letter = self.inbox.put(text, "steer" if verb == "steer" else "queue", tuple(files))
        self._wake.set()
        return letter

    async def stop(self) -> list[str]:
        self.calls.append(("stop",))
        back = [letter.text for letter in self.inbox.give_back()]
        if self._work is not None:
            self._work.cancel()
            await asyncio.wait([self._work])
        return back

    async def interrupt(self) -> bool:
        self.calls.append(("interrupt",))
        return False

    async def go_on(self) -> None:
        self.calls.append(("go_on",))

    def answer(self, ask: str, reply: str) -> None:
        if ask not in self._asks:
            raise UsageError(f"there is no question {ask!r}", code="unknown_ask")
        self.calls.append(("answer", ask, reply))
        self._asks[ask].set_result(reply)

    def set_mode(self, mode: ev.Mode) -> None:
        self.mode = mode
        self.emit(ev.ModeChanged(mode=mode, model=self.model))

    def set_model(self, model: str) -> None:
        self.model = model
        self.emit(ev.ModeChanged(mode=self.mode, model=model))

    def set_candidates(self, number: int) -> None:
        self.calls.append(("candidates", number))

    def set_approvals(self, approvals: str) -> None:
        self.calls.append(("approvals", approvals))

    def set_role(self, role: str, model: str) -> None:
        self.calls.append(("role", role, model))

    async def undo(self) -> None:
        self.calls.append(("undo",))

    async def redo(self) -> None:
        self.calls.append(("redo",))

    def checkpoints(self, limit: int | None = None) -> Sequence[Any]:
        return self.points

    async def go_to(self, number: int) -> None:
        self.calls.append(("go_to", number))

    async def fork(self) -> str:
        self.calls.append(("fork",))
        return "forked"

    async def compact(self) -> bool:
        self.calls.append(("compact",))
        return True

    def typing(self, text: str) -> None:
        self.calls.append(("typing", text))

    async def background(self, task: str, paths: Sequence[str] = ()) -> str:
        self.calls.append(("background", task, tuple(paths)))
        self.emit(ev.WorkerChanged(worker="w1", task=task, state="running", steps=2, tokens=1200, seconds=3.0))
        return "w1"

    async def stop_worker(self, worker: str) -> None:
        self.calls.append(("stop_worker", worker))
        self.emit(ev.WorkerChanged(worker=worker, task="the task", state="stopped"))

    async def stop_job(self, job: str) -> None:
        self.calls.append(("stop_job", job))

    async def preview_worker(self, worker: str) -> str:
        return "--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-one\n+two\n"

    async def accept_worker(self, worker: str) -> tuple[str, ...]:
        self.calls.append(("accept_worker", worker))
        return ("a.py",)

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while letters := self.inbox.take_next():
                self.turn += 1
                self._work = asyncio.create_task(self._turn(letters))
                await asyncio.wait([self._work])
                self._work = None

    async def _turn(self, letters: list[Letter]) -> None:
        self.emit(ev.TurnBegan(mode="fast", model=self.model or "m", reason="one file is named"))
        self.inbox.delivered()
        end: ev.TurnEnded | None = None
        try:
            end = await self.script(self, letters)
        except asyncio.CancelledError:
            end = ev.TurnEnded(status="stopped", reason="by the user", seconds=0.2)
        finally:
            self.conversation.append(Note("the turn ended"))
            self.emit(end or ev.TurnEnded(status="done", reason="", seconds=0.2))

    def _changed(self, letter: Letter) -> None:
        self.emit(
            ev.MessageChanged(
                number=letter.number, text=letter.text, verb=letter.verb, state=letter.state, reason=letter.reason
            )
        )


class ScriptedHouse:
    """See :class:`vivace.ui.contract.House`. ``talks`` are those that were opened."""

    def __init__(self, folder: Path, script: Script = silent, models: Sequence[str] = ("small", "big")) -> None:
        self.folder, self.script = folder, script
        self.talks: list[ScriptedTalk] = []
        self.closed = False
        self._models = list(models)

    @property
    def talk(self) -> ScriptedTalk:
        return self.talks[-1]

    async def check(self, choice: Choice) -> None:
        if choice.model == "unknown":
            raise UsageError("There is no model 'unknown'", hint="Known: small, big.", code="model_not_found")

    def open(self, choice: Choice, listener: Listener) -> ScriptedTalk:
        if choice.conversation:
            conversation = Conversation.open(find(self.folder, choice.conversation))
        else:
            conversation = Conversation.create(self.folder, choice.root)
        self.talks.append(ScriptedTalk(choice, listener, conversation, self.script))
        return self.talk

    def conversations(self, root: Path) -> list[Summary]:
        return conversations(self.folder)

    def read(self, root: Path, name: str) -> Conversation:
        return Conversation.open(find(self.folder, name), write=False)

    def models(self) -> list[str]:
        return self._models

    async def close(self) -> None:
        self.closed = True


def contents(parts: Sequence[Any]) -> SimpleNamespace:
    """Something with an ``id``, a ``label`` and a moment, as checkpoints have."""
    number, label, created = parts
    return SimpleNamespace(id=number, label=label, created=created)

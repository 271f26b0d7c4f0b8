"""One session of an editor: a conversation, what it tells, and the prompts that wait for the end of their turn."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from acp.exceptions import RequestError
from acp.helpers import text_block, tool_content, update_agent_message_text, update_user_message_text
from acp.interfaces import Client
from acp.schema import AllowedOutcome, PermissionOption, PromptResponse, SessionInfoUpdate, ToolCallUpdate, Usage

from vivace.agent.turns import events as ev
from vivace.errors import UsageError
from vivace.ui.acp.config import Setup, changed
from vivace.ui.acp.updates import Updates
from vivace.ui.app.pump import joined
from vivace.ui.contract import Choice, House, Talk
from vivace.ui.replay import replayed

T = TypeVar("T")

STOPS: dict[ev.Status, str] = {
    "done": "end_turn",
    "unchanged": "end_turn",
    "stopped": "cancelled",
    "limit": "max_turn_requests",
}
NO_WORDS = "The editor cannot take words here. Decide yourself, and say what you assumed."
YES_NO = (("y", "Yes"), ("n", "No"))


class Cancelled(Exception):
    """The editor took back what it had asked for, see :meth:`Session.cancellable`."""


class Session:
    """Events go out in order by one task; a prompt is answered after the last update of its turn has gone out.

    ``choice`` is what the conversation is opened with, ``setup`` what was made of it since. ``workers`` and ``jobs``
    hold the last that was told of each background worker and command, the oldest first.
    """

    def __init__(self, choice: Choice, client: Client, house: House) -> None:
        self.name, self.root, self.client = choice.conversation, choice.root, client
        self.choice, self.house = choice, house
        self.setup = Setup(choice.mode, choice.model, choice.approvals)
        self.talk: Talk | None = None
        self.workers: dict[str, ev.WorkerChanged] = {}
        self.jobs: dict[str, ev.JobChanged] = {}
        self.updates = Updates(self.root)
        self.running = ""
        self.known = asyncio.Event()
        """The editor has been told of the session: updates of one that it does not know would be lost."""
        self._events: asyncio.Queue[ev.Event] = asyncio.Queue()
        self._sender = asyncio.create_task(self._send())
        self._prompts: dict[int, asyncio.Future[PromptResponse]] = {}
        self._turns: dict[int, int] = {}
        self._meters = ev.Meters()
        self._title = ""
        self._beside: set[asyncio.Task[None]] = set()
        self._cancellable: set[asyncio.Task[Any]] = set()

    @property
    def open(self) -> Talk:
        """The conversation. Raises :class:`UsageError` (``not_begun``) when it was closed."""
        if self.talk is None:
            raise UsageError("The session is closed.", code="not_begun")
        return self.talk

    def listen(self, event: ev.Event) -> None:
        if isinstance(event, ev.WorkerChanged):
            self.workers[event.worker] = event
        elif isinstance(event, ev.JobChanged) and not event.worker:
            self.jobs[event.job] = event
        self._events.put_nowait(event)

    def keep(self, task: asyncio.Task[None]) -> None:
        """Let ``task`` run beside the session, and end with it."""
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    async def close(self) -> None:
        if self.talk is not None:
            await self.talk.close()
            self.talk = None
        self._sender.cancel()
        for task in (*self._beside, *self._cancellable):
            task.cancel()
        for waiting in self._prompts.values():
            waiting.cancel()

    async def prompt(self, text: str, files: tuple[str, ...]) -> PromptResponse:
        """Say it and wait for the end of the turn that took it. A second one while a turn runs waits for the next."""
        letter = self.open.say(text, "send" if self.open.idle else "queue", files)
        waiting: asyncio.Future[PromptResponse] = asyncio.get_running_loop().create_future()
        self._prompts[letter.number] = waiting
        return await waiting

    async def cancel(self) -> None:
        """End the turn in the foreground, and a command that waits; background workers go on."""
        for task in list(self._cancellable):
            task.cancel()
        if self.talk is not None:
            await self.talk.stop()

    async def cancellable(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it, or raise :class:`Cancelled` when the editor cancels meanwhile."""
        task = asyncio.create_task(work)
        self._cancellable.add(task)
        try:
            await asyncio.wait([task])
        finally:
            self._cancellable.discard(task)
            task.cancel()
        if task.cancelled():
            raise Cancelled
        return task.result()

    async def replay(self) -> None:
        """Tell the editor what was said before."""
        for event in replayed(self.open.conversation):
            if isinstance(event, ev.MessageChanged):
                await self.update(update_user_message_text(event.text))
            else:
                await self._tell(event)

    async def say(self, text: str) -> None:
        """Something of the server's own."""
        await self.update(update_agent_message_text(text))

    async def update(self, update: Any) -> None:
        await self.client.session_update(self.name, update)

    async def tell_setup(self) -> None:
        """Tell the editor of what is set, after a change that did not come by its config options."""
        await self.update(changed(self.setup, self.house.models()))

    async def permit(self, call: str, title: str, options: Sequence[PermissionOption], content: Any = None) -> str:
        """Have the editor ask, below the tool call ``call``: the id of an option.

        Empty when it was closed, cancelled, or the editor went away or cannot ask.
        """
        asked = ToolCallUpdate(tool_call_id=call, title=title, content=content)
        try:
            answer = await self.client.request_permission(self.name, asked, list(options))
        except (RequestError, ConnectionError):
            return ""
        return answer.outcome.option_id if isinstance(answer.outcome, AllowedOutcome) else ""

    async def _send(self) -> None:
        await self.known.wait()
        while True:
            events = [await self._events.get()]
            while not self._events.empty():
                events.append(self._events.get_nowait())
            for event in joined(events):
                await self._tell(event)
                self._follow(event)

    async def _tell(self, event: ev.Event) -> None:
        for update in self.updates.of(event):
            await self.update(update)
        if isinstance(event, ev.TurnBegan) and not event.worker and self.talk is not None:
            title = self.talk.conversation.title
            if title and title != self._title:
                self._title = title
                await self.update(SessionInfoUpdate(session_update="session_info_update", title=title))

    def _follow(self, event: ev.Event) -> None:
        """What an event means for the prompts and questions that are open."""
        if event.worker:
            return
        match event:
            case ev.MessageChanged(state="failed"):
                self._settle(event.number, PromptResponse(stop_reason="cancelled"))
            case ev.MessageChanged(state="sent" | "delivered"):
                self._turns[event.number] = event.turn
            case ev.Meters():
                self._meters = event
            case ev.ToolBegan():
                self.running = event.call
            case ev.ToolEnded():
                self.running = ""
            case ev.Asked():
                self.keep(asyncio.create_task(self._ask(event)))
            case ev.TurnEnded():
                self._ended(event)

    def _ended(self, event: ev.TurnEnded) -> None:
        meters, self._meters = self._meters, ev.Meters()
        for number in [number for number, turn in self._turns.items() if turn == event.turn]:
            del self._turns[number]
            if event.status == "failed":
                self._settle(number, RequestError(-32603, event.reason or "the turn failed", {"status": "failed"}))
                continue
            told: dict[str, Any] = {"status": event.status, "reason": event.reason, "changed": list(event.changed)}
            told |= {"ttft": meters.ttft, "tokensPerSecond": meters.tokens_per_second, "copied": meters.copied}
            response = PromptResponse(
                stop_reason=STOPS[event.status],  # type: ignore[arg-type]
                usage=Usage(
                    input_tokens=meters.input_tokens,
                    output_tokens=meters.output_tokens,
                    total_tokens=meters.input_tokens + meters.output_tokens,
                    cached_read_tokens=meters.cached_tokens,
                ),
                field_meta={"vivace": told},
            )
            self._settle(number, response)

    def _settle(self, number: int, outcome: PromptResponse | RequestError) -> None:
        waiting = self._prompts.pop(number, None)
        if waiting is None or waiting.done():
            return
        if isinstance(outcome, RequestError):
            waiting.set_exception(outcome)
        else:
            waiting.set_result(outcome)

    async def _ask(self, asked: ev.Asked) -> None:
        """Have the editor ask. An editor that goes away or cancels is a no."""
        if choices := _choices(asked):
            call = (self.updates.edit if asked.kind == "proposal" else self.running) or asked.ask
            title = "Apply this change?" if asked.kind == "proposal" else asked.text.strip().split("\n")[0]
            options = [permission(asked.kind, key, label) for key, label in choices]
            reply = await self.permit(call, title, options, _content(asked)) or _no(asked)
        else:
            await self.say(f"\n{asked.text}\n")
            reply = NO_WORDS
        try:
            self.open.answer(asked.ask, reply)
        except UsageError:
            return  # it waits no more: the turn was cancelled meanwhile


def permission(kind: str, key: str, label: str) -> PermissionOption:
    """One answer to an approval, a proposal or a question."""
    does: Any = "allow_always" if kind == "approval" and key != "once" else "allow_once"
    if kind != "question" and key.startswith("n"):
        does = "reject_once"
    return PermissionOption(option_id=key, name=label, kind=does)


def _choices(asked: ev.Asked) -> tuple[tuple[str, str], ...]:
    return asked.choices or (YES_NO if asked.kind == "proposal" else ())


def _no(asked: ev.Asked) -> str:
    """What is answered for an editor that does not."""
    if asked.kind == "question":
        return "(no answer)"
    return next((key for key, _ in asked.choices if key.startswith("n")), "n")


def _content(asked: ev.Asked) -> Any:
    """What is shown beside the title; of a proposal the editor has the diff."""
    return None if asked.kind == "proposal" else [tool_content(text_block(asked.text))]

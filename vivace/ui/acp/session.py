"""One session of an editor: a conversation, what it tells, and the prompts that wait for the end of their turn."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from acp.exceptions import RequestError
from acp.helpers import text_block, tool_content, update_agent_message_text, update_user_message_text
from acp.interfaces import Client
from acp.schema import AllowedOutcome, PermissionOption, PromptResponse, ToolCallUpdate, Usage

from vivace.agent.turns import events as ev
from vivace.errors import UsageError
from vivace.ui.acp.updates import Updates
from vivace.ui.app.pump import joined
from vivace.ui.contract import Talk
from vivace.ui.replay import replayed

STOPS: dict[ev.Status, str] = {
    "done": "end_turn",
    "unchanged": "end_turn",
    "stopped": "cancelled",
    "limit": "max_turn_requests",
}
NO_WORDS = "The editor cannot take words here. Decide yourself, and say what you assumed."


class Session:
    """Events go out in order by one task; a prompt is answered after the last update of its turn has gone out."""

    def __init__(self, name: str, root: Path, client: Client) -> None:
        self.name, self.root, self.client = name, root, client
        self.talk: Talk | None = None
        self.updates = Updates(root)
        self.running = ""
        self.known = asyncio.Event()
        """The editor has been told of the session: updates of one that it does not know would be lost."""
        self._events: asyncio.Queue[ev.Event] = asyncio.Queue()
        self._sender = asyncio.create_task(self._send())
        self._prompts: dict[int, asyncio.Future[PromptResponse]] = {}
        self._turns: dict[int, int] = {}
        self._meters = ev.Meters()
        self._beside: set[asyncio.Task[None]] = set()

    def listen(self, event: ev.Event) -> None:
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
        for task in self._beside:
            task.cancel()
        for waiting in self._prompts.values():
            waiting.cancel()

    async def prompt(self, text: str, files: tuple[str, ...]) -> PromptResponse:
        """Say it and wait for the end of the turn that took it. A second one while a turn runs waits for the next."""
        letter = self._open.say(text, "send" if self._open.idle else "queue", files)
        waiting: asyncio.Future[PromptResponse] = asyncio.get_running_loop().create_future()
        self._prompts[letter.number] = waiting
        return await waiting

    async def replay(self) -> None:
        """Tell the editor what was said before."""
        for event in replayed(self._open.conversation):
            if isinstance(event, ev.MessageChanged):
                await self._update(update_user_message_text(event.text))
            else:
                await self._tell(event)

    async def say(self, text: str) -> None:
        """Something of the server's own."""
        await self._update(update_agent_message_text(text))

    @property
    def _open(self) -> Talk:
        if self.talk is None:
            raise UsageError("The session is closed.", code="not_begun")
        return self.talk

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
            await self._update(update)

    async def _update(self, update: Any) -> None:
        await self.client.session_update(self.name, update)

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
        options = _options(asked)
        if not options:
            await self.say(f"\n{asked.text}\n")
            reply = NO_WORDS
        else:
            call = (self.updates.edit if asked.kind == "proposal" else self.running) or asked.ask
            title = "Apply this change?" if asked.kind == "proposal" else asked.text.strip().split("\n")[0]
            answer = await self.client.request_permission(
                self.name, ToolCallUpdate(tool_call_id=call, title=title, content=_content(asked)), options
            )
            reply = answer.outcome.option_id if isinstance(answer.outcome, AllowedOutcome) else _no(asked)
        try:
            self._open.answer(asked.ask, reply)
        except UsageError:
            return  # it waits no more: the turn was cancelled meanwhile


def _options(asked: ev.Asked) -> list[PermissionOption]:
    choices = asked.choices or ((("y", "Yes"), ("n", "No")) if asked.kind == "proposal" else ())
    return [PermissionOption(option_id=key, name=label, kind=_kind(asked, key)) for key, label in choices]


def _kind(asked: ev.Asked, key: str) -> Any:
    if asked.kind != "question" and key.startswith("n"):
        return "reject_once"
    return "allow_always" if asked.kind == "approval" and key != "once" else "allow_once"


def _no(asked: ev.Asked) -> str:
    """What is answered for an editor that does not."""
    if asked.kind == "question":
        return "(no answer)"
    return next((key for key, _ in asked.choices if key.startswith("n")), "n")


def _content(asked: ev.Asked) -> Any:
    """What is shown beside the title; of a proposal the editor has the diff."""
    return None if asked.kind == "proposal" else [tool_content(text_block(asked.text))]

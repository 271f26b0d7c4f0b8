"""One response in a conversation: streamed to the face, kept as far as it came, stopped when it is not wanted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from vivace.protocol import events as ev
from vivace.protocol.contracts import Principal, Service
from vivace.protocol.items import FunctionCall, Item, Message, OutputText, Reasoning, encode
from vivace.protocol.requests import ResponseRequest


@dataclass
class Answer:
    """``items`` are whole ones, as they were emitted; a call that was cut off is none of them."""

    status: Literal["running", "completed", "incomplete", "failed"] = "running"
    response: str = ""
    items: list[Item] = field(default_factory=list)
    partial: str = ""
    """Text of a message that has not ended."""
    code: str = ""
    message: str = ""
    """Why it is incomplete or failed."""

    @property
    def calls(self) -> list[FunctionCall]:
        return [item for item in self.items if isinstance(item, FunctionCall)]

    @property
    def text(self) -> str:
        return "".join(item.text for item in self.items if isinstance(item, Message))

    def kept(self) -> tuple[msgspec.Raw, ...]:
        """What is written down of it: whole items, and the text that was said so far."""
        items = list(self.items)
        if self.partial.strip():
            items.append(Message("assistant", [OutputText(self.partial)], status="incomplete"))
        return tuple(msgspec.Raw(encode(item)) for item in items)


async def listen(
    service: Service,
    request: ResponseRequest,
    answer: Answer,
    on_text: Callable[[str], None],
    on_thought: Callable[[str], None],
) -> None:
    """Run one request into ``answer``. When the task is cancelled the generation is stopped first."""
    generation = service.start(request, Principal())
    try:
        async for event in generation:
            match event:
                case ev.TextDelta(delta=delta):
                    answer.partial += delta
                    on_text(delta)
                case ev.ReasoningTextDelta(delta=delta) | ev.ReasoningSummaryTextDelta(delta=delta):
                    on_thought(delta)
                case ev.ItemDone(item=item):
                    _take(answer, item)
                case ev.Completed(response=response):
                    answer.status, answer.response = "completed", response.id
                case ev.Incomplete(response=response):
                    details = response.incomplete_details
                    answer.status, answer.response = "incomplete", response.id
                    answer.message = details.reason if details is not None else "cut off"
                case ev.Failed(response=response):
                    error = response.error
                    answer.status = "failed"
                    answer.code = error.code if error is not None else "server_error"
                    answer.message = error.message if error is not None else "the model failed"
        if answer.status == "running":
            await generation.stop("cancelled")
            answer.status, answer.code, answer.message = "failed", "connection_lost", "the connection was lost"
    except BaseException:
        await generation.stop("cancelled")
        raise


def _take(answer: Answer, item: Item) -> None:
    """A whole item. Reasoning is not sent back; a call whose arguments are no whole object never was one."""
    if isinstance(item, Message):
        answer.partial = ""
    if isinstance(item, Reasoning) or getattr(item, "status", None) == "incomplete":
        if isinstance(item, Message) and item.text:
            answer.items.append(item)
        return
    if isinstance(item, FunctionCall) and not _is_object(item.arguments):
        return
    answer.items.append(item)


def _is_object(text: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(text or "{}"), dict)
    except msgspec.DecodeError:
        return False

"""What the service asks of whatever answers: the Service contract, one level down.

A backend is told of a :class:`Job` and answers with pieces: text, reasoning, tool calls, and one :class:`End`. Tool
names are flat here (``namespace__name``); the service restores what the client called them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Literal, Protocol

from msgspec import Struct

from vivace.dialects.tools import ToolTable
from vivace.protocol.contracts import ModelCard
from vivace.protocol.items import Item, Usage
from vivace.protocol.requests import ResponseRequest

Watch = Callable[[str, float], None]
"""Told what loading is doing and how far it is, from 0 to 1."""

EndReason = Literal["stop", "length", "time", "aborted", "error"]


class Job(Struct, frozen=True, kw_only=True):
    """One answer to be made.

    ``items`` is the whole conversation, oldest first, exactly as it was emitted; the instructions are its first
    message. The first ``known`` of them are behind ``continuation``, which the same backend made for an earlier
    response with the same tools. ``prefill_only`` asks for the prompt to be made ready and nothing to be answered.
    """

    request: ResponseRequest
    items: list[Item]
    tools: ToolTable = ToolTable()
    continuation: object = None
    known: int = 0
    affinity: str = ""
    """What belongs together: jobs of one conversation prefer the replica that knows it."""
    priority: int = 0
    """Higher enters a step of the engine first."""
    prefill_only: bool = False


class Text(Struct, frozen=True):
    """The next piece of the answer."""

    text: str


class Reasoning(Struct, frozen=True):
    """The next piece of the model's own thoughts."""

    text: str


class CallStart(Struct, frozen=True):
    """A tool call begins; calls come one after the other, each closed by a :class:`CallEnd`.

    ``name`` is the flat one. With ``raw`` what follows is the free text of a custom tool, otherwise the JSON text of
    its arguments.
    """

    name: str
    call_id: str
    raw: bool = False


class CallText(Struct, frozen=True):
    """The next piece of the call's arguments or free text."""

    text: str


class CallEnd(Struct, frozen=True):
    """The call is whole. Without it a call was cut off and must not be carried out."""


class End(Struct, frozen=True):
    """The last thing of a run. ``continuation`` is the backend's own business."""

    reason: EndReason
    usage: Usage
    message: str = ""
    continuation: object = None
    code: str = "server_error"
    """OpenAI's error code where ``reason`` is ``error``: ``context_length_exceeded``, ``rate_limit_exceeded``, ..."""
    retry_after: float = 0.0
    """Seconds after which it is worth trying again, where the backend said so."""


Piece = Text | Reasoning | CallStart | CallText | CallEnd | End


class Run(Protocol):
    """One answer being made."""

    def __aiter__(self) -> AsyncIterator[Piece]:
        """Pieces in order, the last an :class:`End`. May be iterated once."""
        ...

    async def stop(self) -> End:
        """End it now; returns when it has ended and holds nothing any more. Safe at any moment, more than once."""
        ...


class Backend(Protocol):
    """One model, wherever it runs."""

    @property
    def ready(self) -> bool:
        """It can answer now: there is nothing to open."""
        ...

    async def open(self, watch: Watch) -> ModelCard:
        """Make it ready and describe it."""
        ...

    async def count(self, job: Job) -> int:
        """Tokens of the prompt that a job makes."""
        ...

    def start(self, job: Job) -> Run:
        """Begin an answer; the backend is open. Raises :class:`vivace.errors.VivaceError` for what cannot be asked."""
        ...

    async def close(self) -> None: ...

"""What the service asks of whatever answers: the Service contract, one level down."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Literal, Protocol

from msgspec import Struct

from vivace.protocol.contracts import ModelCard
from vivace.protocol.items import Message, Usage
from vivace.protocol.requests import ResponseRequest

Watch = Callable[[str, float], None]
"""Told what loading is doing and how far it is, from 0 to 1."""

EndReason = Literal["stop", "length", "time", "aborted", "error"]


class Text(Struct, frozen=True):
    """The next piece of the answer."""

    text: str


class End(Struct, frozen=True):
    """The last thing of a run. ``continuation`` is the backend's own business."""

    reason: EndReason
    usage: Usage
    message: str = ""
    continuation: object = None


class Run(Protocol):
    """One answer being made."""

    def __aiter__(self) -> AsyncIterator[Text | End]:
        """Pieces in order, the last an :class:`End`."""
        ...

    async def stop(self) -> End:
        """End it now; returns when it has ended and holds nothing any more. Safe at any moment, more than once."""
        ...


class Backend(Protocol):
    """One model, wherever it runs."""

    async def open(self, watch: Watch) -> ModelCard: ...

    async def count(self, messages: list[Message]) -> int:
        """Tokens of the prompt that these messages make."""
        ...

    def start(self, messages: list[Message], request: ResponseRequest) -> Run:
        """Begin an answer; the backend is open. Raises :class:`vivace.errors.VivaceError` for what cannot be asked."""
        ...

    async def close(self) -> None: ...

"""The two contracts that every room above the engine is written against.

The agent gets a :class:`Service` from the command that starts it: the local one in the same process, or a client over
a socket. Whoever wants an answer to end calls :meth:`Generation.stop`; nobody cancels by closing an iterator.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal, Protocol

from msgspec import Struct

from vivace.protocol.events import Event
from vivace.protocol.items import Usage
from vivace.protocol.requests import ResponseRequest

StopReason = Literal["disconnect", "steered", "cancelled", "lost_race"]


class Principal(Struct, frozen=True):
    """Who asks. Quotas, keys and the ledger hang on it."""

    id: str = "local"


class ModelCard(Struct, frozen=True):
    """What a model offers. ``context_window`` is in tokens, prompt and output together."""

    name: str
    context_window: int
    dialect: str
    takes_reference: bool
    detail: str = ""
    """How it runs, for people: precision, kernels, threads."""


class Final(Struct, frozen=True):
    """How a generation ended. ``continuation`` is opaque: only the backend that made it can read it."""

    status: Literal["completed", "incomplete", "failed", "cancelled"]
    usage: Usage
    continuation: object = None


class Generation(Protocol):
    """One running response."""

    def __aiter__(self) -> AsyncIterator[Event]:
        """Events in order; the last is ``completed``, ``incomplete`` or ``failed``. May be iterated once."""
        ...

    async def stop(self, reason: StopReason) -> Final:
        """End it now and free what it holds. Safe at any moment and more than once; returns when it has ended."""
        ...


class Service(Protocol):
    """Whatever answers requests. Raises :class:`vivace.errors.VivaceError` for what the caller did wrong."""

    async def open(self, model: str) -> ModelCard:
        """Make ``model`` ready to answer (start its engine, load its weights) and describe it."""
        ...

    async def input_tokens(self, request: ResponseRequest) -> int:
        """Tokens that the request's prompt takes, template included."""
        ...

    def start(self, request: ResponseRequest, principal: Principal) -> Generation:
        """Begin to answer. Everything that can fail later arrives as an event."""
        ...

    async def close(self) -> None:
        """Stop what runs and free everything."""
        ...

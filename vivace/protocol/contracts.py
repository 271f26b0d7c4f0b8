"""The contracts that every room above the engine is written against.

The agent gets a :class:`Service` from the command that starts it: the local one in the same process, or a client over
a socket. The door of a server needs a :class:`Gateway`. Whoever wants an answer to end calls :meth:`Generation.stop`;
nobody cancels by closing an iterator.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Literal, Protocol

from msgspec import Struct, field

from vivace.protocol.errors import BadRequest
from vivace.protocol.events import Event
from vivace.protocol.items import Item, Response
from vivace.protocol.requests import ClientFrame, ResponseRequest
from vivace.protocol.usage import Usage

StopReason = Literal["disconnect", "steered", "cancelled", "lost_race"]


class Principal(Struct, frozen=True):
    """Who asks. Quotas, keys and the ledger hang on it.

    ``key`` is the id of the API key (never the key itself), ``plan`` the name of what the principal has bought; both
    are empty where no keys are in use. ``metadata`` says what the connection told about the caller.
    """

    id: str = "local"
    key: str = ""
    plan: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)


class Price(Struct, frozen=True):
    """What a million tokens cost in the tier that serves who asks for none. ``cached`` is for input that was found in
    KV memory; ``currency`` is a label."""

    input: float = 0.0
    cached: float = 0.0
    output: float = 0.0
    currency: str = "USD"

    def of(self, usage: Usage) -> float:
        """The cost of a response, in the currency."""
        cached = usage.input_tokens_details.cached_tokens
        fresh = usage.input_tokens - cached
        return (fresh * self.input + cached * self.cached + usage.output_tokens * self.output) / 1_000_000


FREE = Price()
"""Of models that run here."""


class ModelCard(Struct, frozen=True):
    """What a model offers. ``context_window`` is in tokens, prompt and output together."""

    name: str
    context_window: int
    dialect: str
    takes_reference: bool
    detail: str = ""
    """How it runs, for people: precision, kernels, threads."""
    tools: bool = False
    """It calls tools."""
    reasoning: bool = False
    """It thinks before it answers."""
    owned_by: str = "vivace"
    tiers: tuple[str, ...] = ()
    """The service tiers that answer for it; empty where nobody sells any."""
    price: Price | None = None
    """None where nobody says it."""
    grammars: bool = False
    """Every token of an answer keeps to the grammar that a request's text format gives."""
    free_slots: int | None = None
    """Responses that could begin at once when the card was asked for; None where nobody says."""


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


class Stream(Generation, Protocol):
    """A generation as a door reads it: everything that is ready at once, so that one write carries it."""

    headers: dict[str, str]
    """For the HTTP answer: limits and what is left of them, the tier that serves."""

    @property
    def response_id(self) -> str: ...

    async def ready(self) -> list[Event]:
        """The events that have come since the last call, at least one; empty once the last was given.

        While nothing happens a :class:`vivace.protocol.events.Keepalive` comes every few seconds.
        """
        ...


class Line(Protocol):
    """One client's lasting connection: lanes of responses, steering, cancelling."""

    def submit(self, frame: ClientFrame) -> None:
        """Take a frame in. Never waits; what is wrong with it comes back as an event on its lane."""
        ...

    def refuse(self, error: BadRequest) -> None:
        """Queue the error frame of a frame that could not be read."""
        ...

    async def ready(self) -> list[Event]:
        """The events that have come since the last call, in order; empty once the line is closed."""
        ...

    async def close(self) -> None:
        """End what runs on it, as a client does that goes away."""
        ...


class Gateway(Service, Protocol):
    """A service that a door can be put in front of. Raises :class:`BadRequest` and :class:`Refused`, which know their
    HTTP status."""

    @property
    def busy(self) -> bool:
        """A response runs, whether or not somebody reads it."""
        ...

    async def input_tokens(self, request: ResponseRequest, principal: Principal | None = None) -> int:
        """As :meth:`Service.input_tokens`, of a model that ``principal`` may use and of its chains."""
        ...

    async def models(self, principal: Principal) -> list[ModelCard]:
        """The models that ``principal`` may use."""
        ...

    async def respond(self, request: ResponseRequest, principal: Principal) -> Stream:
        """Check a request, reserve what it may use, and begin to answer; waiting for a slot is told by events."""
        ...

    def connect(self, principal: Principal) -> Line:
        """Open a line."""
        ...

    async def retrieve(self, response_id: str, principal: Principal) -> Response:
        """A response that was stored or still runs, as it is now."""
        ...

    async def resume(self, response_id: str, principal: Principal, after: int = -1) -> Stream:
        """The events of a stored background response beyond sequence number ``after``, and those still to come."""
        ...

    async def delete(self, response_id: str, principal: Principal) -> None:
        """Forget a stored response."""
        ...

    async def cancel(self, response_id: str, principal: Principal) -> Response:
        """End a running response; one that has ended is given as it is."""
        ...

    async def input_items(self, response_id: str, principal: Principal) -> list[Item]:
        """What a response was given, oldest first, its chain included."""
        ...

    async def compact(self, request: ResponseRequest, principal: Principal) -> tuple[list[Item], Usage]:
        """The window that stands for the request's conversation from now on, and what making it cost."""
        ...

    async def overview(self, principal: Principal) -> dict[str, Any]:
        """What the console shows, as JSON values: running responses (id, model, tier, state, tokens, tokens a second,
        seconds), the queue by tier, meters, and the sums of the ledger, which may be some seconds old."""
        ...

    async def drain(self, seconds: float) -> None:
        """Take no new work and wait for what runs, at most so long."""
        ...

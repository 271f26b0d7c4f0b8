"""Responses after their end: retrieved, replayed, continued by id, deleted."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator

import msgspec
from msgspec import Struct
from sqlalchemy.exc import SQLAlchemyError

from vivace.dialects.tools import ToolTable
from vivace.errors import VivaceError
from vivace.protocol import events as ev
from vivace.protocol import items as it
from vivace.protocol.contracts import Final, Principal, StopReason
from vivace.protocol.errors import Refused
from vivace.protocol.items import Item, Response, encode, items_of
from vivace.protocol.requests import ResponseRequest
from vivace.protocol.unions import dec_hook
from vivace.protocol.usage import Usage
from vivace.service.chains import Chains, Link
from vivace.service.event_log import pack, unpack
from vivace.service.reading import read_after, read_items, wants_compaction
from vivace.service.response_store import ResponseStore, StoredResponse
from vivace.service.sealing import Sealer
from vivace.service.turn import Turn
from vivace.service.writer import Row

RECENT = 512
"""Ended responses whose objects and events are kept in memory."""
RETENTION = 30 * 86400.0
"""Seconds that a stored response is kept: OpenAI's 30 days."""
LEASE = 15.0
"""Seconds for which a server vouches for a background response that it runs. Another one, or the same after a restart,
finds it failed when they are over."""

log = logging.getLogger(__name__)

_response = msgspec.json.Decoder(Response, dec_hook=dec_hook).decode
_request = msgspec.json.Decoder(ResponseRequest, dec_hook=dec_hook).decode


class _Kept(Struct):
    principal: str
    response: Response
    history: list[ev.Event] | None


class Keeper:
    """Keeps what is to be kept: in ``store`` where there is one, and the latest in memory.

    ``retention`` is how many seconds a response stays in the store; None keeps it until it is deleted.
    """

    def __init__(
        self, store: ResponseStore | None, recent: int = RECENT, *, retention: float | None = RETENTION
    ) -> None:
        self.store = store
        self.retention = retention
        self._recent: OrderedDict[str, _Kept] = OrderedDict()
        self._most = recent
        self._running: dict[str, Turn] = {}
        """Background responses that the store knows of."""

    def began(self, turn: Turn) -> None:
        """Have it known that a background response runs: it is found, whatever becomes of this process."""
        if self.store is None:
            return
        given, previous = _given(turn)
        stored = self._record(turn, turn.snapshot(), given, previous)
        try:
            self.store.begin(msgspec.structs.replace(stored, alive=time.time() + LEASE))
        except VivaceError as error:
            log.error("background response %s is not known to the database: %s", turn.response_id, error)
        else:
            self._running[turn.response_id] = turn

    async def vouch(self, patience: float = LEASE) -> None:
        """Say of the background responses that run here that they do; called often enough that no lease ends.

        Raises :class:`VivaceError` when the database does not answer within ``patience`` seconds.
        """
        self._running = {id: turn for id, turn in self._running.items() if not turn.ended.is_set()}
        if self.store is not None and self._running:
            await self.store.renew(list(self._running), time.time() + LEASE).wait(patience)

    async def purge(self) -> int:
        """Delete stored responses whose time is over; how many there were."""
        now = time.time()
        if self.retention is not None:
            old = [id for id, kept in self._recent.items() if kept.response.created_at + self.retention <= now]
            for id in old:
                del self._recent[id]
        return 0 if self.store is None else await self.store.purge(now)

    def rows(self, turn: Turn, link: Link | None) -> list[Row]:
        """Keep an ended turn unless its request forbids it; gives the rows that belong into the database."""
        asked = turn.asked
        if asked.request.store is False:
            return []
        self._recent[turn.response_id] = _Kept(asked.principal.id, turn.response, turn.history)
        while len(self._recent) > self._most:
            self._recent.popitem(last=False)
        if self.store is None:
            return []
        given, previous = _given(turn)
        if link is not None:
            link.stored, link.whole = True, previous is None
        self._running.pop(turn.response_id, None)
        events = None if turn.history is None else pack([*turn.history, _ending(turn.history, turn.response)])
        stored = self._record(turn, turn.response, given, previous)
        return [self.store.row(msgspec.structs.replace(stored, events=events))]

    async def response(self, id: str, principal: Principal) -> Response:
        """Raises :class:`Refused` where there is none."""
        kept = self._recent.get(id)
        if kept is not None and kept.principal == principal.id:
            return kept.response
        stored = await self._stored(id, principal)
        if stored is None:
            raise not_found(id)
        return _as_it_stands(stored)

    async def load(self, id: str, principal: Principal, chains: Chains, sealer: Sealer) -> Link | None:
        """The link of a stored response, with those before it; None where one of them is gone, or it failed."""
        found: list[StoredResponse] = []
        parent: Link | None = None
        wanted: str | None = id
        while wanted is not None and parent is None:
            stored = await self._stored(wanted, principal, expired=bool(found))
            if stored is None and found and _stands_alone(found[-1]):
                break
            if stored is None or stored.alive is not None:
                return None
            if not found and _response(stored.response).status == "failed":
                return None
            found.append(stored)
            wanted = stored.previous
            parent = chains.get(wanted, principal.id) if wanted is not None else None
        for stored in reversed(found):
            parent = _link(stored, parent, sealer)
            chains.add(parent)
        return parent

    async def given(self, id: str, principal: Principal, chains: Chains, sealer: Sealer) -> list[Item]:
        """What a stored response was given from which nothing goes on: it failed, or another server makes it.

        Raises :class:`Refused` where there is none.
        """
        stored = await self._stored(id, principal)
        if stored is None:
            raise not_found(id)
        given, before = items_of(msgspec.Raw(stored.items)), None
        if stored.previous is not None:
            known = chains.get(stored.previous, principal.id)
            before = known or await self.load(stored.previous, principal, chains, sealer)
        return given if before is None else [*before.all_given(), *before.made, *given]

    async def delete(self, id: str, principal: Principal) -> None:
        """Raises :class:`Refused` where there is none."""
        kept = self._recent.get(id)
        here = kept is not None and kept.principal == principal.id
        if here:
            del self._recent[id]
        try:
            there = self.store is not None and await self.store.delete(id, principal.id)
        except SQLAlchemyError as error:
            raise _unavailable(error) from error
        if not here and not there:
            raise not_found(id)

    async def replay(self, id: str, principal: Principal, after: int, turn: Turn | None) -> Replay:
        """The events of a background response beyond ``after``, those to come included."""
        if turn is not None and turn.history is not None:
            return Replay(turn.response, turn.history, after, turn)
        if turn is not None:
            raise _no_events(id)
        kept = self._recent.get(id)
        if kept is not None and kept.principal == principal.id and kept.history is not None:
            # Of what kept connections alive then nobody needs to hear.
            told: list[ev.Event] = [event for event in kept.history if not isinstance(event, ev.Keepalive)]
            return Replay(kept.response, told, after, None)
        stored = await self._stored(id, principal)
        if stored is None:
            raise not_found(id)
        response = _as_it_stands(stored)
        return Replay(response, await self._events(stored, response, after), after, None)

    async def _events(self, stored: StoredResponse, response: Response, after: int) -> list[ev.Event]:
        """The events of a response that another process made. Raises :class:`Refused` where they cannot be told."""
        if stored.alive is None:
            assert self.store is not None
            try:
                packed = await self.store.events(stored.id, stored.principal, time.time())
            except SQLAlchemyError as error:
                raise _unavailable(error) from error
            if packed is None:
                raise _no_events(stored.id)
            return unpack(packed)
        if response.status != "failed":
            raise Refused(
                f"The response '{stored.id}' runs on another server; retrieve it without stream.",
                409,
                "stream_not_available",
                "stream",
            )
        # What it had said went with its server. Whoever was told some of it hears of the end next.
        return [ev.Created(0, _response(stored.response)), ev.Failed(max(1, after + 1), response)]

    def _record(self, turn: Turn, response: Response, given: list[Item], previous: str | None) -> StoredResponse:
        asked = turn.asked
        return StoredResponse(
            id=turn.response_id,
            principal=asked.principal.id,
            created=turn.started,
            request=encode(msgspec.structs.replace(asked.request, input=[], prediction=None)),
            response=encode(response),
            items=encode(given),
            previous=previous,
            expires=None if self.retention is None else turn.started + self.retention,
        )

    async def _stored(self, id: str, principal: Principal, expired: bool = False) -> StoredResponse | None:
        """``expired`` finds one whose time is over too: what a kept response goes on from is kept with it."""
        try:
            now = None if expired else time.time()
            return None if self.store is None else await self.store.get(id, principal.id, now)
        except SQLAlchemyError as error:
            raise _unavailable(error) from error


class Replay:
    """See :class:`vivace.protocol.contracts.Stream`; stopping it ends the reading, not the response."""

    def __init__(self, response: Response, history: list[ev.Event], after: int, turn: Turn | None) -> None:
        self.response_id = response.id
        self.headers: dict[str, str] = {}
        self._history = history
        self._after = after
        self._place = 0
        self._turn = turn
        self._usage = response.usage or Usage()

    async def ready(self) -> list[ev.Event]:
        while True:
            # Of those to come, too: whoever asks may be ahead of what was told.
            events = [event for event in self._history[self._place :] if (event.sequence_number or 0) > self._after]
            self._place = len(self._history)
            if events:
                return events
            if self._turn is None or self._turn.ended.is_set():
                return []
            await self._turn.more_than(self._place)

    async def __aiter__(self) -> AsyncIterator[ev.Event]:
        while events := await self.ready():
            for event in events:
                yield event

    async def stop(self, reason: StopReason) -> Final:
        return self._turn.final if self._turn is not None else Final("completed", self._usage)


def not_found(response_id: str, param: str | None = None) -> Refused:
    """The refusal of an unknown id; as ``previous_response_id`` it is a fault of the request."""
    if param is not None:
        message = f"Previous response with id '{response_id}' not found."
        return Refused(message, 400, "previous_response_not_found", param)
    return Refused(f"Response with id '{response_id}' not found.", 404, "response_not_found")


def _no_events(id: str) -> Refused:
    return Refused(
        f"The events of response '{id}' are not kept: it was not made with background=true, or has ended too long ago. "
        "Retrieve it without stream.",
        400,
        "stream_not_available",
        "stream",
    )


def _unavailable(error: SQLAlchemyError) -> VivaceError:
    why = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
    return VivaceError(f"The database does not answer: {why}", code="database_unavailable")


def _given(turn: Turn) -> tuple[list[Item], str | None]:
    """What is stored as the input of a turn, and the stored response that comes before it."""
    parent, given = turn.asked.parent, turn.asked.given
    if parent is None:
        return given, None
    if parent.restorable:
        return given, parent.id
    return [*parent.items(), *given], None  # what it continues is in no database


def _ending(told: list[ev.Event], response: Response) -> ev.Event:
    """The last event, as it follows those that a turn has told when it is written down."""
    number = (told[-1].sequence_number or 0) + 1 if told else 0
    match response.status:
        case "completed":
            return ev.Completed(number, response)
        case "failed":
            return ev.Failed(number, response)
        case _:
            return ev.Incomplete(number, response)


def _as_it_stands(stored: StoredResponse) -> Response:
    """The object of a stored response; one that still ran when its server was gone has failed."""
    response = _response(stored.response)
    if stored.alive is not None and stored.alive <= time.time():
        response.status = "failed"
        response.error = it.ResponseError("server_error", "The server ended before the response did.")
    return response


def _stands_alone(stored: StoredResponse) -> bool:
    """Whether it has a summary of what was before it."""
    return any(isinstance(item, it.Compaction) for item in _response(stored.response).output)


def _link(stored: StoredResponse, parent: Link | None, sealer: Sealer) -> Link:
    request, response = _request(stored.request), _response(stored.response)
    given: list[Item] = items_of(msgspec.Raw(stored.items))
    read = read_items(given, sealer, lambda id: None)
    additional = [item for item in read if isinstance(item, it.AdditionalTools)]
    inherited = parent.additional if parent is not None else ()
    table = ToolTable.of(
        request.tools or [], request.tool_choice, request.parallel_tool_calls, [*inherited, *additional]
    )
    read, alone = read_after(parent, read, response.output, wants_compaction(given), sealer)
    link = Link(
        stored.id,
        stored.principal,
        response.model,
        None if alone else parent,
        given,
        response.output,
        read,
        instructions=request.instructions,
        tools=table.digest,
        tokens=response.usage.total_tokens if response.usage is not None else 0,
    )
    link.stored, link.whole = True, stored.previous is None
    return link

"""Responses after their end: retrieved, replayed, continued by id, deleted."""

from __future__ import annotations

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
from vivace.service.reading import read_after, read_items, wants_compaction
from vivace.service.response_store import ResponseStore, StoredResponse
from vivace.service.sealing import Sealer
from vivace.service.turn import Turn
from vivace.service.writer import Row

RECENT = 512
"""Ended responses whose objects and events are kept in memory."""

_response = msgspec.json.Decoder(Response, dec_hook=dec_hook).decode
_request = msgspec.json.Decoder(ResponseRequest, dec_hook=dec_hook).decode


class _Kept(Struct):
    principal: str
    response: Response
    history: list[ev.Event] | None


class Keeper:
    """Keeps what is to be kept: in ``store`` where there is one, and the latest in memory."""

    def __init__(self, store: ResponseStore | None, recent: int = RECENT) -> None:
        self.store = store
        self._recent: OrderedDict[str, _Kept] = OrderedDict()
        self._most = recent

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
        parent, given, previous = asked.parent, asked.given, None
        if parent is not None and parent.restorable:
            previous = parent.id
        elif parent is not None:
            given = [*parent.items(), *given]  # what it continues is in no database
        if link is not None:
            link.stored, link.whole = True, previous is None
        stored = StoredResponse(
            id=turn.response_id,
            principal=asked.principal.id,
            created=turn.started,
            request=encode(msgspec.structs.replace(asked.request, input=[], prediction=None)),
            response=encode(turn.response),
            items=encode(given),
            previous=previous,
        )
        return [self.store.row(stored)]

    async def response(self, id: str, principal: Principal) -> Response:
        """Raises :class:`Refused` where there is none."""
        kept = self._recent.get(id)
        if kept is not None and kept.principal == principal.id:
            return kept.response
        stored = await self._stored(id, principal)
        if stored is None:
            raise not_found(id)
        return _response(stored.response)

    async def load(self, id: str, principal: Principal, chains: Chains, sealer: Sealer) -> Link | None:
        """The link of a stored response, with those before it; None where one of them is gone, or it failed."""
        found: list[StoredResponse] = []
        parent: Link | None = None
        wanted: str | None = id
        while wanted is not None and parent is None:
            stored = await self._stored(wanted, principal)
            if stored is None and found and _stands_alone(found[-1]):
                break
            if stored is None or (not found and _response(stored.response).status == "failed"):
                return None
            found.append(stored)
            wanted = stored.previous
            parent = chains.get(wanted, principal.id) if wanted is not None else None
        for stored in reversed(found):
            parent = _link(stored, parent, sealer)
            chains.add(parent)
        return parent

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
        response = await self.response(id, principal)  # says so when there is no such response
        raise _no_events(response.id)

    async def _stored(self, id: str, principal: Principal) -> StoredResponse | None:
        try:
            return None if self.store is None else await self.store.get(id, principal.id, time.time())
        except SQLAlchemyError as error:
            raise _unavailable(error) from error


class Replay:
    """See :class:`vivace.protocol.contracts.Stream`; stopping it ends the reading, not the response."""

    def __init__(self, response: Response, history: list[ev.Event], after: int, turn: Turn | None) -> None:
        self.response_id = response.id
        self.headers: dict[str, str] = {}
        self._history = history
        self._place = next((i for i, event in enumerate(history) if (event.sequence_number or 0) > after), len(history))
        self._turn = turn
        self._usage = response.usage or Usage()

    async def ready(self) -> list[ev.Event]:
        while self._place >= len(self._history):
            if self._turn is None or self._turn.ended.is_set():
                return []
            await self._turn.more_than(self._place)
        events = self._history[self._place :]
        self._place = len(self._history)
        return events

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

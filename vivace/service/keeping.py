"""Responses after their end: retrieved, replayed, continued by id, deleted."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import AsyncIterator

import msgspec
from msgspec import Struct

from vivace.dialects.tools import ToolTable
from vivace.protocol import events as ev
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
        parent = asked.parent
        stored = StoredResponse(
            id=turn.response_id,
            principal=asked.principal.id,
            created=turn.started,
            request=encode(msgspec.structs.replace(asked.request, input=[], prediction=None)),
            response=encode(turn.response),
            items=encode(asked.given),
            previous=parent.id if parent is not None else None,
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
        """The link of a stored response, with those before it; None where one of them is gone."""
        found: list[StoredResponse] = []
        parent: Link | None = None
        wanted: str | None = id
        while wanted is not None and parent is None:
            stored = await self._stored(wanted, principal)
            if stored is None:
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
        there = self.store is not None and await self.store.delete(id, principal.id)
        if not here and not there:
            raise not_found(id)

    async def replay(self, id: str, principal: Principal, after: int, turn: Turn | None) -> Replay:
        """The events of a background response beyond ``after``, those to come included."""
        if turn is not None and turn.history is not None:
            return Replay(turn.response, turn.history, after, turn)
        kept = self._recent.get(id)
        if kept is not None and kept.principal == principal.id and kept.history is not None:
            return Replay(kept.response, kept.history, after, None)
        response = await self.response(id, principal)  # says so when there is no such response
        raise Refused(
            f"The events of response '{response.id}' are not kept: it was not made with background=true, or has ended "
            "too long ago. Retrieve it without stream.",
            400,
            "stream_not_available",
            "stream",
        )

    async def _stored(self, id: str, principal: Principal) -> StoredResponse | None:
        return None if self.store is None else await self.store.get(id, principal.id, time.time())


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


def _link(stored: StoredResponse, parent: Link | None, sealer: Sealer) -> Link:
    request, response = _request(stored.request), _response(stored.response)
    given: list[Item] = items_of(msgspec.Raw(stored.items))
    read = read_items(given, sealer, lambda id: None)
    before = parent.items() if parent is not None else []
    table = ToolTable.of(request.tools or [], request.tool_choice, request.parallel_tool_calls, [*before, *read])
    read, alone = read_after(read, response.output, wants_compaction(given), sealer)
    return Link(
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

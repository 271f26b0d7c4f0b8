"""Responses that were asked for with ``store: true``: kept for retrieval and for chains that outlive a connection."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct
from sqlalchemy import Engine, bindparam, delete, select, update
from sqlalchemy.dialects import postgresql, sqlite

from vivace.errors import UsageError
from vivace.service.database import responses
from vivace.service.writer import Ack, Row, Writer

LARGEST_PAGE = 100
DELETE_PATIENCE = 5.0
"""Seconds that a deletion waits for a database that does not answer."""
PURGED_AT_ONCE = 500
"""Responses that are deleted in one transaction."""


class StoredResponse(Struct, frozen=True, kw_only=True):
    """One response. ``request``, ``response`` and ``items`` are JSON; ``items`` is the list of its input items.

    Times are seconds since the epoch; ``expires`` None keeps it until it is deleted. ``alive`` is there while a
    background response runs: until then its server vouches for it. ``events`` are those of a background response that
    has ended (:mod:`vivace.service.event_log`); :meth:`ResponseStore.get` leaves them out.
    """

    id: str
    principal: str
    created: float
    request: bytes
    response: bytes
    items: bytes
    previous: str | None = None
    expires: float | None = None
    events: bytes | None = None
    alive: float | None = None


class Page(Struct, frozen=True):
    """A page of input items, in the shape that OpenAI's API lists them."""

    data: list[Raw]
    first_id: str | None
    last_id: str | None
    has_more: bool
    object: Literal["list"] = "list"


class _Identified(Struct):
    id: str | None = None


class ResponseStore:
    """The responses table. Everybody sees only their own: another principal's response is as good as none."""

    def __init__(self, engine: Engine, writer: Writer) -> None:
        self._engine = engine
        self._writer = writer
        make = postgresql.insert if engine.dialect.name == "postgresql" else sqlite.insert
        statement = make(responses)
        changed = {name: statement.excluded[name] for name in _CHANGED}
        # An id of somebody else is left alone.
        self._upsert = statement.on_conflict_do_update(
            index_elements=["id"], set_=changed, where=responses.c.principal == statement.excluded.principal
        )
        writer.name("response", self._upsert)
        # Whichever of the two rows of a background response is written first, that of its end stays.
        self._begin = make(responses).on_conflict_do_nothing(index_elements=["id"])
        writer.name("response begun", self._begin)

    def row(self, stored: StoredResponse) -> Row:
        """The row to write along with the ledger's (:meth:`vivace.service.ledger.Ledger.record`), in one commit."""
        return self._upsert, _parameters(stored)

    def put(self, stored: StoredResponse) -> Ack:
        """Write or replace it. Returns at once; it can be read when the ack is done."""
        return self._writer.put(self.row(stored))

    def begin(self, stored: StoredResponse) -> Ack:
        """Write that it runs, unless its end is written already. Returns at once."""
        return self._writer.put((self._begin, _parameters(stored)))

    def renew(self, ids: list[str], until: float) -> Ack:
        """Vouch for background responses that still run. Returns at once."""
        return self._writer.put(*((_RENEW, {"which": id, "until": int(until * 1000)}) for id in ids))

    async def get(self, id: str, principal: str, now: float | None) -> StoredResponse | None:
        """The response, or None when it is unknown, somebody else's, deleted or expired. ``now`` None takes one that
        has expired too: what another one goes on from."""
        return await asyncio.to_thread(self._get, id, principal, now)

    async def events(self, id: str, principal: str, now: float) -> bytes | None:
        """The events of a background response that has ended; None where there are none."""
        return await asyncio.to_thread(self._events, id, principal, now)

    async def delete(self, id: str, principal: str) -> bool:
        """Whether there was one to delete. What was put before is written first, so that it does not come back."""
        await self._writer.put().wait(DELETE_PATIENCE)
        return await asyncio.to_thread(self._delete, id, principal)

    async def input_items(
        self,
        id: str,
        principal: str,
        now: float,
        *,
        after: str | None = None,
        limit: int = 20,
        order: Literal["asc", "desc"] = "desc",
    ) -> Page | None:
        """A page of the items that went in; None when there is no such response. ``after`` is the last id seen."""
        if not 1 <= limit <= LARGEST_PAGE:
            raise UsageError(f"limit has to be from 1 to {LARGEST_PAGE}", code="invalid_value", param="limit")
        stored = await self.get(id, principal, now)
        if stored is None:
            return None
        items = msgspec.json.decode(stored.items, type=list[Raw])
        ids = [msgspec.json.decode(item, type=_Identified).id for item in items]
        if order == "desc":
            items.reverse()
            ids.reverse()
        if after is not None and after not in ids:
            raise UsageError(f"There is no item {after!r} in {id}", code="invalid_value", param="after")
        start = 0 if after is None else ids.index(after) + 1
        shown = ids[start : start + limit]
        return Page(
            data=items[start : start + limit],
            first_id=shown[0] if shown else None,
            last_id=shown[-1] if shown else None,
            has_more=start + limit < len(items),
        )

    async def purge(self, now: float) -> int:
        """Delete what has expired and what no other response goes on from; how many there were."""
        return await asyncio.to_thread(self._purge, now)

    def _get(self, id: str, principal: str, now: float | None) -> StoredResponse | None:
        query = select(*_READ).where(responses.c.id == id, responses.c.principal == principal)
        with self._engine.connect() as connection:
            row = connection.execute(query).mappings().one_or_none()
        if row is None or (now is not None and row["expires"] is not None and row["expires"] <= now * 1000):
            return None
        return StoredResponse(**{**row, **{name: _seconds(row[name]) for name in _TIMES}})

    def _events(self, id: str, principal: str, now: float) -> bytes | None:
        query = select(responses.c.events, responses.c.expires).where(
            responses.c.id == id, responses.c.principal == principal
        )
        with self._engine.connect() as connection:
            row = connection.execute(query).one_or_none()
        if row is None or row[0] is None or (row[1] is not None and row[1] <= now * 1000):
            return None
        return bytes(row[0])

    def _delete(self, id: str, principal: str) -> bool:
        statement = delete(responses).where(responses.c.id == id, responses.c.principal == principal)
        with self._engine.begin() as connection:
            return connection.execute(statement).rowcount > 0

    def _purge(self, now: float) -> int:
        later = responses.alias("later")
        continued = select(later.c.id).where(later.c.previous == responses.c.id).exists()
        # A batch at a time, so that what is to be written waits for little.
        batch = select(responses.c.id).where(responses.c.expires <= int(now * 1000), ~continued).limit(PURGED_AT_ONCE)
        count = 0
        while True:
            with self._engine.begin() as connection:
                ids = list(connection.execute(batch).scalars())
                if not ids:
                    return count
                count += connection.execute(delete(responses).where(responses.c.id.in_(ids))).rowcount


def _parameters(stored: StoredResponse) -> dict[str, Any]:
    parameters: dict[str, Any] = msgspec.structs.asdict(stored)
    return {**parameters, **{name: _milliseconds(parameters[name]) for name in _TIMES}}


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1000)


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


_CHANGED = ("request", "response", "items", "expires", "events", "alive")
_TIMES = ("created", "expires", "alive")
_READ = [column for column in responses.c if column.name != "events"]
_RENEW = (
    update(responses)
    .where(responses.c.id == bindparam("which"), responses.c.alive.is_not(None))
    .values(alive=bindparam("until"))
)

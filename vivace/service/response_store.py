"""Responses that were asked for with ``store: true``: kept for retrieval and for chains that outlive a connection."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct
from sqlalchemy import Engine, delete, select
from sqlalchemy.dialects import postgresql, sqlite

from vivace.errors import UsageError
from vivace.service.database import responses
from vivace.service.writer import Ack, Row, Writer

LARGEST_PAGE = 100


class StoredResponse(Struct, frozen=True, kw_only=True):
    """One response. ``request``, ``response`` and ``items`` are JSON; ``items`` is the list of its input items.

    Times are seconds since the epoch; ``expires`` None keeps it until it is deleted.
    """

    id: str
    principal: str
    created: float
    request: bytes
    response: bytes
    items: bytes
    previous: str | None = None
    expires: float | None = None


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
        changed = {name: statement.excluded[name] for name in ("request", "response", "items", "expires")}
        # An id of somebody else is left alone.
        self._upsert = statement.on_conflict_do_update(
            index_elements=["id"], set_=changed, where=responses.c.principal == statement.excluded.principal
        )
        writer.name("response", self._upsert)

    def row(self, stored: StoredResponse) -> Row:
        """The row to write along with the ledger's (:meth:`vivace.service.ledger.Ledger.record`), in one commit."""
        parameters: dict[str, Any] = msgspec.structs.asdict(stored)
        parameters["created"] = int(stored.created * 1000)
        parameters["expires"] = None if stored.expires is None else int(stored.expires * 1000)
        return self._upsert, parameters

    def put(self, stored: StoredResponse) -> Ack:
        """Write or replace it. Returns at once; it can be read when the ack is done."""
        return self._writer.put(self.row(stored))

    async def get(self, id: str, principal: str, now: float) -> StoredResponse | None:
        """The response, or None when it is unknown, somebody else's, deleted or expired."""
        return await asyncio.to_thread(self._get, id, principal, now)

    async def delete(self, id: str, principal: str) -> bool:
        """Whether there was one to delete."""
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
        """Delete what has expired; how many there were."""
        return await asyncio.to_thread(self._purge, now)

    def _get(self, id: str, principal: str, now: float) -> StoredResponse | None:
        query = select(responses).where(responses.c.id == id, responses.c.principal == principal)
        with self._engine.connect() as connection:
            row = connection.execute(query).mappings().one_or_none()
        if row is None or (row["expires"] is not None and row["expires"] <= now * 1000):
            return None
        expires = None if row["expires"] is None else row["expires"] / 1000
        return StoredResponse(**{**row, "created": row["created"] / 1000, "expires": expires})

    def _delete(self, id: str, principal: str) -> bool:
        statement = delete(responses).where(responses.c.id == id, responses.c.principal == principal)
        with self._engine.begin() as connection:
            return connection.execute(statement).rowcount > 0

    def _purge(self, now: float) -> int:
        with self._engine.begin() as connection:
            return connection.execute(delete(responses).where(responses.c.expires <= int(now * 1000))).rowcount

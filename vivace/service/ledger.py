"""Who used what, and what it cost: one row for each response, in the database, written off the hot path.

Also what is derived from it: sums for the console, what the meters have to know, and the credits that pay beyond plans.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from msgspec import Struct
from sqlalchemy import BigInteger, Engine, bindparam, func, insert, literal_column, select, update

from vivace.protocol.items import Usage
from vivace.service.database import credits, usage
from vivace.service.meters import Account, Use
from vivace.service.windows import Amount, step_of
from vivace.service.writer import Ack, Row, Writer

GroupBy = Literal["principal", "day", "model", "family", "tier", "key", "backend", "status"]

_INSERT = insert(usage)
_PAY = (
    update(credits).where(credits.c.principal == bindparam("who")).values(balance=credits.c.balance - bindparam("paid"))
)

_SUMS = {
    "requests": func.count(),
    "input_tokens": func.sum(usage.c.input_tokens),
    "cached_tokens": func.sum(usage.c.cached_tokens),
    "output_tokens": func.sum(usage.c.output_tokens),
    "reasoning_tokens": func.sum(usage.c.reasoning_tokens),
    "accepted_tokens": func.sum(usage.c.accepted_tokens),
    "cost": func.sum(usage.c.cost),
}


class Entry(Struct, frozen=True, kw_only=True):
    """One response that ended. Times are seconds since the epoch: ``created`` is when it was asked for.

    ``key`` is the shown prefix of the API key, '' without one. ``cost`` is in millionths of the currency; ``credits``
    tells that they pay it. ``ttft_ms`` is None when nothing came.
    """

    response: str
    principal: str
    model: str
    family: str
    tier: str
    backend: str
    status: str
    usage: Usage
    created: float
    ended: float
    key: str = ""
    cost: int = 0
    credits: bool = False
    ttft_ms: float | None = None
    queue_ms: float = 0.0


class Sum(Struct, frozen=True):
    """Use of one group. ``group`` holds the values grouped by, in the order asked; ``cost`` is in millionths."""

    group: tuple[str, ...]
    requests: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    reasoning_tokens: int
    accepted_tokens: int
    cost: int


class Ledger:
    """The usage table. ``server`` names this process among those on the same database.

    Methods that read run in a thread and may be awaited from any loop.
    """

    def __init__(self, engine: Engine, writer: Writer, server: str = "") -> None:
        self.server = server or uuid.uuid4().hex
        self._engine = engine
        self._writer = writer
        writer.name("usage", _INSERT)
        writer.name("payment", _PAY)
        self._last: Ack | None = None

    def record(self, entry: Entry, *also: Row) -> Ack:
        """Write an entry, and other rows together with it. Returns at once; the ack tells when it cannot be lost.

        A second entry of the same response is ignored, payment and all.
        """
        rows: list[Row] = [(_INSERT, self._row(entry)), *also]
        if entry.credits and entry.cost:
            rows.append((_PAY, {"who": entry.principal, "paid": entry.cost}))
        self._last = self._writer.put(*rows)
        return self._last

    async def flush(self, timeout: float | None = None) -> None:
        """Until everything recorded so far is committed. Raises as :meth:`vivace.service.writer.Ack.wait` does."""
        if self._last is not None:
            await self._last.wait(timeout)

    async def sums(
        self,
        by: Sequence[GroupBy] = ("principal", "day", "model"),
        *,
        principal: str | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> list[Sum]:
        """Use by group. ``since`` and ``until`` are UTC days such as ``2026-11-30``, both included."""
        columns = [usage.c[name] for name in by]
        query = select(*columns, *_SUMS.values()).group_by(*columns).order_by(*columns)
        if principal is not None:
            query = query.where(usage.c.principal == principal)
        if since is not None:
            query = query.where(usage.c.day >= since)
        if until is not None:
            query = query.where(usage.c.day <= until)
        width = len(columns)
        return [Sum(tuple(row[:width]), *(int(value or 0) for value in row[width:])) for row in await self._read(query)]

    async def latest(self, limit: int = 50, principal: str | None = None) -> list[dict[str, Any]]:
        """The newest rows, newest first, as written in the table."""
        query = select(usage).order_by(usage.c.id.desc()).limit(limit)
        if principal is not None:
            query = query.where(usage.c.principal == principal)
        return [dict(row._mapping) for row in await self._read(query)]

    async def newest(self) -> int:
        """The id of the newest row; 0 when there is none."""
        return int((await self._read(select(func.max(usage.c.id))))[0][0] or 0)

    async def used_within(self, seconds: int, now: float, upto: int) -> list[Use]:
        """What was used in the last ``seconds``, by the steps of a rolling window, in rows up to the id ``upto``."""
        step = step_of(seconds)
        after = int(now * 1000) - seconds * 1000 - step
        uses: list[Use] = []
        amounts = (func.sum(usage.c.input_tokens - usage.c.cached_tokens), func.sum(usage.c.cached_tokens))
        for moment, sums in (
            (usage.c.created, (func.count(),)),
            (usage.c.ended, (*amounts, func.sum(usage.c.output_tokens))),
        ):
            # Written out: PostgreSQL takes two parameters of the same value for two different expressions.
            bucket = moment // literal_column(str(step), BigInteger)
            group = (usage.c.principal, usage.c.family, usage.c.key, usage.c.credits, bucket)
            query = select(*group, *sums).where(moment > after, usage.c.id <= upto).group_by(*group)
            for who, family, key, paid, number, *values in await self._read(query):
                counts = [int(value) for value in values]
                amount = Amount(counts[0]) if moment is usage.c.created else Amount(0, *counts)
                uses.append(Use(who, family, key, paid, int(number) * step, amount))
        return uses

    async def since(self, after: int, *, others: bool) -> list[tuple[int, Use, Use]]:
        """Rows with an id above ``after``: the id, the request when it was asked, its tokens when it ended.

        ``others`` leaves out the rows of this server.
        """
        c = usage.c
        query = select(
            c.id,
            c.principal,
            c.family,
            c.key,
            c.credits,
            c.created,
            c.ended,
            c.input_tokens,
            c.cached_tokens,
            c.output_tokens,
        )
        query = query.where(c.id > after).order_by(c.id)
        if others:
            query = query.where(c.server != self.server)
        rows = []
        for number, who, family, key, paid, created, ended, read, cached, made in await self._read(query):
            asked = Use(who, family, key, paid, created, Amount(requests=1))
            used = Use(who, family, key, paid, ended, Amount(fresh=read - cached, cached=cached, output=made))
            rows.append((number, asked, used))
        return rows

    async def accounts(self) -> dict[str, Account]:
        """Every principal's credits."""
        return {who: Account(balance, opted_in) for who, balance, opted_in in await self._read(select(credits))}

    async def _read(self, query: Any) -> Sequence[Any]:
        return await asyncio.to_thread(self._read_now, query)

    def _read_now(self, query: Any) -> Sequence[Any]:
        with self._engine.connect() as connection:
            return connection.execute(query).fetchall()

    def _row(self, entry: Entry) -> dict[str, Any]:
        used = entry.usage
        return {
            "response": entry.response,
            "server": self.server,
            "principal": entry.principal,
            "key": entry.key,
            "model": entry.model,
            "family": entry.family,
            "tier": entry.tier,
            "backend": entry.backend,
            "status": entry.status,
            "input_tokens": used.input_tokens,
            "cached_tokens": used.input_tokens_details.cached_tokens,
            "output_tokens": used.output_tokens,
            "reasoning_tokens": used.output_tokens_details.reasoning_tokens,
            "accepted_tokens": used.output_tokens_details.accepted_prediction_tokens,
            "cost": entry.cost,
            "credits": entry.credits,
            "ttft_ms": None if entry.ttft_ms is None else round(entry.ttft_ms),
            "queue_ms": round(entry.queue_ms),
            "created": int(entry.created * 1000),
            "ended": int(entry.ended * 1000),
            "day": datetime.fromtimestamp(entry.ended, UTC).strftime("%Y-%m-%d"),
        }


def grant_credits(engine: Engine, principal: str, amount: int = 0, opted_in: bool | None = None) -> Account:
    """Add ``amount`` millionths (below 0 takes away) to a principal's credits, and set whether they are used."""
    with engine.begin() as connection:
        where = credits.c.principal == principal
        changes: dict[str, Any] = {"balance": credits.c.balance + amount}
        if opted_in is not None:
            changes["opted_in"] = opted_in
        if connection.execute(update(credits).where(where).values(changes)).rowcount == 0:
            row = {"principal": principal, "balance": amount, "opted_in": bool(opted_in)}
            connection.execute(insert(credits).values(row))
        balance, using = connection.execute(select(credits.c.balance, credits.c.opted_in).where(where)).one()
    return Account(balance, using)

"""What the console shows: responses that run, the queue, meters, and the sums of the ledger.

Whoever came in without a key is on this machine and sees everybody's; so do the gateway's ``operators``. Everybody else
sees what is theirs. The ledger is read in a thread, for all who look at once, and never for a response.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from sqlalchemy.exc import SQLAlchemyError

from vivace.backends.upstream_usage import estimate
from vivace.errors import VivaceError
from vivace.protocol.contracts import Principal
from vivace.service.ledger import Ledger, Sum
from vivace.service.turn import Turn

if TYPE_CHECKING:
    from vivace.service.gateway import LocalGateway

log = logging.getLogger(__name__)

SHOWN = 100
"""Running responses that are listed; more are only counted."""
LATEST = 20
"""Ended responses that are listed."""
FRESH = 5.0
"""Seconds that what was read of the ledger is shown without reading it again."""
STALE = 5.0
"""Seconds after those that it is shown while it is read again."""
SPARING = 20
"""A ledger that takes long to read is read the more seldom: that many times as long lies between."""
VIEWS = 64
"""Views of the ledger that are kept; one for each principal that looks."""

_COUNTED = ("requests", "input_tokens", "cached_tokens", "output_tokens", "cost")


class Overview:
    """Of one gateway."""

    def __init__(self, gateway: LocalGateway, clock: Callable[[], float] = time.time) -> None:
        self._gateway = gateway
        self._clock = clock
        self.ticks = time.monotonic
        self._seen: dict[tuple[str, str], Principal] = {}
        """Who used something since the start, by principal and key, for their plans."""
        self._used: dict[str, Counter[str]] = {}
        """What each principal used since the start; the ledger has all of it."""
        self._views: dict[str, _View] = {}

    def ended(self, principal: Principal, **amounts: int) -> None:
        """A response was settled."""
        self._seen[principal.id, principal.key] = principal
        self._used.setdefault(principal.id, Counter()).update(amounts, requests=1)

    async def of(self, principal: Principal) -> dict[str, Any]:
        """See :meth:`vivace.protocol.contracts.Gateway.overview`."""
        gateway = self._gateway
        everybody = not principal.key or principal.id in gateway.operators
        turns = [turn for turn in gateway.turns.values() if everybody or turn.asked.principal.id == principal.id]
        used = sum((c for who, c in self._used.items() if everybody or who == principal.id), Counter[str]())
        view = await self._view("" if everybody else principal.id) if gateway.ledger is not None else None
        live = [_tokens(turn) for turn in turns]
        return {
            "now": time.monotonic(),
            "everybody": everybody,
            # A turn that waits for its receipt was settled, and counts already.
            "made": used["output_tokens"]
            + sum(tokens for turn, (tokens, _) in zip(turns, live, strict=True) if turn.asked.reservation.open),
            "running": [_told(turn, *tokens) for turn, tokens in zip(turns[:SHOWN], live, strict=False)],
            "more": max(0, len(turns) - SHOWN),
            "queue": {
                tier: sum(gateway.queue.waiting(backend, tier) for backend in gateway.backends.opened())
                for tier in gateway.tiers.tiers
            },
            "meters": list(self._meters(principal, turns, everybody)),
            "since_start": dict(used),
            "ledger": view,
        }

    async def close(self) -> None:
        """Wait for what is being read."""
        reading = [view.reading for view in self._views.values() if view.reading is not None]
        if reading:
            await asyncio.wait(reading)

    def _meters(self, principal: Principal, turns: list[Turn], everybody: bool) -> Iterable[dict[str, Any]]:
        """Where meters stand: all of the caller's, and of others those that count something."""
        gateway, now = self._gateway, self._clock()
        known = {(principal.id, principal.key): principal}
        if everybody:
            known |= self._seen | {(t.asked.principal.id, t.asked.principal.key): t.asked.principal for t in turns}
        told: set[tuple[str, str]] = set()
        for who in known.values():
            try:
                buyer = gateway.accounts.buyer(who)
            except VivaceError:  # a plan that is gone: whoever has it is told when asking for an answer
                continue
            for model in gateway.backends.names():
                for state in gateway.meters.snapshot(who.id, buyer.plan, buyer.key, model, now):
                    if (who.id, state.name) in told or not (who is principal or state.used or state.reserved):
                        continue
                    told.add((who.id, state.name))
                    yield {"principal": who.id, **msgspec.structs.asdict(state)}

    async def _view(self, of: str) -> dict[str, Any]:
        """The ledger as it was some seconds ago at most. Who asks when nobody did for a while waits for it."""
        view = self._views.pop(of, None) or _View()
        self._views[of] = view  # the last of them, now
        while len(self._views) > VIEWS and self._views[first := next(iter(self._views))].reading is None:
            del self._views[first]
        if view.reading is None and self.ticks() >= view.due:
            view.reading = asyncio.create_task(self._read(view, of))
        if view.reading is not None and self.ticks() >= view.due + STALE:
            await asyncio.wait((view.reading,))
        return view.content or {}

    async def _read(self, view: _View, of: str) -> None:
        """Read the ledger for one view; ``of`` "" is everybody's. What cannot be read stays as it was, and says so."""
        ledger, begun = self._gateway.ledger, self.ticks()
        assert ledger is not None
        try:
            view.content = await self._sums(ledger, of or None)
        except (SQLAlchemyError, OSError) as error:
            log.warning("the ledger cannot be read: %s", error)
            view.content = {**(view.content or {}), "fault": "The database does not answer."}
        finally:
            now = self.ticks()
            view.due = now + max(FRESH, SPARING * (now - begun))
            view.reading = None

    async def _sums(self, ledger: Ledger, of: str | None) -> dict[str, Any]:
        today = datetime.fromtimestamp(self._clock(), UTC).date()
        since = today - timedelta(days=6)
        sums = await ledger.sums(("day", "model", "principal"), principal=of, since=since.isoformat())
        latest = await ledger.latest(LATEST, of)
        return {
            "currency": self._gateway.tiers.currency,
            "today": _summary(each for each in sums if each.group[0] == today.isoformat()),
            "week": _summary(sums),
            "latest": [_row(row) for row in latest],
        }


class _View(Struct):
    """The ledger as somebody sees it: what was read last, when it is read again, and who does so now."""

    content: dict[str, Any] | None = None
    due: float = float("-inf")
    reading: asyncio.Task[None] | None = None


def _tokens(turn: Turn) -> tuple[int, bool]:
    """Tokens made so far, and whether they were counted; a backend that does not count is estimated."""
    made = turn.made
    return (estimate(turn.characters), False) if made is None else (made, True)


def _told(turn: Turn, tokens: int, counted: bool) -> dict[str, Any]:
    now = time.monotonic()
    since = now - turn.first_piece if turn.first_piece is not None else 0.0
    return {
        "id": turn.response_id,
        "principal": turn.asked.principal.id,
        "model": turn.response.model,
        "tier": turn.asked.tier.id,
        "state": turn.response.status,
        "tokens": tokens,
        "counted": counted,
        # Over less than this a speed is chance.
        "tokens_a_second": tokens / since if since >= 0.05 else 0.0,
        "first_ms": None if turn.first_piece is None else (turn.first_piece - turn.clock) * 1000,
        "seconds": now - turn.clock,
    }


def _summary(sums: Iterable[Sum]) -> dict[str, Any]:
    """Everything together, by model and by principal; those that used most come first."""
    whole: Counter[str] = Counter()
    by: tuple[dict[str, Counter[str]], dict[str, Counter[str]]] = ({}, {})
    for each in sums:
        amounts = {name: getattr(each, name) for name in _COUNTED}
        whole.update(amounts)
        for groups, name in zip(by, each.group[1:], strict=True):
            groups.setdefault(name, Counter()).update(amounts)

    def ordered(groups: dict[str, Counter[str]]) -> list[dict[str, Any]]:
        first = sorted(groups.items(), key=lambda group: (-group[1]["cost"], -group[1]["output_tokens"], group[0]))
        return [{"name": name, **counts} for name, counts in first[:SHOWN]]

    return {"all": dict(whole), "models": ordered(by[0]), "principals": ordered(by[1])}


def _row(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the ledger, as the console shows it. Times are milliseconds."""
    shown = ("response", "principal", "model", "tier", "status", "ended", "ttft_ms", "queue_ms", "cost")
    writing = row["ended"] - row["created"] - (row["ttft_ms"] or 0)
    return {name: row[name] for name in shown} | {
        "input_tokens": row["input_tokens"],
        "cached_tokens": row["cached_tokens"],
        "output_tokens": row["output_tokens"],
        # The first token came at the beginning of this time.
        "tokens_a_second": (row["output_tokens"] - 1) * 1000 / writing
        if row["ttft_ms"] is not None and writing > 0 and row["output_tokens"] > 1
        else None,
    }

"""The service: requests in, turns out, and what is kept of them.

This is the place that knows everybody: the desk that takes requests, the queue, the chains, the meters, the ledger and
the store. What each of them does is written there.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from vivace.backends.base import End
from vivace.errors import VivaceError
from vivace.protocol import items as it
from vivace.protocol.contracts import ModelCard, Principal
from vivace.protocol.errors import Refused
from vivace.protocol.items import Item, Response, ResponseError
from vivace.protocol.requests import ResponseRequest
from vivace.protocol.usage import Usage
from vivace.service.accounts import Accounts
from vivace.service.asking import QUICK, Asked, Desk, as_refusal
from vivace.service.chains import Chains, Link
from vivace.service.keeping import Keeper, Replay, not_found
from vivace.service.lanes import Lanes
from vivace.service.ledger import Entry, Ledger
from vivace.service.meters import Meters
from vivace.service.overview import Overview
from vivace.service.plans import Plan
from vivace.service.queue import FairQueue
from vivace.service.rate_limits import limit_headers
from vivace.service.reading import read_after
from vivace.service.registry import Backends
from vivace.service.sealing import Sealer
from vivace.service.started import Started
from vivace.service.tiers import TierTable
from vivace.service.turn import Deliver, Turn
from vivace.service.writer import Ack, Row

log = logging.getLogger(__name__)

KEEP_ALIVE = 2.0
"""Seconds of silence after which a response says that it lives. Codex CLI may be set to give up after three."""
DATABASE_PATIENCE = 5.0
"""Seconds that a finished response waits for the database before it goes out without a receipt."""
SHORT_PATIENCE = 0.05
"""The same where the database did not answer the last time, or somebody waits for the response to stop."""

T = TypeVar("T")


class LocalGateway:
    """See :class:`vivace.protocol.contracts.Gateway`.

    Without ``ledger`` and ``keeper`` nothing is written down: responses live as long as the process. ``observers`` are
    told each turn that has ended.
    """

    def __init__(
        self,
        backends: Backends,
        *,
        sealer: Sealer,
        tiers: TierTable | None = None,
        accounts: Accounts | None = None,
        meters: Meters | None = None,
        queue: FairQueue | None = None,
        ledger: Ledger | None = None,
        keeper: Keeper | None = None,
        chains: Chains | None = None,
        keep_alive: float = KEEP_ALIVE,
    ) -> None:
        self.backends = backends
        self.tiers = tiers or TierTable.load(None)
        self.accounts = accounts or Accounts(self.tiers)
        self.meters = meters or Meters(self.tiers.window_lengths, self.tiers.family)
        self.queue = queue or FairQueue({}, self.tiers.tiers.values())
        self.ledger = ledger
        self.chains = chains or Chains()
        self.keeper = keeper or Keeper(None)
        self.sealer = sealer
        self.desk = Desk(backends, self.tiers, self.meters, self.chains, sealer)
        self.observers: list[Callable[[Turn], None]] = []
        self.turns: dict[str, Turn] = {}
        self.operators: frozenset[str] = frozenset()
        """Principals who see everybody's use in the console."""
        self._overview = Overview(self)
        self._behind: set[Turn] = set()
        """Answered, and still prefilling."""
        self._unanswered: Ack | None = None
        """What the database was last waited for in vain."""
        self._keep_alive = keep_alive
        self._beat: asyncio.Task[None] | None = None
        self._draining = False

    @property
    def busy(self) -> bool:
        return bool(self.turns)

    async def open(self, model: str) -> ModelCard:
        card = self._priced(await self.backends.card(model), model, self.tiers.default_plan)
        return msgspec.structs.replace(card, free_slots=self.queue.free(self.backends.backend_id(model)))

    async def models(self, principal: Principal) -> list[ModelCard]:
        buyer = self.accounts.buyer(principal)

        async def offer(name: str) -> ModelCard | None:
            try:
                buyer.check_model(name)
                buyer.plan.check_model(name)
                card = self._priced(await self.backends.card(name), name, buyer.plan)
            except VivaceError as error:
                log.info("model %s is not listed: %s", name, error)
                return None
            tiers = tuple(tier["id"] for tier in self.tiers.for_catalogue(name, buyer.plan))
            return msgspec.structs.replace(card, name=name, tiers=tiers)

        cards = await asyncio.gather(*(offer(name) for name in self.backends.listed()))
        return [card for card in cards if card is not None]

    def _priced(self, card: ModelCard, model: str, plan: Plan) -> ModelCard:
        """With what the tiers file asks for it; else a model that runs here is free and of another nobody knows."""
        price = self.tiers.price(model, plan)
        return card if price is None else msgspec.structs.replace(card, price=price)

    async def input_tokens(self, request: ResponseRequest, principal: Principal | None = None) -> int:
        asked = await self._take(request, principal or Principal(), patience=None, reserves=False)
        try:
            return await asked.served.backend.count(asked.job)
        except VivaceError as error:
            raise as_refusal(error) from error

    def start(self, request: ResponseRequest, principal: Principal) -> Started:
        return Started(self, request, principal)

    async def respond(self, request: ResponseRequest, principal: Principal, deliver: Deliver | None = None) -> Turn:
        asked = await self._take(request, principal)
        estimate = asked.fresh * self.queue.input_weight
        ticket = self.queue.enter(asked.tier.id, principal.id, asked.served.backend_id, estimate)
        turn = Turn(asked, ticket, self.sealer, self._settle, self._prefilled, deliver)
        if deliver is None:  # a lane has no headers
            turn.headers = self._headers(asked)
        self.turns[turn.response_id] = turn
        if request.background:
            self.keeper.began(turn)
        if self._beat is None or self._beat.done():
            self._beat = asyncio.create_task(self._beats())
        return turn

    def connect(self, principal: Principal) -> Lanes:
        return Lanes(self, principal)

    async def retrieve(self, response_id: str, principal: Principal) -> Response:
        turn = self._running(response_id, principal)
        if turn is not None:
            return turn.snapshot()
        return await self._found(self.keeper.response(response_id, principal))

    async def resume(self, response_id: str, principal: Principal, after: int = -1) -> Replay:
        turn = self._running(response_id, principal)
        return await self._found(self.keeper.replay(response_id, principal, after, turn))

    async def delete(self, response_id: str, principal: Principal) -> None:
        turn = self._running(response_id, principal)
        if turn is not None:
            await turn.stop("cancelled")
        await self._found(self.keeper.delete(response_id, principal))
        link = self.chains.get(response_id, principal.id)
        if link is not None:
            link.stored = False
            self.chains.drop(response_id)

    async def cancel(self, response_id: str, principal: Principal) -> Response:
        turn = self._running(response_id, principal)
        if turn is None:
            return await self._found(self.keeper.response(response_id, principal))
        await turn.stop("cancelled")
        return turn.response

    async def input_items(self, response_id: str, principal: Principal) -> list[Item]:
        turn = self._running(response_id, principal)
        if turn is not None:
            parent = turn.asked.parent
            before = [*parent.all_given(), *parent.made] if parent is not None else []
            return [*before, *turn.asked.given]
        link = await self._found(self.link(response_id, principal))
        if link is None:
            return await self._found(self.keeper.given(response_id, principal, self.chains, self.sealer))
        return link.all_given()

    async def compact(self, request: ResponseRequest, principal: Principal) -> tuple[list[Item], Usage]:
        items = it.items_of(request.input) if isinstance(request.input, str) else request.input
        asking = msgspec.structs.replace(request, input=[*items, it.CompactionTrigger()], store=False, stream_id=None)
        turn = await self.respond(asking, principal)
        try:
            final = await turn.wait()
        finally:
            await turn.stop("disconnect")
        if turn.response.status != "completed":
            found = turn.response.error or ResponseError("server_error", "The compaction was cut off.")
            raise as_refusal(VivaceError(found.message, code=found.code))
        link = turn.asked.parent if turn.asked.chained else None
        whole = [*([*link.all_given(), *link.made] if link is not None else []), *items]
        kept: list[Item] = [item for item in whole if isinstance(item, it.Message) and item.role != "assistant"]
        return [*kept, *turn.response.output], final.usage

    async def overview(self, principal: Principal) -> dict[str, Any]:
        return await self._overview.of(principal)

    async def drain(self, seconds: float) -> None:
        self._draining = True
        turns = [asyncio.ensure_future(turn.wait()) for turn in self.turns.values()]
        if turns:
            _, late = await asyncio.wait(turns, timeout=seconds)
            for each in late:
                each.cancel()

    async def close(self) -> None:
        self._draining = True
        await asyncio.gather(*(turn.stop("cancelled") for turn in [*self.turns.values(), *self._behind]))
        if self._beat is not None:
            self._beat.cancel()
        await self.backends.close()
        await self._overview.close()
        try:
            if self.ledger is not None:
                await self.ledger.flush(DATABASE_PATIENCE)
        except VivaceError as error:
            log.error("not everything was written down: %s", error)

    async def link(self, response_id: str, principal: Principal) -> Link | None:
        """The chain's link of a response, from memory or out of the store."""
        return self.chains.get(response_id, principal.id) or await self.keeper.load(
            response_id, principal, self.chains, self.sealer
        )

    async def _take(
        self, request: ResponseRequest, principal: Principal, patience: float | None = QUICK, *, reserves: bool = True
    ) -> Asked:
        if self._draining:
            raise Refused("The server is going down.", 503, "server_error", headers={"retry-after": "5"})
        parent = None
        try:
            await self.accounts.check(principal)
            if request.previous_response_id is not None:
                parent = await self.link(request.previous_response_id, principal)
                if parent is None:
                    raise not_found(request.previous_response_id, "previous_response_id")
            buyer = self.accounts.buyer(principal)
            return await self.desk.take(request, principal, buyer, parent, patience, reserves=reserves)
        except VivaceError as error:
            raise as_refusal(error) from error

    async def _found(self, looking: Awaitable[T]) -> T:
        """What is looked for; what is raised has an HTTP status."""
        try:
            return await looking
        except VivaceError as error:
            raise as_refusal(error) from error

    def _headers(self, asked: Asked) -> dict[str, str]:
        buyer = asked.buyer
        states = self.meters.snapshot(asked.principal.id, buyer.plan, buyer.key, asked.request.model, time.time())
        return {"x-service-tier": asked.tier.id, **limit_headers(states)}

    async def _settle(self, turn: Turn, end: End) -> None:
        """Keep what a turn made, count what it used, and write both down before its client is told of the end."""
        try:
            link = self._keep(turn, end)
            if turn.prefill is not None:
                if link is not None:
                    link.prefill = turn.prefill
                self._behind.add(turn)
                return
            await self._account(turn, end, link)
        finally:
            self.turns.pop(turn.response_id, None)
            if turn.prefill is None:
                turn.asked.reservation.release()

    async def _prefilled(self, turn: Turn, end: End) -> None:
        try:
            link = self.chains.get(turn.response_id, turn.asked.principal.id)
            if link is not None:
                link.prefill = None
                if end.reason == "stop":
                    link.continuation = end.continuation
                    link.tokens = end.usage.input_tokens
            if turn.prefill is not None:
                turn.prefill.over.set()
            await self._account(turn, end, link)
        finally:
            self._behind.discard(turn)
            turn.asked.reservation.release()

    def _keep(self, turn: Turn, end: End) -> Link | None:
        """Add the turn to its chain; one that failed leaves nothing."""
        asked, response = turn.asked, turn.response
        if response.status == "failed":
            return None
        read, alone = read_after(asked.parent, asked.read, response.output, asked.compacts, self.sealer)
        link = Link(
            turn.response_id,
            asked.principal.id,
            asked.request.model,
            None if alone else asked.parent,
            asked.given,
            response.output,
            read,
            before=None if alone else asked.said,
            instructions=asked.request.instructions,
            tools=asked.table.digest,
            backend=asked.served.backend_id,
            continuation=None if alone else end.continuation,
            tokens=end.usage.total_tokens,
        )
        self.chains.add(link)
        return link

    async def _account(self, turn: Turn, end: End, link: Link | None) -> None:
        asked, usage, now = turn.asked, end.usage, time.time()
        cost = self.tiers.cost(asked.request.model, asked.tier, usage)
        asked.reservation.settle(usage, now, cost)
        read = usage.input_tokens - usage.input_tokens_details.cached_tokens
        turn.ticket.charge(max(0, read - asked.fresh), usage.output_tokens)
        turn.ticket.release()
        self._overview.ended(
            asked.principal,
            input_tokens=usage.input_tokens,
            cached_tokens=usage.input_tokens_details.cached_tokens,
            output_tokens=usage.output_tokens,
        )
        for observe in self.observers:
            observe(turn)
        rows = self.keeper.rows(turn, link)
        if self.ledger is not None:
            await self._receipt(turn, self.ledger, self._entry(turn, usage, cost, now), rows)

    async def _receipt(self, turn: Turn, ledger: Ledger, entry: Entry, rows: list[Row]) -> None:
        """Have it written down; wait until that cannot be lost, or the database is found not to answer."""
        gone = self._unanswered is not None and not self._unanswered.done
        patience = SHORT_PATIENCE if gone or turn.stopped is not None else DATABASE_PATIENCE
        try:
            ack = ledger.record(entry, *rows)
            if ack.safe:
                return
            try:
                await turn.patiently(ack.wait(patience))
            except VivaceError:
                self._unanswered = ack
                raise
        except VivaceError as error:
            # Of a client that has gone nobody waits long: the row is written all the same.
            level = logging.INFO if turn.stopped is not None else logging.ERROR
            log.log(level, "response %s has no receipt: %s", turn.response_id, error)

    def _entry(self, turn: Turn, usage: Usage, cost: int, now: float) -> Entry:
        asked = turn.asked
        waited = (turn.admitted_at or time.monotonic()) - turn.clock
        return Entry(
            response=turn.response_id,
            principal=asked.principal.id,
            key=asked.principal.key,
            model=asked.request.model,
            family=self.tiers.family(asked.request.model),
            tier=asked.tier.id,
            backend=asked.served.backend_id,
            status=turn.response.status,
            usage=usage,
            created=turn.started,
            ended=now,
            cost=cost,
            credits=asked.reservation.credits,
            ttft_ms=None if turn.first_piece is None else (turn.first_piece - turn.clock) * 1000,
            queue_ms=waited * 1000,
        )

    def _running(self, response_id: str, principal: Principal) -> Turn | None:
        turn = self.turns.get(response_id)
        return turn if turn is not None and turn.asked.principal.id == principal.id else None

    async def _beats(self) -> None:
        """Let no response be silent for long: clients give up on a connection that says nothing."""
        while self.turns:
            await asyncio.sleep(self._keep_alive / 4)
            now = time.monotonic()
            for turn in list(self.turns.values()):
                if now - turn.last_event >= self._keep_alive * 0.75:
                    turn.keep_alive()

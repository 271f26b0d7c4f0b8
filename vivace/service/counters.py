"""Who is served next when a backend is full: virtual token counters, twice.

Every principal of a tier has a counter of the service it got, in weighted tokens, and the one with the lowest counter
is next (VTC: Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024). Every tier has one too, divided by
the tier's weight, and the tier with the lowest is asked first. Inside one principal it is first come, first served.
Who comes to wait is lifted to where service stands, the counter of the last pick at that moment (the start tag of
start-time fair queueing: Goyal, Vin, Cheng, SIGCOMM 1996): nobody saves up credit by being idle. When a tier has
nothing to do any more its counters are forgotten: nobody owes for what others left free.

VTC lifts to the lowest counter that waits. With weights that is too much: a principal or tier that was just served
and asks again at once, before anybody else was, would lose its lead over those that have to be behind it.

With N slots, requests that cost at most U weighted tokens, and no limit on a tier:

- The counters of two principals of a tier that both wait all the time differ by at most N*U at any moment, so the
  service that they get in any interval differs by at most 2*N*U.
- The same holds for two tiers with service divided by weight, and N*U divided by the smaller of the two weights.
- Nobody starves: while a principal has a request waiting, another one of its tier gets at most 3*N*U more than it.

This file is deterministic and knows neither time nor asyncio.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from itertools import count
from typing import Generic, TypeVar

from vivace.service.tiers import Tier

W = TypeVar("W")

LEAST_COST = 1.0
"""Charged for every admission at least, so that requests that cost nothing cannot shut out others."""

KEPT_IDLE = 1024
"""Principals of a tier beyond which those that are idle are looked through for what can be forgotten."""


class Flow(Generic[W]):
    """One principal's line in a tier."""

    __slots__ = ("counter", "in_heap", "line", "name", "running")

    def __init__(self, name: str) -> None:
        self.name = name
        self.counter = 0.0
        self.line: deque[W] = deque()
        self.running = 0
        self.in_heap = False


class TierLine(Generic[W]):
    """The flows of one tier on one backend. ``level`` is where service stands: the counter of the last pick then.

    The counter of a flow that waits is never below ``level``.
    """

    def __init__(self, tier: Tier) -> None:
        self.id = tier.id
        self.weight = tier.weight
        self.limit = tier.max_concurrent
        self.counter = 0.0
        self.level = 0.0
        self.running = 0
        self.waiting = 0
        self.flows: dict[str, Flow[W]] = {}
        self._heap: list[tuple[float, int, Flow[W]]] = []
        self._ticks = count()
        self._forget_at = KEPT_IDLE

    @property
    def full(self) -> bool:
        return self.limit is not None and self.running >= self.limit

    def flow(self, principal: str) -> Flow[W]:
        """The flow of a principal, ready for a request: made, or lifted when it was not waiting."""
        flow = self.flows.get(principal)
        if flow is None:
            if len(self.flows) >= self._forget_at:
                self._forget()
            flow = self.flows[principal] = Flow(principal)
        if not flow.line:
            flow.counter = max(flow.counter, self.level)
        return flow

    def join(self, flow: Flow[W], waiter: W) -> None:
        flow.line.append(waiter)
        self.waiting += 1
        self._push(flow)

    def leave(self, flow: Flow[W], waiter: W) -> None:
        """A waiter goes without having been served. Raises ValueError when it does not wait."""
        flow.line.remove(waiter)
        self.waiting -= 1

    def take(self) -> W:
        """The next waiter; there is one."""
        flow = self._lowest()
        assert flow is not None
        self.waiting -= 1
        self.level = flow.counter
        return flow.line.popleft()

    def rest(self) -> None:
        """Nothing waits and nothing runs: everybody is even."""
        self.flows.clear()
        self._heap.clear()
        self.level = 0.0
        self._forget_at = KEPT_IDLE

    def ahead(self, flow: Flow[W], waiter: W) -> int:
        """How many of this tier are served before ``waiter``, if everybody's requests cost the same."""
        own = flow.line.index(waiter)
        turns = (min(len(f.line), own + (f.counter <= flow.counter)) for f in self.flows.values() if f is not flow)
        return own + sum(turns)

    def _lowest(self) -> Flow[W] | None:
        """The waiting flow with the lowest counter. Counters only grow, so an entry that is too low is put back."""
        while self._heap:
            counter, _, flow = self._heap[0]
            if not flow.line:
                heapq.heappop(self._heap)
                flow.in_heap = False
            elif counter < flow.counter:
                heapq.heapreplace(self._heap, (flow.counter, next(self._ticks), flow))
            else:
                return flow
        return None

    def _push(self, flow: Flow[W]) -> None:
        if not flow.in_heap:
            flow.in_heap = True
            heapq.heappush(self._heap, (flow.counter, next(self._ticks), flow))

    def _forget(self) -> None:
        """Drop those whose counter the next lift would replace anyway."""
        for name, flow in list(self.flows.items()):
            if not flow.running and not flow.in_heap and flow.counter <= self.level:
                del self.flows[name]
        self._forget_at = max(KEPT_IDLE, 2 * len(self.flows))


class VirtualCounters(Generic[W]):
    """The order of service on one backend with ``capacity`` slots.

    :meth:`enter` puts a waiter in line, :meth:`pick` takes the next one into a free slot, :meth:`charge` adds what a
    running one used, :meth:`finish` frees its slot. Costs are weighted tokens.
    """

    def __init__(self, capacity: int, tiers: Iterable[Tier]) -> None:
        self.capacity = capacity
        self.running = 0
        self.level = 0.0
        self.lines: dict[str, TierLine[W]] = {tier.id: TierLine(tier) for tier in tiers}

    @property
    def waiting(self) -> int:
        return sum(line.waiting for line in self.lines.values())

    def enter(self, tier: str, principal: str, waiter: W) -> Flow[W]:
        line = self.lines[tier]
        if line.waiting == 0:
            line.counter = max(line.counter, self.level)
        flow = line.flow(principal)
        line.join(flow, waiter)
        return flow

    def leave(self, tier: str, flow: Flow[W], waiter: W) -> None:
        self.lines[tier].leave(flow, waiter)

    def pick(self) -> W | None:
        """The next waiter, its slot taken; None when nobody waits or no slot is free. :meth:`start` has to follow."""
        if self.running >= self.capacity:
            return None
        ready = [line for line in self.lines.values() if line.waiting and not line.full]
        if not ready:
            return None
        line = min(ready, key=lambda line: line.counter)
        self.level = line.counter
        return line.take()

    def start(self, tier: str, flow: Flow[W], cost: float) -> None:
        """What was picked runs; ``cost`` is what is known of it at the start."""
        self.running += 1
        flow.running += 1
        self.lines[tier].running += 1
        self.charge(tier, flow, max(LEAST_COST, cost))

    def charge(self, tier: str, flow: Flow[W], cost: float) -> None:
        line = self.lines[tier]
        flow.counter += cost
        line.counter += cost / line.weight

    def finish(self, tier: str, flow: Flow[W]) -> None:
        line = self.lines[tier]
        was_full = line.full
        self.running -= 1
        flow.running -= 1
        line.running -= 1
        if was_full:
            # What its own limit kept it from using went to the others; it is not owed to it.
            line.counter = max(line.counter, self.level)
        if not line.running and not line.waiting:
            line.rest()
        if not self.running and not self.waiting:
            self.level = 0.0
            for each in self.lines.values():
                each.counter = 0.0

    def ahead(self, tier: str, flow: Flow[W], waiter: W) -> int:
        """An estimate of how many are served before ``waiter``: equal costs, tiers taking turns by weight."""
        line = self.lines[tier]
        own = line.ahead(flow, waiter)
        others = (
            min(other.waiting, int((own + 1) * other.weight / line.weight))
            for other in self.lines.values()
            if other is not line
        )
        return own + sum(others)

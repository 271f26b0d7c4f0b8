"""The fair queue in front of the backends: who waits, who runs, and what they are told.

Nobody waits while a slot of the backend is free, unless its tier is at its own ``max_concurrent``. When none is free,
:mod:`vivace.service.counters` decides who is next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from vivace.service.counters import VirtualCounters
from vivace.service.tiers import Tier


class FairQueue:
    """One for the service, used from one event loop.

    ``capacity`` is how many responses a backend runs at a time; a backend that it does not name gets ``other``.
    ``input_weight`` and ``output_weight`` are what a token counts in the counters: making one costs more than reading
    one (VTC's own experiments take 1 and 2).
    """

    def __init__(
        self,
        capacity: Mapping[str, int],
        tiers: Iterable[Tier],
        *,
        other: int = 64,
        input_weight: float = 1.0,
        output_weight: float = 2.0,
    ) -> None:
        self.input_weight = input_weight
        self.output_weight = output_weight
        self._other = other
        self._capacity = dict(capacity)
        self._tiers = list(tiers)
        self._backends: dict[str, VirtualCounters[Ticket]] = {}

    def enter(self, tier: str, principal: str, backend: str, cost_estimate: float = 0.0) -> Ticket:
        """A place for one response: admitted at once where a slot is free, else waiting; whoever has it releases it.

        ``cost_estimate`` is what the start of the response costs, in weighted tokens: the prompt that has to be read
        (not what is cached) times ``input_weight``. What it turns out to use beyond that is charged to the ticket.
        """
        counters = self._counters(backend)
        ticket = Ticket(self, counters, tier, principal, backend, cost_estimate)
        self._admit(counters)
        return ticket

    async def acquire(
        self,
        tier: str,
        principal: str,
        backend: str,
        cost_estimate: float = 0.0,
        waiting: Callable[[Ticket], None] | None = None,
    ) -> Ticket:
        """An admitted ticket; cancelling gives the place up. ``waiting`` is called once, if there is a wait."""
        ticket = self.enter(tier, principal, backend, cost_estimate)
        try:
            if not ticket.admitted and waiting is not None:
                waiting(ticket)
            await ticket.wait()
        except BaseException:
            ticket.release()
            raise
        return ticket

    def set_capacity(self, backend: str, slots: int) -> None:
        """Change how many run at a time (a replica came or went). Running ones stay."""
        self._capacity[backend] = slots
        if backend in self._backends:
            self._backends[backend].capacity = slots
            self._admit(self._backends[backend])

    def running(self, backend: str) -> int:
        return self._backends[backend].running if backend in self._backends else 0

    def waiting(self, backend: str, tier: str | None = None) -> int:
        if backend not in self._backends:
            return 0
        counters = self._backends[backend]
        return counters.waiting if tier is None else counters.lines[tier].waiting

    def free(self, backend: str) -> int:
        """Slots that nobody has and nobody waits for."""
        return max(0, self._counters(backend).capacity - self.running(backend) - self.waiting(backend))

    def _counters(self, backend: str) -> VirtualCounters[Ticket]:
        if backend not in self._backends:
            slots = self._capacity.get(backend, self._other)
            self._backends[backend] = VirtualCounters(slots, self._tiers)
        return self._backends[backend]

    def _admit(self, counters: VirtualCounters[Ticket]) -> None:
        while (ticket := counters.pick()) is not None:
            ticket._start()


class Ticket:
    """A place in the queue, then a slot of the backend, until ``with`` or :meth:`release` ends it; twice is no harm."""

    __slots__ = ("_admission", "_cost", "_counters", "_flow", "_queue", "_state", "backend", "principal", "tier")

    def __init__(
        self,
        queue: FairQueue,
        counters: VirtualCounters[Ticket],
        tier: str,
        principal: str,
        backend: str,
        cost: float,
    ) -> None:
        self.tier = tier
        self.principal = principal
        self.backend = backend
        self._queue = queue
        self._counters = counters
        self._cost = cost
        self._state = "waiting"
        self._admission: asyncio.Future[None] | None = None
        self._flow = counters.enter(tier, principal, self)

    @property
    def admitted(self) -> bool:
        return self._state == "running"

    @property
    def position(self) -> int:
        """0 when admitted or released; else its place in line from 1, an estimate, as the order follows use."""
        return self._counters.ahead(self.tier, self._flow, self) + 1 if self._state == "waiting" else 0

    async def wait(self, timeout: float | None = None) -> bool:
        """Whether it is admitted, after at most ``timeout`` seconds. Cancelling it does not give the place up."""
        if self._state == "waiting":
            if self._admission is None:
                self._admission = asyncio.get_running_loop().create_future()
            await asyncio.wait((self._admission,), timeout=timeout)
        return self.admitted

    def charge(self, input: int = 0, output: int = 0) -> None:
        """Tokens that were read beyond the estimate, and tokens that were made, since the last call."""
        if self._state == "running":
            cost = input * self._queue.input_weight + output * self._queue.output_weight
            self._counters.charge(self.tier, self._flow, cost)

    def release(self) -> None:
        """Leave the line, or free the slot for the next."""
        state, self._state = self._state, "released"
        if state == "waiting":
            self._counters.leave(self.tier, self._flow, self)
            if self._admission is not None and not self._admission.done():
                self._admission.set_result(None)
        elif state == "running":
            self._counters.finish(self.tier, self._flow)
            self._queue._admit(self._counters)

    def _start(self) -> None:
        self._state = "running"
        self._counters.start(self.tier, self._flow, self._cost)
        if self._admission is not None and not self._admission.done():
            self._admission.set_result(None)

    def __enter__(self) -> Ticket:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

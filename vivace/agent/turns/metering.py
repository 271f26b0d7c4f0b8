"""A service whose answers are timed and counted: figures for the face, and the moment a message is delivered."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import msgspec

from vivace.agent.turns.events import Event as Told
from vivace.agent.turns.events import Meters
from vivace.agent.turns.limits import Spent
from vivace.errors import VivaceError
from vivace.protocol import events as ev
from vivace.protocol.contracts import Final, Generation, ModelCard, Price, Principal, Service, StopReason
from vivace.protocol.requests import ResponseRequest
from vivace.protocol.usage import Usage


@dataclass
class Meter:
    """The figures of one turn. ``window`` is the model's, in tokens; 0 where it is not known yet."""

    spent: Spent
    emit: Callable[[Told], None]
    window: int = 0
    ttft: float | None = None
    rate: float | None = None
    accepted: int = 0
    context: int = 0
    """Tokens of the last response, prompt and answer."""

    def first(self, seconds: float) -> None:
        """The first token of the turn has come."""
        if self.ttft is None:
            self.ttft = seconds
            self.show()

    def count(self, usage: Usage, seconds: float, price: Price | None = None) -> None:
        """A response has ended; its tokens came in ``seconds``."""
        self.spent.count(usage, price)
        self.accepted += usage.output_tokens_details.accepted_prediction_tokens
        if usage.total_tokens:
            self.context = usage.total_tokens
        if seconds > 0 and usage.output_tokens > 1:
            self.rate = (usage.output_tokens - 1) / seconds
        self.show()

    def show(self) -> None:
        spent = self.spent
        self.emit(
            Meters(
                ttft=self.ttft,
                tokens_per_second=self.rate,
                copied=self.accepted / spent.output_tokens if spent.output_tokens else None,
                steps=spent.steps,
                input_tokens=spent.input_tokens,
                cached_tokens=spent.cached_tokens,
                output_tokens=spent.output_tokens,
                context=self.context / self.window if self.window and self.context else None,
                cost=spent.cost,
            )
        )


class Metered:
    """``service``, with every answer counted in ``meter``; ``begun`` is called when one begins to be made. ``cards``
    tells what a model that is asked costs."""

    def __init__(
        self,
        service: Service,
        meter: Meter,
        begun: Callable[[], None],
        cards: Callable[[str], Awaitable[ModelCard]],
        priority: int = 0,
    ) -> None:
        self.service = service
        self.meter = meter
        self.begun = begun
        self.cards = cards
        self.priority = priority

    async def open(self, model: str) -> ModelCard:
        return await self.service.open(model)

    async def input_tokens(self, request: ResponseRequest) -> int:
        return await self.service.input_tokens(request)

    def start(self, request: ResponseRequest, principal: Principal) -> Generation:
        if self.priority and not request.priority:
            request = msgspec.structs.replace(request, priority=self.priority)
        return _Counted(self.service.start(request, principal), request.model, self)

    async def price(self, model: str) -> Price | None:
        """None where nobody says it."""
        try:
            return (await self.cards(model)).price
        except VivaceError:
            return None

    async def close(self) -> None:
        """The service is not ours to close."""


_BEFORE = (ev.Created, ev.Queued, ev.Failed, ev.Keepalive)
_TEXT = (ev.TextDelta, ev.ReasoningTextDelta, ev.ReasoningSummaryTextDelta, ev.ArgumentsDelta, ev.CustomInputDelta)


class _Counted:
    def __init__(self, generation: Generation, model: str, of: Metered) -> None:
        self._generation = generation
        self._model = model
        self._of = of
        self._started = time.perf_counter()
        self._first = self._last = 0.0
        self._counted = False

    async def __aiter__(self) -> AsyncIterator[ev.Event]:
        begun = False
        async for event in self._generation:
            if not begun and not isinstance(event, _BEFORE):
                begun = True
                self._of.begun()
            if isinstance(event, _TEXT):
                self._last = time.perf_counter()
                if not self._first:
                    self._first = self._last
                    self._of.meter.first(self._first - self._started)
            elif isinstance(event, ev.Completed | ev.Incomplete | ev.Failed):
                await self._count(event.response.usage)
            yield event

    async def stop(self, reason: StopReason) -> Final:
        final = await self._generation.stop(reason)
        await self._count(final.usage)
        return final

    async def _count(self, usage: Usage | None) -> None:
        if not self._counted:
            self._counted = True
            self._of.meter.count(usage or Usage(), self._last - self._first, await self._of.price(self._model))

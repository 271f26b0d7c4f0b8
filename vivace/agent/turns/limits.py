"""Limits of a turn, built in: steps, tokens, cost, time."""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec import Struct

from vivace.protocol.usage import Usage


class Limits(Struct, frozen=True, kw_only=True):
    """What a turn may use; None is no limit. ``cost`` is in the currency of ``price``."""

    steps: int | None = 200
    tokens: int | None = None
    """Input that was not cached, and output."""
    cost: float | None = None
    seconds: float | None = None


class Spent:
    """What a turn has used. ``price`` gives the cost of a usage, where it is known."""

    def __init__(
        self, limits: Limits, price: Callable[[Usage], float] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.limits = limits
        self.steps = 0
        self.input_tokens = 0
        self.cached_tokens = 0
        self.output_tokens = 0
        self.cost: float | None = 0.0 if price is not None else None
        self._price = price
        self._clock = clock
        self._began = clock()

    @property
    def seconds(self) -> float:
        return self._clock() - self._began

    @property
    def tokens(self) -> int:
        return self.input_tokens - self.cached_tokens + self.output_tokens

    def count(self, usage: Usage | None) -> None:
        """After a response."""
        self.steps += 1
        if usage is None:
            return
        self.input_tokens += usage.input_tokens
        self.cached_tokens += usage.input_tokens_details.cached_tokens
        self.output_tokens += usage.output_tokens
        if self._price is not None and self.cost is not None:
            self.cost += self._price(usage)

    def exceeded(self) -> str:
        """Which limit is used up, in words; empty while there is room."""
        limits = self.limits
        if limits.steps is not None and self.steps >= limits.steps:
            return f"the limit of {limits.steps} steps"
        if limits.tokens is not None and self.tokens >= limits.tokens:
            return f"the limit of {limits.tokens:,} tokens ({self.tokens:,} used)"
        if limits.cost is not None and self.cost is not None and self.cost >= limits.cost:
            return f"the limit of {limits.cost:.2f} ({self.cost:.2f} spent)"
        if limits.seconds is not None and self.seconds >= limits.seconds:
            return f"the limit of {limits.seconds:.0f} seconds"
        return ""

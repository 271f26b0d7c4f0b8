"""Limits of a turn, built in: steps, tokens, cost, time."""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec import Struct

from vivace.agent.sessions.entries import Usage as Taken
from vivace.protocol.contracts import Price
from vivace.protocol.usage import Usage


class Limits(Struct, frozen=True, kw_only=True):
    """What a turn may use; None is no limit. ``cost`` is in the currency of the models' prices."""

    steps: int | None = 200
    tokens: int | None = None
    """Input that was not cached, and output."""
    cost: float | None = None
    seconds: float | None = None


class Spent:
    """What a turn has used, whichever models it asked."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self.steps = 0
        self.input_tokens = 0
        self.cached_tokens = 0
        self.output_tokens = 0
        self.cost: float | None = None
        """None while no model said its price."""
        self.currency = ""
        self._taken = Taken()
        self._steps_taken = 0
        self._clock = clock
        self._began = clock()

    @property
    def seconds(self) -> float:
        return self._clock() - self._began

    @property
    def tokens(self) -> int:
        return self.input_tokens - self.cached_tokens + self.output_tokens

    def count(self, usage: Usage | None, price: Price | None = None) -> None:
        """After a response of a model at ``price``, None where that is not known."""
        self.steps += 1
        if usage is None:
            return
        self.input_tokens += usage.input_tokens
        self.cached_tokens += usage.input_tokens_details.cached_tokens
        self.output_tokens += usage.output_tokens
        if price is not None:
            self.cost = (self.cost or 0.0) + price.of(usage)
            self.currency = price.currency

    def taken(self) -> Taken | None:
        """What was used since this was asked last; None for nothing."""
        if self.steps == self._steps_taken:
            return None
        before, self._steps_taken = self._taken, self.steps
        now = self._taken = Taken(self.input_tokens, self.output_tokens, self.cached_tokens, self.seconds, self.cost)
        return Taken(
            now.input_tokens - before.input_tokens,
            now.output_tokens - before.output_tokens,
            now.cached_tokens - before.cached_tokens,
            now.seconds - before.seconds,
            None if now.cost is None else now.cost - (before.cost or 0.0),
        )

    def exceeded(self) -> str:
        """Which limit is used up, in words; empty while there is room."""
        limits = self.limits
        if limits.steps is not None and self.steps >= limits.steps:
            return f"the limit of {limits.steps} steps"
        if limits.tokens is not None and self.tokens >= limits.tokens:
            return f"the limit of {limits.tokens:,} tokens ({self.tokens:,} used)"
        if limits.cost is not None and self.cost is not None and self.cost >= limits.cost:
            return f"the limit of {limits.cost:.4g} {self.currency} ({self.cost:.4g} spent)"
        if limits.seconds is not None and self.seconds >= limits.seconds:
            return f"the limit of {limits.seconds:.0f} seconds"
        return ""

"""What was used in the last so many seconds, exactly counted, in bounded memory."""

from __future__ import annotations

from bisect import insort

from msgspec import Struct

STEPS = 1000
"""A rolling window moves in this many steps: what was used leaves it up to a thousandth of its length late."""


class Amount(Struct):
    """Requests and tokens. ``fresh`` and ``cached`` input tokens are apart, as a plan may count them differently."""

    requests: int = 0
    fresh: int = 0
    cached: int = 0
    output: int = 0

    def add(self, other: Amount, sign: int = 1) -> None:
        self.requests += sign * other.requests
        self.fresh += sign * other.fresh
        self.cached += sign * other.cached
        self.output += sign * other.output

    def of(self, meter: str, cached_percent: int = 100) -> int:
        """In the unit of ``meter``. A part of a token counts as one."""
        if meter == "requests":
            return self.requests
        if meter == "output_tokens":
            return self.output
        read = self.fresh - (-self.cached * cached_percent // 100)
        return read if meter == "input_tokens" else read + self.output


class Rolling:
    """A sum over the last ``seconds``. Times are milliseconds since the epoch, and may come out of order."""

    __slots__ = ("_buckets", "_order", "length", "step", "total")

    def __init__(self, seconds: int) -> None:
        self.length = seconds * 1000
        self.step = step_of(seconds)
        self.total = Amount()
        self._buckets: dict[int, Amount] = {}
        self._order: list[int] = []

    def add(self, at: int, amount: Amount, sign: int = 1) -> None:
        """Count ``amount`` at a time; with ``sign`` -1 take it back, if it is still in the window."""
        number = at // self.step
        bucket = self._buckets.get(number)
        if bucket is None:
            if sign < 0 or (self._order and number < self._order[-1] - STEPS - 1):
                return
            bucket = self._buckets[number] = Amount()
            insort(self._order, number)
        bucket.add(amount, sign)
        self.total.add(amount, sign)

    def expire(self, now: int) -> None:
        """Forget what has left the window."""
        gone = 0
        while gone < len(self._order) and self._leaves(self._order[gone]) <= now:
            self.total.add(self._buckets.pop(self._order[gone]), -1)
            gone += 1
        del self._order[:gone]

    @property
    def empty(self) -> bool:
        return not self._order

    def empties_in(self, now: int, meter: str) -> float:
        """Seconds until nothing of what is counted in ``meter`` so far is in the window."""
        newest = next((number for number in reversed(self._order) if self._buckets[number].of(meter)), None)
        return 0.0 if newest is None else max(0, self._leaves(newest) - now) / 1000

    def frees_in(self, now: int, need: int, meter: str, cached_percent: int) -> float | None:
        """Seconds until ``need`` less is in the window; None when all of it is not that much."""
        left, target = Amount(), self.total.of(meter, cached_percent) - need
        left.add(self.total)
        for number in self._order:
            left.add(self._buckets[number], -1)
            if left.of(meter, cached_percent) <= target:
                return max(0, self._leaves(number) - now) / 1000
        return None

    def _leaves(self, number: int) -> int:
        return (number + 1) * self.step + self.length


def step_of(seconds: int) -> int:
    """The step of a window of ``seconds``, in milliseconds."""
    return max(1, seconds * 1000 // STEPS)

"""What a pass costs by its rows, and how wide a draft pays.

The curve is measured when the engine starts and follows what passes really take from then on.
"""

from __future__ import annotations

from bisect import bisect_left

WIDTHS = (3, 7, 15, 23, 31, 47, 63, 95, 127, 191, 255)
"""Draft lengths that are worth telling apart."""


class CostCurve:
    """Seconds of a pass by its rows, linear between the measured points and beyond the last two.

    Attention comes on top: ``per_key`` seconds for each row and each position before it.
    """

    def __init__(self, points: dict[int, float], per_key: float = 0.0) -> None:
        """``points``: rows -> seconds with nothing before them, at least two. A wider pass never counts as cheaper."""
        self.per_key = per_key
        self._rows = sorted(points)
        self._seconds = [points[rows] for rows in self._rows]
        for index in range(1, len(self._seconds)):
            self._seconds[index] = max(self._seconds[index], self._seconds[index - 1])

    def __call__(self, rows: int) -> float:
        right = min(max(1, bisect_left(self._rows, rows)), len(self._rows) - 1)
        low, high = self._rows[right - 1], self._rows[right]
        share = (rows - low) / (high - low)
        return max(1e-6, self._seconds[right - 1] * (1 - share) + self._seconds[right] * share)

    def affordable(self, rows: int, factor: float) -> int:
        """How many rows may join ``rows`` before a pass takes ``factor`` times as long."""
        ceiling = factor * self(max(1, rows))
        more = 0
        while more < 256 and self(rows + more + 1) <= ceiling:
            more += 1
        return more

    def learn(self, rows: int, seconds: float, keys: int = 0) -> None:
        """Move the nearest point a little towards a measured pass; a pass that was held up says nothing.

        ``keys``: positions before each row, summed over the rows.
        """
        seconds -= keys * self.per_key
        expected = self(rows)
        if not expected / 3 < seconds < 3 * expected:
            return
        nearest = min(range(len(self._rows)), key=lambda index: abs(self._rows[index] - rows))
        self._seconds[nearest] *= 1 + 0.1 * (seconds / expected - 1)
        for index in range(1, len(self._seconds)):
            self._seconds[index] = max(self._seconds[index], self._seconds[index - 1])


DEFAULT_COSTS = {1: 1.0, 16: 1.15, 32: 1.3, 64: 1.6, 128: 2.4, 256: 4.5}
"""A shape for machines that were not measured: one row's cost is 1."""


class Acceptance:
    """How often tokens of one source of drafts are accepted, as decayed counts."""

    DECAY = 0.85
    FORGET = 0.98

    def __init__(self, accepted: float, rejected: float) -> None:
        """The counts to begin with: what is known before anything was seen."""
        self._prior = accepted, rejected
        self._accepted, self._rejected = accepted, rejected

    @property
    def probability(self) -> float:
        """That the next token of a draft is accepted."""
        return self._accepted / (self._accepted + self._rejected)

    def learn(self, drafted: int, agreed: int) -> None:
        self._accepted = self._accepted * self.DECAY + agreed
        self._rejected = self._rejected * self.DECAY + (agreed < drafted)
        # Never quite certain, so that one long copy does not make the next surprise dear.
        self._rejected = max(self._rejected, self._accepted / 200)
        self._accepted = max(self._accepted, 0.02)

    def forget(self) -> None:
        """Drift back to where it began, so that a source which failed is tried again one day."""
        accepted, rejected = self._prior
        self._accepted += (1 - self.FORGET) * (accepted - self._accepted)
        self._rejected += (1 - self.FORGET) * (rejected - self._rejected)


def best_width(
    probability: float, limit: int, cost: CostCurve, rows: int = 0, tokens: int = 0, context: int = 0
) -> int:
    """The draft length, 0 to ``limit``, that yields most tokens per second of a pass.

    ``probability`` that each next token is accepted; ``rows`` of others in the same pass and the ``tokens`` that those
    yield; ``context`` positions before the draft. A draft of ``w`` yields ``1 + p + p^2 + ... + p^w`` tokens on
    average.
    """
    per_row = cost.per_key * context
    best, best_rate = 0, (1 + tokens) / (cost(1 + rows) + per_row)
    for width in (*(w for w in WIDTHS if w < limit), limit):
        if width <= 0:
            continue
        expected = (1 - probability ** (width + 1)) / (1 - probability) if probability < 1 else width + 1
        rate = (expected + tokens) / (cost(1 + width + rows) + (1 + width) * per_row)
        if rate > best_rate:
            best, best_rate = width, rate
    return best

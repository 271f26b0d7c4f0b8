"""Statistics of small samples on a noisy machine: medians, quantiles, and ratios from the same rounds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence


def quantile(values: Iterable[float], share: float) -> float:
    """The value below which ``share`` of the sample lies, by linear interpolation; NaN for an empty sample."""
    ordered = sorted(values)
    if not ordered:
        return math.nan
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def median(values: Iterable[float]) -> float:
    return quantile(values, 0.5)


def paired_ratio(mine: Mapping[int, float], theirs: Mapping[int, float]) -> float:
    """Median of theirs / mine over the rounds that both have: how many times faster mine is. NaN without a common one.

    Rounds stand next to each other in time, so that slow spells of the machine fall on both.
    """
    return median(theirs[key] / mine[key] for key in mine.keys() & theirs.keys() if mine[key] > 0)


def geometric_mean(values: Sequence[float]) -> float:
    """NaN for an empty sample or one that is not positive throughout."""
    if not values or min(values) <= 0:
        return math.nan
    return math.exp(sum(map(math.log, values)) / len(values))


def spread(values: Sequence[float]) -> str:
    """``low-high`` with as many digits as the size of the numbers deserves; one number where both read the same."""
    if not values:
        return "-"
    low, high = number(min(values)), number(max(values))
    return low if low == high else f"{low}-{high}"


def number(value: float) -> str:
    """A figure for people: three significant digits, no exponent; ``-`` for NaN."""
    if math.isnan(value):
        return "-"
    size = abs(value)
    if size >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}" if size >= 1 else f"{value:.3f}"

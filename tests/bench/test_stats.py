"""Statistics of small samples."""

from __future__ import annotations

import math

import pytest

from vivace.bench.stats import geometric_mean, median, number, paired_ratio, quantile, spread


def test_quantiles_interpolate() -> None:
    assert median([3, 1, 2]) == 2
    assert median([4, 1, 3, 2]) == 2.5
    assert quantile(range(101), 0.99) == 99
    assert quantile([7.0], 0.99) == 7.0
    assert math.isnan(median([]))


def test_paired_ratio_uses_common_rounds_only() -> None:
    assert paired_ratio({0: 1.0, 1: 2.0, 2: 1.0}, {0: 3.0, 1: 8.0, 5: 100.0}) == pytest.approx(3.5)
    assert math.isnan(paired_ratio({0: 1.0}, {1: 1.0}))


def test_geometric_mean() -> None:
    assert geometric_mean([1, 100]) == pytest.approx(10)
    assert math.isnan(geometric_mean([]))
    assert math.isnan(geometric_mean([1, 0]))


@pytest.mark.parametrize(
    ("value", "text"),
    [(1234.5, "1,234"), (12.34, "12.3"), (1.234, "1.23"), (0.1234, "0.123"), (3.0, "3"), (math.nan, "-"), (0.0, "0")],
)
def test_numbers_for_people(value: float, text: str) -> None:
    assert number(value) == text


def test_spread() -> None:
    assert spread([2.0, 1.0]) == "1-2"
    assert spread([1.0, 1.0001]) == "1-1.00"
    assert spread([2.0]) == "2"
    assert spread([]) == "-"

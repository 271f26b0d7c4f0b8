"""Pass costs and draft widths."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.engine.costs import DEFAULT_COSTS, Acceptance, CostCurve, best_width

CURVE = CostCurve({1: 20.0, 16: 22.0, 64: 33.0, 128: 50.0})


@pytest.mark.parametrize(("rows", "cost"), [(1, 20.0), (16, 22.0), (40, 27.5), (128, 50.0), (192, 67.0)])
def test_costs_between_and_beyond_the_points_are_linear(rows: int, cost: float) -> None:
    assert CURVE(rows) == pytest.approx(cost)


def test_a_measured_point_that_is_cheaper_than_a_narrower_one_is_raised() -> None:
    assert CostCurve({1: 20.0, 16: 15.0, 32: 30.0})(16) == 20.0


def test_the_curve_follows_what_passes_take_but_not_a_hold_up() -> None:
    curve = CostCurve(DEFAULT_COSTS)
    for _ in range(60):
        curve.learn(64, 3.2)
    assert curve(64) == pytest.approx(3.2, rel=0.02)
    curve.learn(64, 100.0)
    assert curve(64) == pytest.approx(3.2, rel=0.02)


@given(st.integers(1, 200), st.floats(1.0, 2.0))
def test_affordable_rows_cost_no_more_than_was_allowed(rows: int, factor: float) -> None:
    more = CURVE.affordable(rows, factor)
    assert CURVE(rows + more) <= factor * CURVE(rows) + 1e-9
    assert more == 256 or CURVE(rows + more + 1) > factor * CURVE(rows)


def test_certain_copies_are_wide_and_hopeless_drafts_are_not_made() -> None:
    assert best_width(0.999, 127, CURVE) == 127
    assert best_width(0.005, 127, CURVE) == 0
    assert best_width(0.999, 40, CURVE) == 40
    assert best_width(0.9, 0, CURVE) == 0


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_a_likelier_draft_is_never_narrower(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert best_width(low, 127, CURVE) <= best_width(high, 127, CURVE)


def test_wide_passes_of_others_make_drafts_dearer() -> None:
    assert best_width(0.8, 127, CURVE, rows=100, tokens=100) <= best_width(0.8, 127, CURVE)


def test_acceptance_follows_what_happens_and_comes_back_when_left_alone() -> None:
    source = Acceptance(2, 1)
    for _ in range(20):
        source.learn(7, 0)
    assert source.probability < 0.05
    assert best_width(source.probability, 127, CURVE) == 0
    for _ in range(300):
        source.forget()
    assert source.probability == pytest.approx(2 / 3, abs=0.05)
    for _ in range(20):
        source.learn(63, 63)
    assert 0.99 < source.probability < 1


def test_the_positions_before_a_draft_make_its_rows_dearer_and_it_narrower() -> None:
    curve = CostCurve({1: 20.0, 16: 22.0, 64: 33.0, 128: 50.0}, per_key=1e-4)
    assert best_width(0.99, 127, curve, context=0) > best_width(0.99, 127, curve, context=20_000) > 0
    # A pass of 64 rows behind 1,000 positions that takes what the curve says teaches nothing.
    before = curve(64)
    curve.learn(64, before + 64 * 1000 * 1e-4, keys=64 * 1000)
    assert curve(64) == pytest.approx(before)

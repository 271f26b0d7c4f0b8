"""What an accepted edit costs: retries, races, cascades."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vivace.errors import UsageError
from vivace.plan.accepted import Attempt, Check, cascade_pays, cascaded, raced, retried

rates = st.floats(0.02, 1.0)
TRY = Attempt(seconds=20, dollars=0.01, passes=0.5)


def test_the_cascade_of_the_fast_and_the_deep_model() -> None:
    """2.3 minutes with 51 %, then 16 minutes: 10.1 minutes on average, 1.6 times faster than the deep model alone."""
    fast, deep = Attempt(seconds=2.3, dollars=0.1, passes=0.51), Attempt(seconds=16, dollars=1, passes=0.57)
    found = cascaded(fast, deep, Check())
    assert found.seconds == pytest.approx(10.14)
    assert deep.seconds / found.seconds == pytest.approx(1.58, abs=0.01)
    assert found.right == pytest.approx(0.57)
    assert cascade_pays(fast, deep, Check()) == (True, True)


def test_a_false_accept_costs_accuracy() -> None:
    fast, deep = Attempt(seconds=2.3, dollars=0.1, passes=0.51), Attempt(seconds=16, dollars=1, passes=0.57)
    loose = cascaded(fast, deep, Check(false_accept=0.2))
    assert loose.right == pytest.approx(0.57 - 0.2 * 0.49 * (0.57 - 0.51) / 0.49)
    assert loose.seconds < cascaded(fast, deep, Check()).seconds
    assert retried(fast, Check(false_accept=0.2), 5).right < retried(fast, Check(), 5).right


@given(rates, st.integers(1, 20), st.floats(0, 1))
def test_retries_change_neither_the_price_nor_the_seconds_of_a_right_edit(
    rate: float, tries: int, false: float
) -> None:
    attempt, check = Attempt(seconds=20, dollars=0.01, passes=rate), Check(seconds=5, false_accept=false)
    once, often = retried(attempt, check), retried(attempt, check, tries)
    assert often.per_accepted(100) == pytest.approx(once.per_accepted(100))
    assert once.right <= often.right * (1 + 1e-12) <= 1 + 1e-9
    assert often.attempts <= tries + 1e-9


def test_the_price_of_an_accepted_edit() -> None:
    found = retried(TRY, Check(seconds=5))
    assert found.per_accepted(36) == pytest.approx((0.01 + 0.01 * 25) / 0.5)
    assert found.seconds_per_accepted == pytest.approx(50)


@pytest.mark.parametrize(("candidates", "rate", "spread"), [(1, 0.5, 0.3), (3, 0.4, 0.3), (8, 0.2, 0.6), (4, 1.0, 0.2)])
def test_a_race_is_what_a_thousand_races_do(candidates: int, rate: float, spread: float) -> None:
    check = Check(seconds=5, false_accept=0.02)
    found = raced(Attempt(seconds=20, dollars=0.01, passes=rate), check, candidates, spread)
    draw = random.Random(candidates)
    sigma = math.sqrt(math.log(1 + spread * spread))
    passing = rate + (1 - rate) * 0.02
    seconds = runs = 0.0
    races = 20_000
    for _ in range(races):
        ends = [25 * math.exp(draw.gauss(-sigma * sigma / 2, sigma)) for _ in range(candidates)]
        passed = [end for end in ends if draw.random() < passing]
        over = min(passed) if passed else max(ends)
        seconds += over
        runs += sum(min(end, over) for end in ends) / 25
    assert found.seconds == pytest.approx(seconds / races, rel=0.015)
    assert found.attempts == pytest.approx(runs / races, rel=0.015)
    assert found.delivered == pytest.approx(1 - (1 - passing) ** candidates)


@settings(max_examples=50)
@given(rates, st.integers(1, 16), st.floats(0, 1.0))
def test_a_race_never_pays_for_more_than_it_starts(rate: float, candidates: int, spread: float) -> None:
    found = raced(Attempt(seconds=20, dollars=0.01, passes=rate), Check(), candidates, spread)
    assert 0 < found.attempts <= candidates * (1 + 1e-6)
    assert found.right <= 1 + 1e-12
    more = raced(Attempt(seconds=20, dollars=0.01, passes=rate), Check(), candidates + 1, spread)
    assert more.right >= found.right - 1e-12


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.1])
def test_a_pass_rate_is_a_share_above_nothing(rate: float) -> None:
    with pytest.raises(UsageError, match="pass rate"):
        Attempt(seconds=1, dollars=0, passes=rate)


def test_at_least_one_attempt() -> None:
    with pytest.raises(UsageError, match="tries"):
        retried(TRY, Check(), 0)
    with pytest.raises(UsageError, match="race"):
        raced(TRY, Check(), 0)

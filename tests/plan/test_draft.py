"""Speculation by the acceptance of each position."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.errors import UsageError
from vivace.plan.draft import NO_DRAFT, Draft, checked, from_gains, from_rate, parse_acceptance


def test_no_draft_emits_one_token() -> None:
    assert NO_DRAFT.gain == 1.0
    assert NO_DRAFT.tokens == 0


def test_acceptances_of_a_measured_series() -> None:
    found = from_gains([1.92, 2.58, 2.82, 2.99, 3.01])
    assert found == pytest.approx((0.92, 0.66, 0.24, 0.17, 0.02))
    assert Draft("mtp", found).gain == pytest.approx(3.01)


@given(st.floats(0.01, 0.99), st.integers(1, 32))
def test_one_rate_gives_the_geometric_sum(rate: float, tokens: int) -> None:
    assert Draft("copy", from_rate(rate, tokens)).gain == pytest.approx((1 - rate ** (tokens + 1)) / (1 - rate))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=16))
def test_a_gain_is_between_one_and_all(values: list[float]) -> None:
    draft = checked("copy", sorted(values, reverse=True))
    assert 1.0 <= draft.gain <= 1 + draft.tokens


def test_what_a_user_writes() -> None:
    assert parse_acceptance("0.92,0.66,0.24") == (0.92, 0.66, 0.24)
    assert parse_acceptance("0.5x3") == (0.5, 0.25, 0.125)


@pytest.mark.parametrize(
    ("kind", "values", "word"),
    [
        ("magic", (0.5,), "magic"),
        ("mtp", (), "acceptance"),
        ("mtp", (0.5, 0.9), "position 2"),
        ("mtp", (1.2,), "position 1"),
        ("model", (0.5,), "name"),
    ],
)
def test_a_draft_that_cannot_be_is_refused(kind: str, values: tuple[float, ...], word: str) -> None:
    with pytest.raises(UsageError, match=word):
        checked(kind, values)


def test_an_acceptance_that_is_no_number_is_refused() -> None:
    with pytest.raises(UsageError, match=r"0\.5;0\.4"):
        parse_acceptance("0.5;0.4")

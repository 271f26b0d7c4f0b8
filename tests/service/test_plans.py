"""Plans, and the refusal that names its meter."""

from __future__ import annotations

import pytest

from vivace.errors import UsageError, VivaceError
from vivace.service.plans import OPEN, KeyLimits, Plan, QuotaExceeded, Window, span_text


def test_a_plan_includes_models_by_glob() -> None:
    plan = Plan(id="small", models=["coder-*", "tiny"])
    plan.check_model("coder-0.5b")
    plan.check_model("tiny")
    with pytest.raises(UsageError) as error:
        plan.check_model("big")
    assert error.value.code == "model_not_allowed"
    assert error.value.param == "model"
    assert "'small'" in error.value.message
    assert "'big'" in error.value.message
    OPEN.check_model("anything")


def test_a_plan_includes_tiers_by_name() -> None:
    assert OPEN.allows_tier("whatever")
    assert Plan(id="p", tiers=["flex"]).allows_tier("flex")
    assert not Plan(id="p", tiers=["flex"]).allows_tier("default")


def test_a_window_of_one_family_is_for_it_alone() -> None:
    both, one = Window("tokens", 60, 1), Window("requests", 60, 1, family="large")
    plan = Plan(id="p", windows=[both, one])
    assert plan.windows_of("large") == [both, one]
    assert plan.windows_of("small") == [both]


def test_a_key_has_the_windows_that_it_was_given() -> None:
    assert KeyLimits("vv_x").windows == []
    assert [w.name for w in KeyLimits("vv_x", 5, 100).windows] == ["requests/1m", "tokens/1d"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(1, "1s"), (90, "90s"), (60, "1m"), (18000, "5h"), (604800, "7d"), (5400, "90m")]
)
def test_a_span_is_written_in_its_largest_whole_unit(seconds: int, text: str) -> None:
    assert span_text(seconds) == text


@pytest.mark.parametrize(("resets_in", "retry_after"), [(0.0, 1), (0.2, 1), (1.0, 1), (1.001, 2), (59.5, 60)])
def test_a_refusal_says_when_to_come_back(resets_in: float, retry_after: int) -> None:
    error = QuotaExceeded("used up", meter="tokens/5h/m", limit=5, used=5, resets_in=resets_in, headers={"a": "b"})
    assert isinstance(error, VivaceError)
    assert error.code == "rate_limit_exceeded"
    assert error.retry_after == retry_after
    assert error.headers == {"retry-after": str(retry_after), "a": "b"}

"""The meters: exact against a list of all that happened, reserved and settled once, told as clients read it."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vivace.protocol.items import InputTokensDetails, Usage
from vivace.service.meters import Account, Meters, Use
from vivace.service.plans import OPEN, KeyLimits, Plan, QuotaExceeded, Window
from vivace.service.rate_limits import MeterState, codex_event, duration_text, limit_headers
from vivace.service.windows import STEPS, Amount, Rolling, step_of

HOUR5, WEEK = 18000, 604800
NOW = 1_800_000_000.0


def used(read: int, made: int, cached: int = 0) -> Usage:
    return Usage(input_tokens=read, input_tokens_details=InputTokensDetails(cached_tokens=cached), output_tokens=made)


def plan(*windows: Window, **more: object) -> Plan:
    return Plan(id="p", windows=list(windows), **more)  # type: ignore[arg-type]


def meters(of: Plan) -> Meters:
    return Meters({w.seconds for w in of.windows}, family=lambda model: model.split("-")[0])


# ---- a rolling window


@given(st.integers(1, 700_000), st.integers(0, 2**32))
@settings(max_examples=80, deadline=None)
def test_a_window_holds_all_of_its_length_and_at_most_a_thousandth_more(seconds: int, seed: int) -> None:
    dice = random.Random(seed)
    rolling, log, now = Rolling(seconds), [], 10**12
    for _ in range(120):
        now += dice.choice([0, 1, dice.randrange(seconds * 100), dice.randrange(seconds * 1000)])
        # What other servers did may come late.
        at = now - dice.choice([0, 0, dice.randrange(2000)])
        amount = Amount(1, dice.randrange(1000), dice.randrange(1000), dice.randrange(1000))
        rolling.add(at, amount)
        log.append((at, amount))
        rolling.expire(now)
        for meter in ("requests", "input_tokens", "output_tokens", "tokens"):
            exact = sum(a.of(meter) for at, a in log if at > now - seconds * 1000)
            at_most = sum(a.of(meter) for at, a in log if at > now - seconds * 1000 - rolling.step)
            assert exact <= rolling.total.of(meter) <= at_most
        assert len(rolling._buckets) == len(rolling._order) <= STEPS + 2001 // rolling.step + 2
    soonest = rolling.frees_in(now, 1, "requests", 100)
    assert soonest is not None
    later = now + round(soonest * 1000)
    before = rolling.total.requests
    rolling.expire(later - 1)
    assert rolling.total.requests == before
    rolling.expire(later)
    assert rolling.total.requests < before
    rolling.expire(later + round(rolling.empties_in(later, "requests") * 1000))
    assert rolling.empty
    assert rolling.total == Amount()
    assert rolling.empties_in(later, "requests") == 0


def test_what_is_taken_back_was_never_there_unless_it_has_left_already() -> None:
    rolling = Rolling(60)
    rolling.add(1000, Amount(1))
    rolling.add(1000, Amount(1), -1)
    assert rolling.total.requests == 0
    rolling.add(1000, Amount(1))
    rolling.expire(62_000)
    rolling.add(1000, Amount(1), -1)
    assert rolling.total.requests == 0


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 100))
def test_cached_tokens_count_as_the_plan_says(fresh: int, cached: int, percent: int) -> None:
    counted = Amount(fresh=fresh, cached=cached).of("input_tokens", percent)
    assert fresh + cached * percent / 100 <= counted < fresh + cached * percent / 100 + 1 + 1e-6


# ---- reserve, settle, release


def test_what_is_reserved_counts_until_it_is_settled_with_what_was_used() -> None:
    team = plan(Window("tokens", HOUR5, 1000))
    book = meters(team)
    held = book.reserve("ann", team, None, "m", 400, 300, NOW)
    with pytest.raises(QuotaExceeded) as error:
        book.reserve("ann", team, None, "m", 301, 0, NOW)
    assert (error.value.meter, error.value.limit, error.value.used) == ("tokens/5h/m", 1000, 700)
    assert error.value.retry_after == 1  # nothing in the window would free it: a running response has to end
    assert held.settle(used(100, 50), NOW + 5)
    assert not held.settle(used(900, 900), NOW + 6)
    assert not held.release()
    state = book.snapshot("ann", team, None, "m", NOW + 6)[0]
    assert (state.used, state.reserved, state.remaining) == (150, 0, 850)
    # Exactly what is left fits.
    book.reserve("ann", team, None, "m", 850, 0, NOW + 6).release()
    with pytest.raises(QuotaExceeded):
        book.reserve("ann", team, None, "m", 851, 0, NOW + 6)


def test_meters_are_independent_by_principal_family_and_window() -> None:
    team = plan(Window("tokens", HOUR5, 100), Window("tokens", WEEK, 150), Window("requests", HOUR5, 3))
    book = meters(team)
    book.reserve("ann", team, None, "a-1", 0, 0, NOW).settle(used(60, 40), NOW)
    with pytest.raises(QuotaExceeded, match="100 tokens in 5h"):
        book.reserve("ann", team, None, "a-2", 1, 0, NOW)
    book.reserve("ann", team, None, "b-1", 100, 0, NOW).release()
    book.reserve("bob", team, None, "a-1", 100, 0, NOW).release()
    later = NOW + HOUR5 + HOUR5 / STEPS
    book.reserve("ann", team, None, "a-1", 50, 0, later).settle(used(50, 0), later)
    with pytest.raises(QuotaExceeded) as week:
        book.reserve("ann", team, None, "a-1", 1, 0, later)
    assert week.value.meter == "tokens/7d/a"
    assert week.value.resets_in == pytest.approx(WEEK - HOUR5, abs=2 * WEEK / STEPS)


def test_a_request_counts_when_asked_and_not_when_nothing_came_of_it() -> None:
    team = plan(Window("requests", 60, 2))
    book = meters(team)
    first = book.reserve("ann", team, None, "m", 0, 0, NOW)
    book.reserve("ann", team, None, "m", 0, 0, NOW)
    with pytest.raises(QuotaExceeded) as error:
        book.reserve("ann", team, None, "m", 0, 0, NOW + 20)
    assert error.value.meter == "requests/1m/m"
    assert 40 <= error.value.resets_in <= 40.1
    assert error.value.retry_after == 41
    assert error.value.message.endswith("Please try again in 41s.")
    assert "2 requests in 1m for m" in error.value.message
    assert first.release()
    assert book.snapshot("ann", team, None, "m", NOW + 20)[0].used == 1
    book.reserve("ann", team, None, "m", 0, 0, NOW + 20)
    # Responses that take minutes are not requests of this minute any more.
    assert book.snapshot("ann", team, None, "m", NOW + 82)[0].used == 0
    book.reserve("ann", team, None, "m", 0, 0, NOW + 82)


def test_coming_back_when_told_fits() -> None:
    team = plan(Window("output_tokens", HOUR5, 1000))
    book = meters(team)
    dice, now = random.Random(4), NOW
    for _ in range(60):
        now += dice.uniform(0, 1000)
        want = dice.randrange(1, 900)
        try:
            held = book.reserve("ann", team, None, "m", 0, want, now)
        except QuotaExceeded as error:
            with pytest.raises(QuotaExceeded):
                book.reserve("ann", team, None, "m", 0, want, now + error.resets_in - 0.01)
            now += error.resets_in
            held = book.reserve("ann", team, None, "m", 0, want, now)
        held.settle(used(5, want), now)


def test_what_can_never_fit_says_so_and_is_not_to_be_tried_again() -> None:
    team = plan(Window("input_tokens", 60, 100))
    with pytest.raises(QuotaExceeded) as error:
        meters(team).reserve("ann", team, None, "m", 101, 0, NOW)
    assert "below what this request may need alone (101)" in error.value.message
    assert "try again" not in error.value.message
    assert error.value.headers["x-should-retry"] == "false"


def test_the_limit_that_lasts_longest_is_named() -> None:
    team = plan(Window("tokens", 60, 10), Window("tokens", WEEK, 10))
    book = meters(team)
    book.reserve("ann", team, None, "m", 10, 0, NOW).settle(used(10, 0), NOW)
    with pytest.raises(QuotaExceeded) as error:
        book.reserve("ann", team, None, "m", 1, 0, NOW)
    assert error.value.meter == "tokens/7d/m"


def test_concurrent_responses_are_limited_and_freed_by_their_end() -> None:
    team = plan(concurrent=2)
    book = meters(team)
    first = book.reserve("ann", team, None, "m", 0, 0, NOW)
    second = book.reserve("ann", team, None, "m", 0, 0, NOW)
    book.reserve("ann", team, None, "other", 0, 0, NOW)
    with pytest.raises(QuotaExceeded) as error:
        book.reserve("ann", team, None, "m", 0, 0, NOW)
    assert (error.value.meter, error.value.limit, error.value.used) == ("concurrent/m", 2, 2)
    first.settle(used(1, 1), NOW)
    second.release()
    assert book.snapshot("ann", team, None, "m", NOW)[0].used == 0


def test_a_key_has_limits_of_its_own_over_all_models() -> None:
    key = KeyLimits("vv_abcdefgh", requests_per_minute=2, tokens_per_day=100, concurrent=1)
    book = meters(OPEN)
    held = book.reserve("ann", OPEN, key, "m", 50, 0, NOW)
    with pytest.raises(QuotaExceeded) as one_at_a_time:
        book.reserve("ann", OPEN, key, "other", 0, 0, NOW)
    assert one_at_a_time.value.meter == "concurrent/key vv_abcdefgh"
    held.settle(used(60, 0), NOW)
    with pytest.raises(QuotaExceeded) as tokens:
        book.reserve("ann", OPEN, key, "other", 41, 0, NOW)
    assert tokens.value.meter == "tokens/1d/key vv_abcdefgh"
    book.reserve("ann", OPEN, key, "other", 1, 0, NOW).settle(used(1, 0), NOW)
    with pytest.raises(QuotaExceeded) as requests:
        book.reserve("ann", OPEN, key, "m", 0, 0, NOW)
    assert requests.value.meter == "requests/1m/key vv_abcdefgh"
    book.reserve("ann", OPEN, KeyLimits("vv_other"), "m", 10**9, 0, NOW)


@given(st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_no_history_leaves_anything_held_or_counted_twice(seed: int) -> None:
    """Against a plain list of what was settled and when."""
    dice = random.Random(seed)
    team = plan(Window("tokens", 3600, 5000), Window("requests", 60, 8), concurrent=4)
    key = KeyLimits("vv_k", tokens_per_day=20_000)
    book, now, opened = meters(team), NOW, []
    tokens: list[tuple[float, int]] = []
    requests: list[float] = []
    for _ in range(200):
        now += dice.choice([0, 0.5, 20, 600])
        if dice.random() < 0.5:
            try:
                held = book.reserve("ann", team, key, "m", dice.randrange(1000), dice.randrange(1000), now)
            except QuotaExceeded:
                continue
            opened.append((held, now))
        elif opened:
            held, at = opened.pop(dice.randrange(len(opened)))
            if dice.random() < 0.7:
                read, made = dice.randrange(1500), dice.randrange(1500)
                held.settle(used(read, made, dice.randrange(read + 1)), now)
                tokens.append((now, read + made))
                requests.append(at)
            else:
                held.release()
        states = {state.name: state for state in book.snapshot("ann", team, key, "m", now)}
        for name, length, log in (
            ("tokens/1h/m", 3600, tokens),
            ("tokens/1d/key vv_k", 86400, tokens),
            ("requests/1m/m", 60, [(at, 1) for at in requests + [at for _, at in opened]]),
        ):
            step = step_of(length) / 1000
            exact = sum(count for at, count in log if at > now - length)
            at_most = sum(count for at, count in log if at >= now - length - step - 0.002)
            assert exact <= states[name].used <= at_most
        assert states["concurrent/m"].used == len(opened)
    for held, _ in opened:
        held.release()
    for state in book.snapshot("ann", team, key, "m", now):
        assert state.reserved == 0
    book.sweep(now + 2 * 86400)
    assert book._principals == {}
    assert book._keys == {}


# ---- credits


def test_credits_pay_beyond_the_plan_where_the_principal_opted_in() -> None:
    team = plan(Window("tokens", HOUR5, 100), overflow_to_credits=True)
    key = KeyLimits("vv_k", tokens_per_day=1000)
    book = meters(team)
    book.reserve("ann", team, key, "m", 100, 0, NOW).settle(used(100, 0), NOW, cost=7)

    def more() -> None:
        book.reserve("ann", team, key, "m", 50, 0, NOW, estimate_cost=300).release()

    with pytest.raises(QuotaExceeded):
        more()
    book.credits["ann"] = Account(balance=500, opted_in=False)
    with pytest.raises(QuotaExceeded):
        more()
    book.credits["ann"].opted_in = True
    held = book.reserve("ann", team, key, "m", 50, 0, NOW, estimate_cost=300)
    assert held.credits
    assert book.credits["ann"].held == 300
    with pytest.raises(QuotaExceeded):
        more()  # 200 are free
    held.settle(used(50, 10), NOW, cost=120)
    assert book.credits["ann"] == Account(balance=380, opted_in=True, held=0)
    plan_state, key_state = book.snapshot("ann", team, key, "m", NOW)
    assert plan_state.used == 100  # what credits paid is not the plan's
    assert key_state.used == 160  # a key's limit holds whoever pays
    book.credits["ann"].balance = 0
    with pytest.raises(QuotaExceeded):
        more()
    with pytest.raises(QuotaExceeded):
        book.credits["ann"].balance = 10**9
        book.reserve("ann", team, key, "m", 900, 0, NOW)
    book.reserve("bob", team, None, "m", 1, 0, NOW).release()


def test_a_plan_without_overflow_never_asks_the_credits() -> None:
    team = plan(Window("tokens", HOUR5, 0))
    book = meters(team)
    book.credits["ann"] = Account(balance=10**9, opted_in=True)
    with pytest.raises(QuotaExceeded):
        book.reserve("ann", team, None, "m", 1, 0, NOW)


# ---- what the ledger tells


def test_what_the_ledger_tells_counts_where_it_belongs() -> None:
    team = plan(Window("tokens", HOUR5, 1000), Window("tokens", WEEK, 1000))
    key = KeyLimits("vv_k", tokens_per_day=1000)
    book = meters(team)
    at = int(NOW * 1000)
    book.count(Use("ann", "m", "vv_k", False, at, Amount(fresh=10, output=5)))
    book.count(Use("ann", "m", "vv_k", False, at, Amount(fresh=100)), HOUR5)
    book.count(Use("ann", "m", "", False, at, Amount(cached=7)))
    book.count(Use("ann", "m", "vv_k", True, at, Amount(fresh=1000)))
    counted = {state.name: state.used for state in book.snapshot("ann", team, key, "m", NOW)}
    assert counted == {"tokens/5h/m": 122, "tokens/7d/m": 22, "tokens/1d/key vv_k": 1015}


# ---- as clients read it


def test_headers_tell_the_meters_nearest_to_their_limits() -> None:
    states = [
        MeterState("a", "requests", "plan", 60, 100, 40, 10, 0.006),
        MeterState("b", "requests", "key", 60, 10, 9, 0, 1.0),
        MeterState("c", "input_tokens", "plan", HOUR5, 1000, 100, 400, 123.0),
        MeterState("d", "output_tokens", "plan", HOUR5, 1000, 400, 0, 5.0),
        MeterState("e", "concurrent", "plan", 0, 1, 1),
    ]
    assert limit_headers(states) == {
        "x-ratelimit-limit-requests": "10",
        "x-ratelimit-remaining-requests": "1",
        "x-ratelimit-reset-requests": "1s",
        "x-ratelimit-limit-tokens": "1000",
        "x-ratelimit-remaining-tokens": "500",
        "x-ratelimit-reset-tokens": "2m3s",
    }
    assert limit_headers([]) == {}


def test_a_refusal_carries_the_headers() -> None:
    team = plan(Window("requests", 60, 1))
    book = meters(team)
    book.reserve("ann", team, None, "m", 0, 0, NOW)
    with pytest.raises(QuotaExceeded) as error:
        book.reserve("ann", team, None, "m", 0, 0, NOW)
    assert error.value.headers["x-ratelimit-remaining-requests"] == "0"
    assert error.value.headers["x-ratelimit-limit-requests"] == "1"
    assert int(error.value.headers["retry-after"]) in (60, 61)


def test_codex_is_told_the_shortest_and_the_longest_window() -> None:
    team = plan(Window("tokens", HOUR5, 1000), Window("output_tokens", HOUR5, 100), Window("tokens", WEEK, 10_000))
    book = meters(team)
    book.reserve("ann", team, KeyLimits("vv_k", 5), "m", 0, 0, NOW).settle(used(250, 33), NOW)
    states = book.snapshot("ann", team, KeyLimits("vv_k", 5), "m", NOW)
    event = codex_event("team", states, NOW)
    assert event is not None
    assert event["type"] == "codex.rate_limits"
    assert event["plan_type"] == "team"
    primary, secondary = event["rate_limits"]["primary"], event["rate_limits"]["secondary"]
    assert (primary["used_percent"], primary["window_minutes"]) == (33, 300)
    assert NOW + HOUR5 <= primary["reset_at"] <= NOW + HOUR5 + 18
    assert (secondary["used_percent"], secondary["window_minutes"]) == (3, 10080)
    assert codex_event("team", states[:1], NOW)["rate_limits"]["secondary"] is None  # type: ignore[index]
    assert codex_event("open", [], NOW) is None


@given(st.floats(0, 10**7))
def test_a_duration_is_written_as_openai_does_and_never_too_short(seconds: float) -> None:
    text = duration_text(seconds)
    found = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?|(\d+)ms", text)
    assert found is not None
    hours, minutes, whole, milli = (int(part or 0) for part in found.groups())
    told = hours * 3600 + minutes * 60 + whole + milli / 1000
    assert seconds <= told + 1e-9
    assert told - seconds < (0.0011 if seconds < 0.999 else 1)
    assert minutes < 60 or not hours
    assert whole < 60

"""Turns of an agent, speech, and the tier that is worth its price."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.errors import UsageError
from vivace.plan.compare import compare
from vivace.plan.constants import constants
from vivace.plan.device import Price
from vivace.plan.forward import ttft
from vivace.plan.library import Library
from vivace.plan.setup import make_setup
from vivace.plan.tiers import choose
from vivace.plan.turn import SPEECH, Turn, Workload, bare, hosted, planned, speech, turn


@pytest.mark.parametrize(
    ("tok_s", "first", "short", "share", "long"),
    [
        (65, 0.25, 3.91, 0.84, 6.61),
        (170, 0.25, 1.88, 0.67, 4.58),
        (750, 0.10, 0.76, 0.37, 3.46),
        (1000, 0.10, 0.69, 0.31, 3.39),
        (2000, 0.10, 0.59, 0.18, 3.29),
    ],
)
def test_the_worked_example(tok_s: float, first: float, short: float, share: float, long: float) -> None:
    """Round trip 80 ms, 213 tokens, tools of 0.3 and 3 s: from 65 to 1,000 tok/s a turn is 5.7 or 1.95 times faster."""
    found = turn(bare(tok_s, first, None, Workload()), Workload(tools=0.3))
    assert found.seconds == pytest.approx(short, abs=0.011)
    assert found.decode_share == pytest.approx(share, abs=0.011)
    slow_tools = Workload(tools=3.0)
    assert turn(bare(tok_s, first, None, slow_tools), slow_tools).seconds == pytest.approx(long, abs=0.011)


@given(st.integers(1, 20), st.floats(0, 1), st.floats(0, 5), st.floats(1, 5000), st.integers(1, 5000))
def test_a_turn_is_the_sum_of_its_parts(calls: int, rtt: float, tools: float, tok_s: float, output: int) -> None:
    work = Workload(calls=calls, rtt=rtt, tools=tools, output=output)
    found = turn(bare(tok_s, 0.2, 10.0, work), work)
    assert found.seconds == pytest.approx(calls * (rtt + 0.2 + output / tok_s + tools))
    assert found.dollars == pytest.approx(calls * output * 10 / 1e6)


def test_a_planned_turn_reads_only_what_is_new(library: Library) -> None:
    work = Workload(cached=50_000, delta=1_000)
    setup = make_setup(library, library.model("llama-3.1-70b"), library.device("h100"), count=8, context=51_213)
    runner = planned(setup, work)
    k = constants(setup)
    assert runner.first == pytest.approx(ttft(setup, k, 1_000, 50_000))
    assert runner.first < ttft(setup, k, 51_000, 0) / 20
    assert runner.dollars_call is not None


def test_a_shared_device_is_cheaper_for_each(library: Library) -> None:
    work = Workload(cached=2_000, delta=500)
    one, many = (
        make_setup(library, library.model("llama-3.1-8b"), library.device("h100"), count=1, context=4_000, batch=batch)
        for batch in (1, 16)
    )
    assert (planned(many, work).dollars_call or 0) < (planned(one, work).dollars_call or 0)


@pytest.mark.parametrize("name", ["calls", "delta", "output", "rtt", "tools", "cached"])
def test_impossible_work_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=name):
        Workload(**{name: -1})
    with pytest.raises(UsageError, match="tok-s"):
        bare(0, 0.1, None, Workload())


def test_speech_has_half_a_second() -> None:
    slow, fast = (speech(bare(tok_s, 0.02, None, SPEECH)) for tok_s in (80, 1000))
    assert [each.tokens for each in slow] == [27, 35]
    assert [each.sentence for each in slow] == [False, True]
    assert all(each.tokens > 300 and each.sentence for each in fast)
    late = speech(bare(1000, 0.6, None, SPEECH))
    assert [each.tokens for each in late] == [0, 0]
    assert all(each.left < 0 for each in late)


def named(name: str, seconds: float, dollars: float | None) -> Turn:
    return Turn(
        runner=name, tok_s=1, network=0, first=0, decode=seconds, tools=0, host=0, dollars=dollars, tokens=1, note=""
    )


def test_the_answer_turns_where_the_lines_cross() -> None:
    found = choose(
        [named("slow", 100, 1.0), named("fast", 50, 2.0), named("dear", 40, 9.0), named("silly", 60, 8.0)], 60
    )
    assert [each.turn.runner for each in found.ranked] == ["slow", "fast", "silly", "dear"]
    assert found.changes == [(0.0, "slow"), (pytest.approx(72.0), "fast"), (pytest.approx(2520.0), "dear")]


@given(
    st.lists(st.tuples(st.floats(1, 1000), st.floats(0, 100)), min_size=1, max_size=8, unique=True), st.floats(0, 1e4)
)
def test_the_changes_agree_with_the_ranking(tiers: list[tuple[float, float]], value: float) -> None:
    turns = [named(str(index), seconds, dollars) for index, (seconds, dollars) in enumerate(tiers)]
    found = choose(turns, value)
    best = [name for start, name in found.changes if start <= value][-1]
    total = {each.turn.runner: each.total for each in found.ranked}
    assert total[best] == pytest.approx(found.ranked[0].total, rel=1e-9, abs=1e-12)


def test_hosted_tiers_are_ranked_and_say_what_they_bill(library: Library) -> None:
    work = Workload()
    found = choose([turn(hosted(price, work, 1.0), work) for price in library.every(Price)], 60, turns=20)
    assert len(found.ranked) == 6
    assert all("cached input" in each.turn.note for each in found.ranked)
    idle, busy = (choose([each.turn for each in found.ranked], hour).ranked[0].turn for hour in (0, 1e6))
    assert busy.seconds < idle.seconds
    assert choose([named("free of price", 1, None)], 60).unpriced == ["free of price"]


def test_set_ups_side_by_side(library: Library) -> None:
    gpu, wafer = compare(library, ["llama-3.1-70b@h100x8", "llama-3.1-70b@wse-3:weights=8"], Workload())
    assert gpu.forecast.context == 96_513
    assert wafer.forecast.weights == "int8"
    assert wafer.turn.seconds < gpu.turn.seconds
    assert wafer.turn.decode_share < gpu.turn.decode_share

"""The one equation: by hand on a wafer and on GPUs, and the laws that it has to obey."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from vivace.plan.constants import constants, interval, is_calibrated
from vivace.plan.draft import Draft, from_rate
from vivace.plan.forward import decode_speed, forecast, prefill_time, total_speed, ttft
from vivace.plan.library import Library
from vivace.plan.model import active_parameters
from vivace.plan.setup import Setup, fits, make_setup
from vivace.plan.step import crossing, pass_time, stage_times

LIBRARY = Library()
PLANS = [
    ("llama-3.1-8b", "a100", 1),
    ("llama-3.1-70b", "h100", 8),
    ("deepseek-r1", "gb200", 8),
    ("qwen3.5-397b-a17b", "gb300", 8),
    ("gpt-oss-120b", "wse-3", 2),
    ("kimi-k2.6", "wse-3", 20),
    ("llama-3.1-8b", "groq-lpu", 128),
]
plans = st.sampled_from(PLANS)
fast = settings(max_examples=40, deadline=None)


def plan(which: tuple[str, str, int], **given: object) -> Setup:
    name, device, count = which
    return make_setup(LIBRARY, LIBRARY.model(name), LIBRARY.device(device), count=count, **given)  # type: ignore[arg-type]


def test_a_wafer_by_hand() -> None:
    """Llama 3.1 8B on one CS-3: 33 fixed times, the weights, the cache, the products; nothing overlaps."""
    setup = plan(("llama-3.1-8b", "wse-3", 1), context=1024)
    k = constants(setup)
    active = active_parameters(setup.model.shape)
    read = (active * 2 + 1024 * 131_072) / (21e15 * k["weights.bf16"])
    products = 2 * active / (15.8e15 * k["compute.bf16"])
    attention = (1024 + 0.5) * 32 * (4 * 128 + 256) * 32 / (15.8e15 * k["attention"])
    assert pass_time(setup, k, sequences=1, rows=1, context=1024).total == pytest.approx(
        33 * k["layer"] + read + products + attention
    )


def test_gpus_by_hand() -> None:
    """Four A100: fixed time and two all-reduces a layer, a quarter of the weights each; products hide behind reads."""
    setup = plan(("llama-3.1-8b", "a100", 4), context=100)
    k = constants(setup)
    fixed = 33 * (k["layer"] + 2 * (k["sync"] + 6 * k["sync_hop"]))
    read = active_parameters(setup.model.shape) * 2 / (4 * 2.039e12 * k["weights.bf16"])
    found = pass_time(setup, k, sequences=1, rows=1, context=100)
    assert found.fixed == pytest.approx(fixed)
    assert found.weights == pytest.approx(read, rel=1e-4)
    assert found.link == pytest.approx(33 * 2 * 1.5 * 4096 * 2 / 300e9)


@fast
@given(plans, st.floats(1.05, 8))
def test_more_of_anything_good_is_never_slower(which: tuple[str, str, int], factor: float) -> None:
    setup = plan(which, context=2048, batch=3)
    k = constants(setup)
    speed, first = decode_speed(setup, k), ttft(setup, k, 1000, 0)
    for name in k:
        if name.startswith(("device.", "weights.", "compute.")) or name in ("kv", "attention"):
            better = {**k, name: k[name] * factor}
        elif name in ("layer", "ends", "sync", "sync_hop", "stage_hop", "complex_layer"):
            better = {**k, name: k[name] / factor}
        else:
            continue
        assert decode_speed(setup, better) >= speed * (1 - 1e-12), name
        assert ttft(setup, better, 1000, 0) <= first * (1 + 1e-12), name


@fast
@given(plans, st.integers(1, 6))
def test_more_users_make_each_slower_and_all_together_faster(which: tuple[str, str, int], power: int) -> None:
    few, many = plan(which, context=512, batch=1 << (power - 1)), plan(which, context=512)
    many = structs.replace(few, batch=1 << power)
    if not fits(many):
        return
    k = constants(few)
    assert decode_speed(many, k) <= decode_speed(few, k) * (1 + 1e-9)
    assert total_speed(many, k) >= total_speed(few, k) * 0.999


@fast
@given(plans, st.integers(64, 4000))
def test_a_longer_context_is_never_faster(which: tuple[str, str, int], context: int) -> None:
    shorter, longer = plan(which, context=context), plan(which, context=2 * context)
    k = constants(shorter)
    assert decode_speed(longer, k) <= decode_speed(shorter, k)


@fast
@given(plans, st.floats(0, 1), st.integers(1, 12))
def test_a_draft_gains_at_most_what_it_emits(which: tuple[str, str, int], rate: float, tokens: int) -> None:
    draft = Draft("copy", from_rate(rate, tokens))
    plain, drafting = plan(which, context=512), plan(which, context=512, draft=draft)
    k = constants(plain)
    speedup = decode_speed(drafting, k) / decode_speed(plain, k)
    assert speedup <= draft.gain * (1 + 1e-9)
    assert speedup > 0


def test_speculation_on_sparse_experts_is_not_free() -> None:
    draft = Draft("copy", from_rate(0.8, 7))
    dense = forecast(plan(("llama-3.1-70b", "h100", 8), draft=draft)).decode
    sparse = forecast(plan(("deepseek-r1", "gb300", 8), draft=draft, weights="bf16")).decode
    assert dense.speedup == pytest.approx(dense.gain, rel=0.02)
    assert sparse.speedup < 0.9 * sparse.gain
    assert sparse.experts == pytest.approx(57.4, rel=0.01)


def test_a_smaller_model_can_draft() -> None:
    draft = Draft("model", from_rate(0.8, 4), "llama-2-7b", "int4")
    setup = make_setup(
        LIBRARY, LIBRARY.model("llama-2-70b"), LIBRARY.device("a100"), count=1, weights="int4", draft=draft, context=100
    )
    found = forecast(setup).decode
    assert 1.3 < found.speedup < draft.gain
    free = structs.replace(setup, draft=Draft("copy", from_rate(0.8, 4)), draft_model=None)
    assert found.speedup < forecast(free).decode.speedup


@fast
@given(plans, st.integers(1, 40_000), st.integers(0, 40_000))
def test_a_prompt_costs_more_the_longer_it_is(which: tuple[str, str, int], tokens: int, cached: int) -> None:
    setup = plan(which, context=512)
    k = constants(setup)
    assert prefill_time(setup, k, tokens + 500, cached).total > prefill_time(setup, k, tokens, cached).total
    assert prefill_time(setup, k, tokens, cached + 500).total >= prefill_time(setup, k, tokens, cached).total * 0.999


def test_a_long_prompt_is_the_sum_of_its_chunks() -> None:
    setup = plan(("llama-3.1-70b", "h100", 8), context=131_072)
    k = constants(setup)
    one_by_one = sum(
        pass_time(setup, k, sequences=1, rows=2048, context=2048 * index, logits=index == 48).total
        for index in range(49)
    )
    assert prefill_time(setup, k, 49 * 2048, 0).total == pytest.approx(one_by_one, rel=1e-3)


@fast
@given(plans)
def test_an_interval_holds_its_value_and_is_wider_where_nothing_was_measured(which: tuple[str, str, int]) -> None:
    setup = plan(which, context=1024)
    value = decode_speed(setup, constants(setup))
    low, high = interval(setup, lambda k: decode_speed(setup, k))
    assert low < value < high
    elsewhere = structs.replace(setup, engine="another")
    wider = interval(elsewhere, lambda k: decode_speed(elsewhere, k))
    assert not is_calibrated(elsewhere)
    assert wider[1] / wider[0] >= high / low * (1 - 1e-9)


def test_only_what_was_measured_counts_as_calibrated() -> None:
    assert forecast(plan(("llama-3.1-8b", "a100", 1))).calibrated
    assert not forecast(plan(("llama-3.1-8b", "h100", 1))).calibrated
    assert not forecast(plan(("llama-3.1-8b", "a100", 1), weights="nvfp4")).calibrated
    assert not forecast(plan(("llama-3.1-8b", "a100", 1), engine="vllm")).calibrated


def test_the_parts_of_a_step_are_its_whole() -> None:
    for which in PLANS:
        step = forecast(plan(which, context=1024)).decode.step
        parts = step.fixed + step.weights + step.kv + step.compute + step.link
        assert step.total == pytest.approx(parts)
        assert all(math.isfinite(value) and value >= 0 for value in structs.astuple(step))


def test_the_bound_changes_with_the_work() -> None:
    small = plan(("llama-3.1-8b", "a100", 1), context=128)
    assert forecast(small).decode.bound == "weights"
    assert forecast(plan(("llama-3.1-8b", "wse-3", 1))).decode.bound == "latency floor"
    assert forecast(plan(("llama-3.1-8b", "h100", 1), context=100_000, batch=4)).decode.bound == "KV"
    assert forecast(plan(("llama-3.1-8b", "h100", 1), context=16, batch=1024)).decode.bound == "compute"
    assert forecast(plan(("gpt-oss-120b", "wse-3", 2), batch=40)).decode.bound == "pipeline"


def test_the_stages_and_the_crossings_are_the_pass() -> None:
    setup = plan(("kimi-k2.6", "wse-3", 20), context=4096)
    k = constants(setup)
    whole = pass_time(setup, k, sequences=3, rows=1, context=4096).total
    stages = stage_times(setup, k, sequences=3, rows=1, context=4096)
    assert len(stages) == 20
    assert sum(stages) + 19 * crossing(setup, k, 3) == pytest.approx(whole)
    assert stages[0] == max(stages)  # 61 layers: the first stage has four


def test_cost_is_paid_for_all_devices(library: Library) -> None:
    setup = plan(("llama-3.1-70b", "h100", 8), context=1024, batch=8)
    found = forecast(setup)
    assert found.cost.dollars_per_hour == pytest.approx(8 * 2.65)
    assert found.cost.dollars_per_million == pytest.approx(8 * 2.65 / 3600 / found.decode.total.value * 1e6)
    assert found.cost.joules_per_token == pytest.approx(8 * 700 / found.decode.total.value)
    wafer = forecast(plan(("gpt-oss-120b", "wse-3", 2))).cost
    assert wafer.from_purchase
    assert wafer.dollars_per_hour == pytest.approx(2 * (2.5e6 / 4 / 8760 + 23 * 0.08))
    assert forecast(plan(("llama-3.1-8b", "groq-lpu", 128))).cost.dollars_per_million is None

"""The formula of a full pipeline against the same pipeline run event by event."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vivace.plan.constants import constants
from vivace.plan.forward import forecast
from vivace.plan.library import Library
from vivace.plan.occupancy import group_sizes, lap, occupancy
from vivace.plan.setup import make_setup
from vivace.plan.simulate import simulate
from vivace.plan.step import crossing, stage_times

LIMIT = 0.03


def error(stages: int, sequences: int, seed: int) -> float:
    """Relative error of the formula for stages that are equal, nearly equal or very unequal, with unequal links."""
    draw = random.Random(seed)
    spread = draw.choice((0.0, 0.05, 0.5))
    grows = draw.choice((0.05, 0.2, 1.0))
    base = [draw.uniform(1 - spread, 1 + spread) for _ in range(stages)]
    links = [draw.uniform(0, draw.choice((0.0, 0.4))) for _ in range(stages)]
    groups = group_sizes(sequences, stages)
    times = {size: [each * (1 + grows * (size - 1)) for each in base] for size in set(groups)}
    slowest = base.index(max(base))
    run = simulate(lambda stage, size: times[size][stage], stages, groups, links, laps=12, warm=4, slowest=slowest)
    return abs(occupancy(times, groups, links) / run.occupancy - 1)


CASES = [
    (1, 1), (1, 400), (2, 1), (2, 3), (3, 2), (7, 7), (10, 400), (20, 5), (33, 34), (50, 49), (64, 64), (88, 44),
    (88, 100),
    (100, 1), (100, 99), (100, 100), (100, 101), (100, 250), (100, 400),
]  # fmt: skip


@pytest.mark.parametrize(("stages", "sequences"), CASES)
def test_the_formula_is_what_the_simulation_does(stages: int, sequences: int) -> None:
    assert error(stages, sequences, stages * 1000 + sequences) < LIMIT


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 40), st.integers(1, 120), st.integers(0, 999))
def test_and_anywhere_between(stages: int, sequences: int, seed: int) -> None:
    assert error(stages, sequences, seed) < LIMIT


@given(st.lists(st.floats(0.01, 10), min_size=1, max_size=100), st.integers(1, 100))
def test_an_occupancy_is_a_share(stages: list[float], groups: int) -> None:
    found = occupancy({1: stages}, [1] * groups)
    assert 0 <= found <= 1 + 1e-12
    assert occupancy({1: stages}, [1] * (groups + 1)) >= found * (1 - 1e-12)
    assert groups / lap({1: stages}, [1] * groups) <= (1 + 1e-12) / max(stages)
    assert occupancy({1: stages}, []) == 0


@given(st.integers(1, 400), st.integers(1, 100))
def test_groups_hold_every_sequence_once(sequences: int, stages: int) -> None:
    sizes = group_sizes(sequences, stages)
    assert sum(sizes) == sequences
    assert len(sizes) == min(sequences, stages)
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(("model", "count"), [("kimi-k2.6", 20), ("gpt-oss-120b", 7), ("qwen3-32b", 64)])
@pytest.mark.parametrize("batch", [1, 5, 20, 45, 130])
def test_a_planned_pipeline_is_as_full_as_its_simulation(library: Library, model: str, count: int, batch: int) -> None:
    """Wafers with the times of the forward model: unequal stages, crossings, groups of two sizes."""
    setup = make_setup(library, library.model(model), library.device("wse-3"), count=count, batch=batch, context=1024)
    k = constants(setup)
    found = forecast(setup).decode
    groups = group_sizes(batch, count)
    times = {size: stage_times(setup, k, sequences=size, rows=1, context=1024) for size in set(groups)}
    links = [crossing(setup, k, max(groups))] * (count - 1) + [0.0]
    longest = times[max(groups)]
    assert sum(longest) + sum(links) == pytest.approx(found.step.total)
    slowest = longest.index(max(longest))
    run = simulate(lambda stage, size: times[size][stage], count, groups, links, laps=12, warm=4, slowest=slowest)
    assert found.occupancy == pytest.approx(run.occupancy, rel=LIMIT)


def test_times_that_scatter_lower_it_most_where_the_pipe_is_just_full() -> None:
    """What the formula leaves out: with a tenth of scatter a just full pipe loses a few percent, others little."""
    draw = random.Random(5)
    loss = {}
    for sequences in (5, 20, 60):
        run = simulate(
            lambda stage, size: size * draw.lognormvariate(0, 0.1), 20, group_sizes(sequences, 20), laps=200, warm=20
        )
        sizes = group_sizes(sequences, 20)
        exact = occupancy({size: [size] * 20 for size in set(sizes)}, sizes)
        loss[sequences] = 1 - run.occupancy / exact
    assert loss[20] > loss[5]
    assert loss[20] > 0.02

"""Choosing a token: the exact distribution, and the filters as transformers has them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from vivace.engine.messages import Sampling
from vivace.engine.runner import Likeliest
from vivace.engine.sampler import LikelyRows, LogitRows, choose, probabilities, uniform

VOCAB = 60
DRAWS = 8_000


def random_logits(seed: int, size: int = VOCAB) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 2, size).astype(np.float32)


def chi_square(seen: np.ndarray, expected: np.ndarray) -> float:
    """Standard deviations from the mean of chi-square; cells that expect under 5 are joined to one."""
    few = expected < 5
    seen = np.append(seen[~few], seen[few].sum())
    expected = np.append(expected[~few], expected[few].sum())
    if expected[-1] == 0:
        assert seen[-1] == 0
        seen, expected = seen[:-1], expected[:-1]
    freedom = len(seen) - 1
    return float((((seen - expected) ** 2 / expected).sum() - freedom) / np.sqrt(2 * freedom))


SAMPLINGS = [
    Sampling(temperature=1.0),
    Sampling(temperature=0.6, top_p=0.95),
    Sampling(temperature=1.4, top_k=20),
    Sampling(temperature=1.0, min_p=0.05, top_k=40, top_p=0.9),
]


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
@pytest.mark.parametrize("seed", [0, 1 << 62])
def test_choices_over_positions_have_the_exact_distribution(sampling: Sampling, seed: int) -> None:
    logits = random_logits(7)
    sampling = Sampling(**{**_fields(sampling), "seed": seed})
    ids, weights = probabilities(logits, sampling)
    expected = np.zeros(VOCAB)
    expected[ids] = weights * DRAWS
    seen = np.bincount([choose(logits, sampling, position, set()) for position in range(DRAWS)], minlength=VOCAB)
    assert abs(chi_square(seen, expected)) < 4


def test_choices_over_seeds_have_the_exact_distribution() -> None:
    logits = random_logits(8)
    ids, weights = probabilities(logits, Sampling(temperature=1.0))
    expected = np.zeros(VOCAB)
    expected[ids] = weights * DRAWS
    drawn = [choose(logits, Sampling(temperature=1.0, seed=seed), 100, set()) for seed in range(DRAWS)]
    assert abs(chi_square(np.bincount(drawn, minlength=VOCAB), expected)) < 4


@pytest.mark.parametrize("apart", [1, 2, 32])
@pytest.mark.parametrize("by_seed", [False, True])
def test_neighbouring_choices_are_independent(apart: int, by_seed: bool) -> None:
    def draw(number: int) -> int:
        return int(16 * (uniform(number, 5) if by_seed else uniform(5, number)))

    pairs = [draw(n) * 16 + draw(n + apart) for n in range(8 * DRAWS)]
    seen = np.bincount(pairs, minlength=256)
    # Overlapping pairs: their chi-square spreads a little wider than that of separate ones.
    assert abs(chi_square(seen, np.full(256, len(pairs) / 256))) < 6


@settings(max_examples=300, deadline=None)
@given(
    st.integers(0, 10_000),
    st.floats(0.1, 3.0),
    st.integers(0, 80),
    st.floats(0.01, 1.0),
    st.floats(0.0, 0.9),
)
def test_filters_equal_those_of_transformers(
    seed: int, temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    logits = random_logits(seed)
    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    warpers = LogitsProcessorList([TemperatureLogitsWarper(temperature)])
    if top_k:
        warpers.append(TopKLogitsWarper(top_k))
    if top_p < 1.0:
        warpers.append(TopPLogitsWarper(top_p))
    if min_p > 0.0:
        warpers.append(MinPLogitsWarper(min_p))
    scores = warpers(torch.zeros(1, 1, dtype=torch.long), torch.from_numpy(logits).double()[None])
    wanted = torch.softmax(scores, -1)[0].numpy()
    got = np.zeros(VOCAB)
    ids, weights = probabilities(logits, sampling)
    got[ids] = weights
    assert np.abs(got - wanted).max() < 1e-9
    assert (np.diff(weights) <= 0).all() and weights.sum() == pytest.approx(1)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.2, 4.0), st.sets(st.integers(0, VOCAB - 1), max_size=VOCAB))
def test_the_repetition_penalty_equals_that_of_transformers(seed: int, penalty: float, seen: set[int]) -> None:
    logits = random_logits(seed)
    before = logits.copy()
    processor = RepetitionPenaltyLogitsProcessor(penalty)
    history = torch.tensor([sorted(seen)], dtype=torch.long)
    wanted = processor(history, torch.from_numpy(logits)[None]) if seen else torch.from_numpy(logits)[None]
    assert choose(logits, Sampling(repetition_penalty=penalty), 0, seen) == int(wanted.argmax())
    sampling = Sampling(repetition_penalty=penalty, temperature=1.0, seed=seed)
    plain = Sampling(temperature=1.0, seed=seed)
    for position in range(5):
        assert choose(logits, sampling, position, seen) == choose(wanted[0].numpy(), plain, position, set())
    assert (logits == before).all()


@pytest.mark.parametrize("top_p", [1.0, 0.999, 0.95, 0.3])
@pytest.mark.parametrize("width", [0.0, 0.3, 3.0, 12.0])
def test_a_large_vocabulary_is_drawn_from_as_if_it_had_been_sorted(top_p: float, width: float) -> None:
    logits = (np.random.default_rng(5).standard_normal(20_000) * width).astype(np.float32)
    scaled = logits.astype(np.float64) / 0.8
    order = np.argsort(-scaled, kind="stable")
    weights = np.exp(scaled[order] - scaled[order[0]])
    weights /= weights.sum()
    if top_p < 1.0:
        keep = int(np.searchsorted(np.cumsum(weights), top_p)) + 1
        order, weights = order[:keep], weights[:keep] / weights[:keep].sum()
    for position in range(60):
        wanted = order[min(np.searchsorted(np.cumsum(weights), uniform(9, position), side="right"), len(order) - 1)]
        assert choose(logits, Sampling(temperature=0.8, top_p=top_p, seed=9), position, set()) == wanted


def test_ties_go_to_the_lower_id() -> None:
    logits = np.array([0, 3, 3, 1], dtype=np.float32)
    assert choose(logits, Sampling(), 0, set()) == 1
    assert probabilities(logits, Sampling(temperature=1.0, top_k=1))[0].tolist() == [1]


def test_uniform_stays_under_one_and_a_row_of_one_token_is_certain() -> None:
    numbers = [uniform(seed, position) for seed in (0, -1, 1 << 63) for position in range(2000)]
    assert min(numbers) >= 0 and max(numbers) < 1 and len(set(numbers)) == len(numbers)
    logits = np.full(VOCAB, -np.inf, dtype=np.float32)
    logits[9] = 0
    assert {choose(logits, Sampling(temperature=2.0), position, set()) for position in range(50)} == {9}


def _fields(sampling: Sampling) -> dict[str, float]:
    return {name: getattr(sampling, name) for name in sampling.__struct_fields__}


@given(
    seed=st.integers(0, 1 << 62),
    temperature=st.sampled_from([0.0, 0.3, 0.6, 1.0, 1.5]),
    measured_at=st.sampled_from([0.3, 0.6, 1.0]),
    filters=st.sampled_from([{}, {"top_k": 5}, {"top_p": 0.8}, {"min_p": 0.1}, {"repetition_penalty": 1.3}]),
)
@settings(max_examples=60, deadline=None)
def test_the_likeliest_token_and_its_probability_choose_what_all_logits_choose(
    seed: int, temperature: float, measured_at: float, filters: dict[str, float]
) -> None:
    sampling = Sampling(temperature=temperature, seed=seed, **filters)
    logits = np.stack([random_logits(seed % 1000 + row) for row in range(4)])
    scaled = np.exp((logits - logits.max(axis=1, keepdims=True)) / measured_at)
    fetched: list[int] = []

    def fetch(row: int) -> np.ndarray:
        fetched.append(row)
        return logits[row]

    rows = Likeliest(logits.argmax(1).astype(np.int32), (1 / scaled.sum(1)).astype(np.float32), measured_at, fetch)
    likely, whole = LikelyRows(rows), LogitRows(logits)
    for position in range(40):
        for row in range(4):
            expected = choose(logits[row], sampling, position, {1, 2, 3})
            assert likely.choose(row, sampling, position, {1, 2, 3}) == expected
            assert whole.choose(row, sampling, position, {1, 2, 3}) == expected
    assert len(fetched) == len(set(fetched))
    assert not (fetched and sampling.plain_greedy)

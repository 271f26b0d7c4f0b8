"""Strengths out of verdicts."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vivace.bench.blind.bradley_terry import described, fit, ratings
from vivace.bench.blind.verdicts import Verdict, Won


def won(task: int, first: str, second: str, how: Won) -> Verdict:
    return Verdict(task=f"t/{task}", seed=0, first=first, second=second, won=how, judge="j")


def test_two_contenders_by_hand() -> None:
    strengths = fit(np.array([[0.0, 3.0], [1.0, 0.0]]), prior=0)
    assert strengths[0] - strengths[1] == pytest.approx(math.log(3))
    assert strengths.sum() == pytest.approx(0)
    drawn_in = fit(np.array([[0.0, 3.0], [1.0, 0.0]]), prior=2)
    assert drawn_in[0] - drawn_in[1] == pytest.approx(math.log(2))


@given(st.lists(st.lists(st.integers(1, 9), min_size=4, max_size=4), min_size=4, max_size=4))
@settings(max_examples=40, deadline=None)
def test_a_fit_expects_as_many_wins_as_there_were(rows: list[list[int]]) -> None:
    """The condition of the greatest likelihood, and independence of names."""
    wins = np.array(rows, dtype=float)
    np.fill_diagonal(wins, 0)
    strengths = fit(wins, prior=0)
    chance = 1 / (1 + np.exp(strengths[None, :] - strengths[:, None]))
    expected = ((wins + wins.T) * chance).sum(axis=1)
    assert expected == pytest.approx(wins.sum(axis=1), rel=1e-6)
    order = [2, 0, 3, 1]
    assert fit(wins[np.ix_(order, order)], prior=0) == pytest.approx(strengths[order], abs=1e-6)


def test_who_never_loses_is_not_infinitely_good() -> None:
    wins = np.array([[0.0, 5.0], [0.0, 0.0]])
    with pytest.raises(ArithmeticError):
        fit(wins, prior=0)
    assert 0 < fit(wins)[0] < 3


def test_strengths_are_those_of_the_greatest_likelihood() -> None:
    chance = random.Random(7)
    names, true = ["a", "b", "c", "d"], {"a": 1.0, "b": 0.4, "c": -0.2, "d": -1.2}
    verdicts = []
    for task in range(300):
        x, y = chance.sample(names, 2)
        better = chance.random() < 1 / (1 + math.exp(true[y] - true[x]))
        tied = chance.random() < 0.15
        verdicts.append(won(task, x, y, "tie" if tied else "first" if better else "second"))
    mine = {rating.contender: rating.strength for rating in ratings(verdicts, prior=0)}
    expected, wins = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0)
    for one in verdicts:
        chance_of_first = 1 / (1 + math.exp(mine[one.second] - mine[one.first]))
        score = {"first": 1.0, "second": 0.0, "tie": 0.5}[one.won]
        expected[one.first] += chance_of_first
        expected[one.second] += 1 - chance_of_first
        wins[one.first] += score
        wins[one.second] += 1 - score
    for name in names:
        assert expected[name] == pytest.approx(wins[name], abs=0.1)
        assert mine[name] == pytest.approx(true[name] - sum(true.values()) / 4, abs=0.5)


def test_intervals_hold_the_truth_and_shrink() -> None:
    chance = random.Random(3)

    def played(count: int) -> list[Verdict]:
        return [won(n, "a", "b", "first" if chance.random() < 0.7 else "second") for n in range(count)]

    few, many = ratings(played(30)), ratings(played(600))
    half = math.log(0.7 / 0.3) / 2
    best = many[0]
    assert best.contender == "a" and best.low < half < best.high and best.low > 0
    assert best.high - best.low < few[0].high - few[0].low
    assert best.chance == pytest.approx(100 / (1 + math.exp(-best.strength)), abs=0.1)
    assert ratings(played(0)) == []


def test_tallies_and_skips() -> None:
    verdicts = [won(1, "a", "b", "first"), won(2, "b", "a", "tie"), won(3, "b", "a", "first"), won(4, "a", "b", "skip")]
    found = {rating.contender: (rating.wins, rating.ties, rating.losses) for rating in ratings(verdicts)}
    assert found == {"a": (1, 1, 1), "b": (1, 1, 1)}
    assert ratings(verdicts)[0].strength == 0.0
    assert "1 won, 1 tied, 1 lost" in described(ratings(verdicts))

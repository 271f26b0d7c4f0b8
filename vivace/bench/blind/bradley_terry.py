"""The Bradley-Terry model: from who was better in pairs to how good each is, with bootstrap intervals.

P(i beats j) = p_i / (p_i + p_j); R. A. Bradley and M. E. Terry, Biometrika 39, 1952. Fitted with evalica (the ``bench``
extra). A tie is half a win for each.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from vivace.bench.blind.verdicts import Verdict
from vivace.errors import VivaceError

PRIOR = 0.5
"""Ties that are added to every pair: without any, whoever never loses is infinitely good."""
RESAMPLES = 1000
TOLERANCE = 1e-8
ROUNDS = 10_000


class Rating(Struct, frozen=True, kw_only=True):
    """One contender. Strengths are log-odds: their mean over the contenders is 0, low and high are 95 % intervals."""

    contender: str
    strength: float
    low: float
    high: float
    chance: float
    """Percent: of beating a contender of strength 0."""
    wins: int
    ties: int
    losses: int


def fit(wins: np.ndarray, prior: float = PRIOR) -> np.ndarray:
    """Strengths of a matrix of wins, [i, j] being how often i beat j; a tie is 0.5 in both places.

    Shape (n, n) -> (n,), log-odds with mean 0. Raises :class:`ArithmeticError` when they do not settle, as happens
    without a ``prior`` when somebody never loses, and :class:`VivaceError` without evalica.
    """
    evalica = _evalica()
    won = wins + prior / 2 * (1 - np.eye(len(wins)))
    if not _connected(won):
        raise ArithmeticError("no strengths: somebody never loses, or never wins, or never meets the rest")
    firsts, seconds = np.nonzero(won)
    found = evalica.bradley_terry(
        firsts.tolist(),
        seconds.tolist(),
        [evalica.Winner.X] * len(firsts),
        weights=won[firsts, seconds].tolist(),
        tolerance=TOLERANCE,
        limit=ROUNDS,
    )
    if found.iterations >= ROUNDS:
        raise ArithmeticError(f"the strengths do not settle in {ROUNDS:,} rounds")
    logs = np.log(found.scores.sort_index().to_numpy())
    return np.asarray(logs - logs.mean())


def _connected(won: np.ndarray) -> bool:
    """Whether everybody is better than everybody over a chain of wins, which is when the strengths are finite."""
    reached = won > 0
    for _ in range(len(won)):
        reached = reached | (reached.astype(int) @ reached.astype(int) > 0)
    return bool((reached | np.eye(len(won), dtype=bool)).all())


def _evalica() -> Any:
    try:
        return importlib.import_module("evalica")
    except ImportError as error:
        raise VivaceError(
            "Ratings need evalica.", hint="Install it: pip install 'vivace[bench]'.", code="no_evalica"
        ) from error


def ratings(verdicts: Sequence[Verdict], prior: float = PRIOR) -> list[Rating]:
    """The contenders, the strongest first. Intervals come of drawing whole tasks anew, with replacement."""
    counted = [one for one in verdicts if one.won != "skip"]
    names = sorted({name for one in counted for name in (one.first, one.second)})
    if not names:
        return []
    place = {name: n for n, name in enumerate(names)}
    by_task = {task: np.zeros((len(names), len(names))) for task in dict.fromkeys(one.task for one in counted)}
    for one in counted:
        a, b = place[one.first], place[one.second]
        score = {"first": 1.0, "second": 0.0}.get(one.won, 0.5)
        by_task[one.task][a, b] += score
        by_task[one.task][b, a] += 1 - score
    tables = np.stack(list(by_task.values()))
    strengths = fit(tables.sum(axis=0), prior)
    low, high = np.quantile(_drawn(tables, prior), (0.025, 0.975), axis=0)
    found = [
        Rating(
            contender=name,
            strength=round(float(strengths[n]), 3),
            low=round(float(low[n]), 3),
            high=round(float(high[n]), 3),
            chance=round(100 / (1 + float(np.exp(-strengths[n]))), 1),
            **_tally(counted, name),
        )
        for n, name in enumerate(names)
    ]
    return sorted(found, key=lambda rating: -rating.strength)


def _drawn(tables: np.ndarray, prior: float) -> np.ndarray:
    """Strengths of :data:`RESAMPLES` samples of the tasks, the same every time."""
    random = np.random.default_rng(0)
    counts = random.multinomial(len(tables), np.full(len(tables), 1 / len(tables)), RESAMPLES)
    return np.stack([fit(table, prior) for table in np.tensordot(counts, tables, axes=1)])


def _tally(counted: Sequence[Verdict], name: str) -> dict[str, int]:
    mine = [one for one in counted if name in (one.first, one.second)]
    wins = sum((one.first if one.won == "first" else one.second) == name for one in mine if one.won != "tie")
    ties = sum(one.won == "tie" for one in mine)
    return {"wins": wins, "ties": ties, "losses": len(mine) - wins - ties}


def described(found: Sequence[Rating]) -> str:
    """The ratings for people, one line a contender."""
    width = max((len(rating.contender) for rating in found), default=0)
    return "\n".join(
        f"{rating.contender:<{width}}  {rating.strength:+.2f} ({rating.low:+.2f} to {rating.high:+.2f})  "
        f"beats the middle in {rating.chance:.0f} %  {rating.wins} won, {rating.ties} tied, {rating.losses} lost"
        for rating in found
    )

"""The Bradley-Terry model: from who was better in pairs to how good each is, with bootstrap intervals.

P(i beats j) = p_i / (p_i + p_j); R. A. Bradley and M. E. Terry, Biometrika 39, 1952. Fitted by minorisation and
maximisation (D. R. Hunter, Annals of Statistics 32, 2004). A tie is half a win for each.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from vivace.bench.blind.verdicts import Verdict

PRIOR = 0.5
"""Ties that are added to every pair: without any, whoever never loses is infinitely good."""
RESAMPLES = 1000
TOLERANCE = 1e-10
ROUNDS = 100_000


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

    Shape (..., n, n) -> (..., n), log-odds with mean 0; matrices are fitted together. Raises
    :class:`ArithmeticError` when one does not settle, as happens without a ``prior`` when somebody never loses.
    """
    won = wins + prior / 2 * (1 - np.eye(wins.shape[-1]))
    games, total = won + np.swapaxes(won, -1, -2), won.sum(axis=-1)
    p = np.ones(total.shape)
    for _ in range(ROUNDS):
        with np.errstate(divide="ignore", invalid="ignore"):
            new = total / (games / (p[..., :, None] + p[..., None, :])).sum(axis=-1)
            new /= np.exp(np.log(new).mean(axis=-1, keepdims=True))
        if not np.isfinite(new).all():
            break
        if (np.abs(new - p) <= TOLERANCE * new).all():
            return np.asarray(np.log(new))
        p = new
    raise ArithmeticError("the strengths do not settle: somebody never loses, or never wins, or never meets the rest")


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
    return fit(np.tensordot(counts, tables, axes=1), prior)


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

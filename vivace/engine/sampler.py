"""Choosing one token from one row of logits.

The random number of a choice depends on the seed and the position alone, not on how many rows were computed together
or how they were drafted. So a fixed draft is a point mass: accepting it exactly when it equals the sampled token keeps
the distribution, and a seed gives the same tokens with and without drafting.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from vivace.engine.messages import Sampling
from vivace.engine.runner import Likeliest

Logits = NDArray[np.float32]

_MASK = (1 << 64) - 1


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) from two integers: SplitMix64 (Steele, Lea, Flood 2014) over their mix."""
    z = (seed * 0x9E3779B97F4A7C15 + position * 0xD1B54A32D192ED03 + 0x8CB92BA72F3D8DD7) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return float((z ^ (z >> 31)) >> 11) / float(1 << 53)


REACH = 40.0
"""Nothing under e^-40 of the likeliest can be drawn in practice."""
NEAR = (6.0, 12.0)
"""How far below the likeliest a nucleus mostly ends. To sort the whole vocabulary takes a hundred times as long."""


def probabilities(logits: Logits, sampling: Sampling) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The tokens that may be chosen, most likely first, and their probabilities (sum 1).

    In the order that transformers applies them: temperature, top_k, top_p, min_p. Ties keep the lower id first.
    """
    scaled = _scaled(logits, sampling.temperature)
    whole = 0.0
    if 0 < sampling.top_k < scaled.size:
        floor = np.partition(scaled, scaled.size - sampling.top_k)[scaled.size - sampling.top_k]
        ids = np.flatnonzero(scaled >= floor)
    elif sampling.top_p < 1.0:
        ids, whole = _likely(scaled, sampling.top_p)
    else:
        ids = np.flatnonzero(scaled >= -REACH)
    order = np.argsort(-scaled[ids], kind="stable")
    ids = ids[order][: sampling.top_k or None]
    weights = np.exp(scaled[ids])
    weights /= whole or weights.sum()
    if sampling.top_p < 1.0:
        keep = int(np.searchsorted(np.cumsum(weights), sampling.top_p, side="left")) + 1
        ids, weights = ids[:keep], weights[:keep]
        weights /= weights.sum()
    if sampling.min_p > 0.0:
        keep = max(1, int((weights >= sampling.min_p * weights[0]).sum()))
        ids, weights = ids[:keep], weights[:keep]
        weights /= weights.sum()
    return ids, weights


def _scaled(logits: Logits, temperature: float) -> NDArray[np.float64]:
    scaled = logits.astype(np.float64)
    scaled -= scaled.max()
    scaled /= temperature
    return scaled


def _likely(scaled: NDArray[np.float64], share: float) -> tuple[NDArray[np.int64], float]:
    """The ids of likeliest tokens that hold more than ``share`` of the whole weight, few mostly, and that weight.

    ``scaled`` are logits over temperature, the largest 0. Every token that is left out is less likely than all of
    these, so that what top_p keeps, and what a number below ``share`` draws, is among them.
    """
    weights = np.exp(scaled)
    weights[scaled < -REACH] = 0.0
    whole = float(weights.sum())
    for reach in NEAR:
        ids = np.flatnonzero(scaled >= -reach)
        if float(weights[ids].sum()) > share * whole * (1 + 1e-9):
            return ids, whole
    return np.flatnonzero(scaled >= -REACH), whole


class LogitRows:
    """Rows of logits that one or several twins choose from, with the likeliest token of each row worked out once."""

    def __init__(self, logits: Logits) -> None:
        """``logits``: float32 [rows, vocab]."""
        self.logits = logits
        self._likeliest: dict[tuple[int, float], tuple[int, float]] = {}
        self._allowed: dict[int, LogitRows] = {}

    def choose(self, row: int, sampling: Sampling, position: int, seen: set[int]) -> int:
        """The same token as :func:`choose`, mostly without sorting the vocabulary.

        Tokens are drawn from the likeliest downwards, so a number under the likeliest one's probability decides; what
        top_k, top_p and min_p leave out could only raise that probability.
        """
        if sampling.repetition_penalty == 1.0 and sampling.temperature > 0:
            token, probability = self.likeliest(row, sampling.temperature)
            if uniform(sampling.seed, position) < probability * (1 - 1e-4):
                return token
        return choose(self.logits[row], sampling, position, seen)

    def allowed(self, row: int, mask: Callable[[], NDArray[np.bool_]]) -> LogitRows:
        """A row as the only one, without what ``mask`` forbids. Twins share a grammar's state, so the first asks."""
        found = self._allowed.get(row)
        if found is None:
            found = self._allowed[row] = LogitRows(_masked(self.logits[row], mask())[None])
        return found

    def likeliest(self, row: int, temperature: float) -> tuple[int, float]:
        """The likeliest token of a row and its probability, to about 1e-5."""
        found = self._likeliest.get((row, temperature))
        if found is None:
            logits = self.logits[row]
            token = int(logits.argmax())
            scaled = logits - logits[token]
            scaled *= np.float32(1.0 / temperature)
            np.exp(scaled, out=scaled)
            found = self._likeliest[row, temperature] = token, 1.0 / float(scaled.sum(dtype=np.float64))
        return found


def _masked(logits: Logits, mask: NDArray[np.bool_]) -> Logits:
    """A copy with minus infinity where ``mask`` is false, by the smaller side: several times faster than np.where."""
    if 2 * np.count_nonzero(mask) > mask.size:
        masked = logits.copy()
        masked[np.flatnonzero(~mask)] = -np.inf
        return masked
    masked = np.full_like(logits, -np.inf)
    allowed = np.flatnonzero(mask)
    masked[allowed] = logits[allowed]
    return masked


class LikelyRows:
    """Rows of which a pass gave the likeliest token and its probability; logits are fetched where that will not do."""

    def __init__(self, rows: Likeliest) -> None:
        self._rows = rows
        self._fetched: dict[int, Logits] = {}

    def choose(self, row: int, sampling: Sampling, position: int, seen: set[int]) -> int:
        """The same token as :func:`choose`; see :meth:`LogitRows.choose`."""
        rows = self._rows
        if sampling.plain_greedy:
            return int(rows.tokens[row])
        if sampling.repetition_penalty == 1.0 and sampling.temperature == rows.temperature:
            sure = float(rows.probabilities[row]) * (1 - 1e-4)
            if uniform(sampling.seed, position) < sure:
                return int(rows.tokens[row])
        if row not in self._fetched:
            self._fetched[row] = rows.logits(row)
        return choose(self._fetched[row], sampling, position, seen)


def choose(logits: Logits, sampling: Sampling, position: int, seen: set[int]) -> int:
    """The token at ``position``; ``seen`` are the ids of prompt and output so far, for the repetition penalty.

    The penalty divides positive logits and multiplies negative ones (Keskar et al. 2019, CTRL).
    """
    if sampling.repetition_penalty != 1.0 and seen:
        ids = np.fromiter(seen, dtype=np.int64, count=len(seen))
        logits = logits.copy()
        hit = logits[ids]
        logits[ids] = np.where(hit > 0, hit / sampling.repetition_penalty, hit * sampling.repetition_penalty)
    if sampling.temperature <= 0.0:
        return int(logits.argmax())
    drawn = uniform(sampling.seed, position)
    if sampling.top_p < 1.0 or sampling.top_k > 0 or sampling.min_p > 0.0:
        ids, weights = probabilities(logits, sampling)
    else:
        scaled = _scaled(logits, sampling.temperature)
        ids, whole = _likely(scaled, drawn)
        ids = ids[np.argsort(-scaled[ids], kind="stable")]
        weights = np.exp(scaled[ids]) / whole
    index = int(np.searchsorted(np.cumsum(weights), drawn, side="right"))
    return int(ids[min(index, ids.size - 1)])

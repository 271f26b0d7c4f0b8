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


def probabilities(logits: Logits, sampling: Sampling) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The tokens that may be chosen, most likely first, and their probabilities (sum 1).

    In the order that transformers applies them: temperature, top_k, top_p, min_p. Ties keep the lower id first.
    """
    scaled = logits.astype(np.float64) / sampling.temperature
    if 0 < sampling.top_k < scaled.size:
        floor = np.partition(scaled, scaled.size - sampling.top_k)[scaled.size - sampling.top_k]
        ids = np.flatnonzero(scaled >= floor)
    else:
        # Nothing under e^-40 of the best can be drawn in practice; leaving it out keeps the sort small.
        ids = np.flatnonzero(scaled >= scaled.max() - 40.0)
    order = np.argsort(-scaled[ids], kind="stable")
    ids = ids[order][: sampling.top_k or None]
    weights = np.exp(scaled[ids] - scaled[ids[0]])
    weights /= weights.sum()
    if sampling.top_p < 1.0:
        keep = int(np.searchsorted(np.cumsum(weights), sampling.top_p, side="left")) + 1
        ids, weights = ids[:keep], weights[:keep]
        weights /= weights.sum()
    if sampling.min_p > 0.0:
        keep = max(1, int((weights >= sampling.min_p * weights[0]).sum()))
        ids, weights = ids[:keep], weights[:keep]
        weights /= weights.sum()
    return ids, weights


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
    ids, weights = probabilities(logits, sampling)
    index = int(np.searchsorted(np.cumsum(weights), uniform(sampling.seed, position), side="right"))
    return int(ids[min(index, ids.size - 1)])

"""Files that mention what other files define, as a weighted graph, and PageRank over it.

L. Page and others, "The PageRank Citation Ranking" (1999), with the restart at what the user named.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

COMMON = 8
"""A name that more files define is a word of the language (``run``, ``get``), and links nothing."""
DAMPING = 0.85
TOLERANCE = 1e-7
MAX_STEPS = 60

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def edges(
    files: int, names: Sequence[str], d_file: Ints, d_name: Ints, r_file: Ints, r_name: Ints, r_count: Ints
) -> tuple[Ints, Ints, Floats]:
    """(from, to, weight) for each pair of files of which one mentions what the other defines.

    The weight of a name is the square root of how often it is mentioned, shared among the files that define it, less
    for short and private names.
    """
    nothing = np.zeros(0, np.int64)
    if not len(d_file) or not len(r_file):
        return nothing, nothing, np.zeros(0)
    pairs = np.unique(d_name * files + d_file)  # a file that defines a name twice counts once
    by_name, definer = pairs // files, pairs % files
    definers = np.bincount(by_name, minlength=len(names))
    first = np.concatenate([[0], np.cumsum(definers)])[:-1]
    links = (definers[r_name] > 0) & (definers[r_name] <= COMMON)
    source, name = r_file[links], r_name[links]
    weight = np.sqrt(r_count[links]) * _worth(names)[name] / definers[name]
    times = definers[name]
    source = np.repeat(source, times)
    step = np.arange(len(source)) - np.repeat(np.cumsum(times) - times, times)
    target = definer[np.repeat(first[name], times) + step]
    weight = np.repeat(weight, times)
    others = source != target
    keys, where = np.unique(source[others] * files + target[others], return_inverse=True)
    return keys // files, keys % files, spread(weight[others], where, len(keys))


def page_rank(files: int, e_from: Ints, e_to: Ints, e_weight: Floats, restart: Floats) -> Floats:
    """How likely a reader who follows mentions, and starts again at ``restart`` now and then, is at each file."""
    restart = restart / restart.sum()
    out = np.bincount(e_from, weights=e_weight, minlength=files)
    share = e_weight / out[e_from]
    dangling = out == 0
    rank = restart.copy()
    for _ in range(MAX_STEPS):
        flow = np.bincount(e_to, weights=rank[e_from] * share, minlength=files)
        after = DAMPING * (flow + rank[dangling].sum() * restart) + (1 - DAMPING) * restart
        change = float(np.abs(after - rank).sum())
        rank = after
        if change < TOLERANCE:
            break
    return rank


def _worth(names: Sequence[str]) -> Floats:
    return np.array([worth(name) for name in names])


_COMPOUND = re.compile(r"[a-z0-9][A-Z]|[A-Za-z0-9]_[A-Za-z0-9]")


def worth(name: str) -> float:
    """How much a mention of ``name`` says: 3 for one that somebody made up, 1 for a word, less for the rest."""
    if name.startswith("_"):
        return 0.2
    if len(name) < 4:
        return 0.1
    return 3.0 if len(name) >= 8 and _COMPOUND.search(name) else 1.0


def spread(values: Any, where: Any, size: int) -> Floats:
    """Sums of ``values`` by ``where``."""
    return np.bincount(where, weights=values, minlength=size).astype(np.float64)

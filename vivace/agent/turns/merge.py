"""Two candidates that each hold a good part: their changes joined, where they do not touch each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise

from vivace.agent.applier import Patch, make_patch
from vivace.agent.workspace import split_lines

MOST = 3
"""Merged candidates that are worth a try."""


def merged(patches: Sequence[Patch]) -> Iterator[Patch]:
    """Unions of two patches of the same file, smallest first; what equals one of the two is none."""
    made: dict[bytes, Patch] = {}
    known = {patch.data for patch in patches}
    for one, other in combinations(patches, 2):
        if one.source.raw == other.source.raw and (both := _union(one, other)) is not None and both.data not in known:
            made.setdefault(both.data, both)
    yield from sorted(made.values(), key=lambda patch: patch.lines_changed)[:MOST]


def _union(one: Patch, other: Patch) -> Patch | None:
    """Both sets of changes; None where they touch the same or neighbouring lines in different ways."""
    changes: dict[tuple[int, int], list[str]] = {}
    for patch in (one, other):
        new = split_lines(patch.text)
        for block in patch.blocks:
            place, fresh = (block.i1, block.i2), new[block.j1 : block.j2]
            if changes.setdefault(place, fresh) != fresh:
                return None
    places = sorted(changes)
    if any(after[0] <= before[1] for before, after in pairwise(places)):
        return None
    lines = list(one.source.lines)
    for first, last in reversed(places):
        lines[first:last] = changes[first, last]
    text = "\n".join(lines) + ("\n" if one.source.final_newline else "")
    return make_patch(one.source, text)

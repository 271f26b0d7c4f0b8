"""The smallest line diff: Myers' O(ND) algorithm, kept fast on long and on hopeless inputs.

E. W. Myers, "An O(ND) Difference Algorithm and Its Variations" (1986). Common ends are cut off first, and lines that
the other side lacks are left out of the search: neither changes the longest common subsequence. Past a budget of edits
the search gives up minimality for anchors that are unique on both sides (patience diff).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

MAX_EDITS = 800
"""Edits among shared lines beyond which minimality is given up; the search costs the square of it."""


class Block(NamedTuple):
    """``old[i1:i2]`` became ``new[j1:j2]``; one side may be empty. Line numbers from 0."""

    i1: int
    i2: int
    j1: int
    j2: int

    @property
    def lines(self) -> int:
        """Lines changed: a replaced line counts once."""
        return max(self.i2 - self.i1, self.j2 - self.j1)


Pair = tuple[int, int]


def matches(old: Sequence[str], new: Sequence[str]) -> list[Pair]:
    """Index pairs of a longest common subsequence, rising on both sides."""
    start, top = 0, min(len(old), len(new))
    while start < top and old[start] == new[start]:
        start += 1
    end = 0
    while end < top - start and old[-1 - end] == new[-1 - end]:
        end += 1
    pairs = [(k, k) for k in range(start)]
    pairs += _middle(old, new, start, len(old) - end, start, len(new) - end)
    pairs += [(len(old) - end + k, len(new) - end + k) for k in range(end)]
    return pairs


def blocks(pairs: Sequence[Pair], old_length: int, new_length: int) -> list[Block]:
    """The changed blocks between matched pairs."""
    result = []
    i, j = 0, 0
    for next_i, next_j in (*pairs, (old_length, new_length)):
        if next_i > i or next_j > j:
            result.append(Block(i, next_i, j, next_j))
        i, j = next_i + 1, next_j + 1
    return result


def diff(old: Sequence[str], new: Sequence[str]) -> list[Block]:
    """Changed blocks of a smallest diff, each slid to where a reader expects it."""
    found = blocks(matches(old, new), len(old), len(new))
    for n in range(len(found)):
        found[n] = _slide(found, n, old, new)
    return found


def _middle(old: Sequence[str], new: Sequence[str], i1: int, i2: int, j1: int, j2: int) -> list[Pair]:
    shared = set(old[i1:i2]) & set(new[j1:j2])
    a = [i for i in range(i1, i2) if old[i] in shared]
    b = [j for j in range(j1, j2) if new[j] in shared]
    if not a or not b:
        return []
    found = _myers(len(a), len(b), lambda x, y: old[a[x]] == new[b[y]])
    if found is not None:
        return [(a[x], b[y]) for x, y in found]
    return _patience(old, new, i1, i2, j1, j2)


def _myers(n: int, m: int, same: Callable[[int, int], bool]) -> list[Pair] | None:
    """Matched pairs of a shortest edit script, or ``None`` past the budget."""
    reach = {1: 0}
    trace: list[dict[int, int]] = []
    for edits in range(min(n + m, MAX_EDITS) + 1):
        trace.append(dict(reach) if edits <= 1 else {k: reach[k] for k in range(-edits + 1, edits, 2)})
        for k in range(-edits, edits + 1, 2):
            down = k == -edits or (k != edits and reach[k - 1] < reach[k + 1])
            x = reach[k + 1] if down else reach[k - 1] + 1
            y = x - k
            while x < n and y < m and same(x, y):
                x += 1
                y += 1
            reach[k] = x
            if x >= n and y >= m:
                return _walk_back(trace, n, m)
    return None


def _walk_back(trace: list[dict[int, int]], x: int, y: int) -> list[Pair]:
    pairs: list[Pair] = []
    for edits in range(len(trace) - 1, -1, -1):
        reach = trace[edits]
        k = x - y
        if edits == 0:
            from_x, from_y = 0, 0
        else:
            down = k == -edits or (k != edits and reach[k - 1] < reach[k + 1])
            before = k + 1 if down else k - 1
            from_x = reach[before]
            from_y = from_x - before
        while x > from_x and y > from_y:
            x, y = x - 1, y - 1
            pairs.append((x, y))
        x, y = from_x, from_y
    pairs.reverse()
    return pairs


def _patience(old: Sequence[str], new: Sequence[str], i1: int, i2: int, j1: int, j2: int) -> list[Pair]:
    """Split at lines that are unique on both sides; give the gaps back to the minimal search."""
    in_old, in_new = Counter(old[i1:i2]), Counter(new[j1:j2])
    where = {new[j]: j for j in range(j1, j2) if in_new[new[j]] == 1}
    anchors = _rising([(i, where[old[i]]) for i in range(i1, i2) if in_old[old[i]] == 1 and old[i] in where])
    if not anchors:
        return []
    pairs: list[Pair] = []
    i, j = i1, j1
    for next_i, next_j in (*anchors, (i2, j2)):
        while i < next_i and j < next_j and old[i] == new[j]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        pairs += _middle(old, new, i, next_i, j, next_j)
        if next_i < i2:
            pairs.append((next_i, next_j))
        i, j = next_i + 1, next_j + 1
    return pairs


def _rising(pairs: list[Pair]) -> list[Pair]:
    """The longest run of pairs that rises on both sides (the first side rises already)."""
    tails: list[int] = []
    ends: list[int] = []
    previous: list[int] = []
    for n, (_, j) in enumerate(pairs):
        at = bisect_left(tails, j)
        previous.append(ends[at - 1] if at else -1)
        if at == len(tails):
            tails.append(j)
            ends.append(n)
        else:
            tails[at], ends[at] = j, n
    result = []
    n = ends[-1] if ends else -1
    while n >= 0:
        result.append(pairs[n])
        n = previous[n]
    return result[::-1]


def _slide(found: Sequence[Block], n: int, old: Sequence[str], new: Sequence[str]) -> Block:
    """Move a pure insertion or deletion along equal lines to start at the least indented line."""
    i1, i2, j1, j2 = found[n]
    if i1 != i2 and j1 != j2:
        return found[n]
    lines, start, stop = (new, j1, j2) if i1 == i2 else (old, i1, i2)
    left = i1 - found[n - 1].i2 if n else min(i1, j1)
    right = (found[n + 1].i1 if n + 1 < len(found) else len(old)) - i2
    up = 0
    # One matched line stays between two blocks, or they would be one.
    while up < left - (1 if n else 0) and lines[start - up - 1] == lines[stop - up - 1]:
        up += 1
    down = 0
    while down < right - (1 if n + 1 < len(found) else 0) and lines[start + down] == lines[stop + down]:
        down += 1
    best = min(range(-up, down + 1), key=lambda shift: (_indent(lines, start + shift), -shift))
    return Block(i1 + best, i2 + best, j1 + best, j2 + best)


def _indent(lines: Sequence[str], at: int) -> tuple[int, bool]:
    blank = not lines[at].strip()
    while at < len(lines) - 1 and not lines[at].strip():
        at += 1
    return len(lines[at]) - len(lines[at].lstrip()), blank

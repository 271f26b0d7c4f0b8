"""Text that can only be copied from a file: consecutive lines of it, which stand in one place.

A search text out of this cannot miss, and cannot be found twice: the grammar takes from the model what it does worst.
llguidance knows the language "some consecutive chunks of this list" as an automaton that grows with the file, not with
the square of it. What stands in two places is taken out by another such automaton, over the repeated runs alone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise

LONGEST = 200_000
"""Characters of the expression."""
_APART = "\x01\n"
"""Between runs, so that none goes over into the next; a file that holds it is not constrained."""


def one_of_its_kind(lines: Sequence[str]) -> str:
    """A terminal's expression in llguidance's Lark for runs of lines, with their ends, that stand in one place only.

    Runs of blank lines are left out. Empty where the file has no such run, or is too long for a grammar.
    """
    ended = [line + "\n" for line in lines]
    if _APART in ended or any("\0" in line for line in ended):
        return ""
    again: list[str] = []
    for first, last in repeated(lines):
        again += [*ended[first:last], _APART]
    expression = f"{_chunks(ended)} & /(?s:.)*\\S(?s:.)*/"
    if again:
        expression += f" & ~{_chunks(again)}"
    return expression if any(line.strip() for line in lines) and len(expression) <= LONGEST else ""


def repeated(lines: Sequence[str]) -> list[tuple[int, int]]:
    """The longest runs (from 0, half open) that stand elsewhere too, each text once.

    Every run that stands in two places is part of one of these.
    """
    longest = _repeats(lines)
    seen: set[tuple[str, ...]] = set()
    runs: list[tuple[int, int]] = []
    reach = 0
    for first, length in enumerate(longest):
        last = first + length
        if length and last > reach:  # else it is part of the run before
            text = tuple(lines[first:last])
            if text not in seen:
                seen.add(text)
                runs.append((first, last))
            reach = last
    return runs


def _repeats(lines: Sequence[str]) -> list[int]:
    """For each line, how many lines from there on stand elsewhere too: by suffixes in their order (prefix doubling)."""
    count = len(lines)
    ids = {line: n for n, line in enumerate(sorted(set(lines)))}
    rank = [ids[line] for line in lines]
    order = sorted(range(count), key=rank.__getitem__)
    step = 1
    while step < count:
        pairs = [(rank[n], rank[n + step] if n + step < count else -1) for n in range(count)]
        order.sort(key=pairs.__getitem__)
        fresh = [0] * count
        for before, n in pairwise(order):
            fresh[n] = fresh[before] + (pairs[n] != pairs[before])
        rank = fresh
        if rank[order[-1]] == count - 1:
            break
        step *= 2
    place = {n: at for at, n in enumerate(order)}
    longest = [0] * count
    length = 0
    for n in range(count):  # what two suffixes share shrinks by one line at most from one suffix to the next (Kasai)
        if place[n] == 0:
            length = 0
            continue
        before = order[place[n] - 1]
        while max(before, n) + length < count and lines[before + length] == lines[n + length]:
            length += 1
        longest[before], longest[n] = max(longest[before], length), max(longest[n], length)
        length = max(0, length - 1)
    return longest


def _chunks(chunks: Sequence[str]) -> str:
    return f'%regex {{"substring_chunks": {json.dumps(chunks)}}}'

"""Texts cut to a budget of tokens; what is left out is always said."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Count = Callable[[str], int]
"""Tokens of a text, by the tokenizer of the model that will read it."""

MAX_LINE = 2000
"""Characters of one line that are shown."""
_SAYING = 24
"""Tokens of the line that says what is left out."""
_DENSEST = 16
"""No tokenizer packs code into tokens of more characters than this on average."""


def estimate(text: str) -> int:
    """Tokens where no tokenizer is at hand: code takes some three and a half bytes each, rounded to the safe side."""
    return (len(text.encode("utf-8", "surrogatepass")) + 2) // 3


def clip_line(line: str) -> str:
    """A line that a minified file made long, cut."""
    if len(line) <= MAX_LINE:
        return line
    return f"{line[:MAX_LINE]} [... {len(line) - MAX_LINE:,} more characters]"


def fitting(lines: Sequence[str], budget: int, count: Count) -> int:
    """How many of the first ``lines`` fit into ``budget`` tokens, joined by line ends."""
    low, high = 0, 0
    room = budget * _DENSEST
    while high < len(lines) and room >= 0:
        room -= len(lines[high]) + 1
        high += 1
    while low < high:
        middle = (low + high + 1) // 2
        if count("\n".join(lines[:middle])) <= budget:
            low = middle
        else:
            high = middle - 1
    return low


def head_and_tail(text: str, budget: int, count: Count, lost: int = 0) -> str:
    """``text`` if it fits, else its first and its last lines: a third of the budget for the head, errors come last.

    ``lost`` is the number of bytes that were dropped between head and tail before, at the mark that ``text`` holds as
    a line of its own.
    """
    if not lost and len(text) <= budget * _DENSEST and count(text) <= budget:
        return text
    lines = [clip_line(line) for line in text.split("\n")]
    budget = max(3, budget - _SAYING)
    head = fitting(lines, max(1, budget // 3), count)
    tail = fitting(lines[head:][::-1], max(1, budget - budget // 3), count)
    middle = lines[head : len(lines) - tail]
    if not middle and not lost:
        return "\n".join(lines)
    said = f"[... {len(middle):,} lines left out ...]"
    if lost:
        said = f"[... {len(middle):,} lines and more ({lost:,} bytes) left out ...]"
    return "\n".join([*lines[:head], said, *lines[len(lines) - tail :]])

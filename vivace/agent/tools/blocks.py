"""Where a search text stands in a file: five rungs from exact to folded, each of which must find exactly one place.

Nothing is guessed by likeness. A text that stands nowhere, or in two places, is an error that shows the real lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct

from vivace.agent.linediff import matches
from vivace.agent.workspace import split_lines
from vivace.errors import UsageError

Rung = Literal["exact", "part of a line", "trailing space", "indentation", "punctuation"]

_FOLD = str.maketrans(
    {
        **dict.fromkeys("‘’‚‛′", "'"),
        **dict.fromkeys("“”„‟″", '"'),
        **dict.fromkeys("‐‑‒–—―−", "-"),
        **dict.fromkeys("\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " "),
        "…": "...",
    }
)
NEAR = 3
"""Lines of context around the nearest real lines."""
_CANDIDATES = 12
"""Places that are compared in full when a text stands nowhere."""


class Change(Struct, frozen=True):
    """``text`` is the file after one replacement; lines ``first`` to ``last`` (from 1) of the old one were replaced."""

    text: str
    rung: Rung
    first: int
    last: int


class Found(Struct, frozen=True):
    """The one place: ``lines[first:last]`` (from 0, half open) give way to ``fresh``."""

    first: int
    last: int
    fresh: list[str]
    rung: Rung


def replace(name: str, text: str, search: str, replacement: str) -> Change:
    """Put ``replacement`` in the one place of ``search``. All texts have LF line ends. Errors as for :func:`find`."""
    lines = split_lines(text)
    found = find(name, lines, search, replacement)
    whole = [*lines[: found.first], *found.fresh, *lines[found.last :]]
    end = "\n" if text.endswith("\n") and whole else ""
    return Change("\n".join(whole) + end, found.rung, found.first + 1, found.last)


def find(
    name: str, lines: Sequence[str], search: str, replacement: str, within: range | None = None, *, parts: bool = True
) -> Found:
    """The one place of ``search`` among the lines of a file, and what stands there afterwards.

    ``within`` bounds the lines that may be replaced. ``parts`` allows a single line to be found inside a longer one, if
    no word is cut. Raises :class:`UsageError`: ``no_match`` or ``many_matches`` with the real lines, ``no_change``,
    ``empty_search``.
    """
    if not search.strip():
        raise UsageError(
            f"{name}: the search text is empty",
            hint="Search for the line to insert after, and repeat it in the replacement.",
            code="empty_search",
            param="search",
        )
    if search == replacement:
        raise UsageError(f"{name}: search and replacement are the same", code="no_change", param="replace")
    wanted, new = split_lines(search), split_lines(replacement)
    room = within if within is not None else range(len(lines))
    for rung, look in _RUNGS:
        places = [n for n in look(lines, wanted) if n >= room.start and n + len(wanted) <= room.stop]
        if not places and rung == "exact" and parts and "\n" not in search.rstrip("\n"):
            part = _part_of_line(name, lines, search, replacement, room)
            if part is not None:
                return part
        if len(places) > 1:
            raise _many(name, lines, wanted, places, rung)
        if places:
            return _settled(lines, places[0], wanted, new, rung)
    raise _none(name, lines, wanted, new)


def _folded(line: str) -> str:
    return line.translate(_FOLD).rstrip()


def _places(lines: Sequence[str], wanted: Sequence[str], key: Callable[[str], str]) -> list[int]:
    """Every index where all of ``wanted`` stands."""
    have, want = [key(line) for line in lines], [key(line) for line in wanted]
    last = len(have) - len(want)
    return [n for n in range(last + 1) if have[n] == want[0] and have[n : n + len(want)] == want]


def _shifted(lines: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Places where the text stands with all of its lines shifted by the same indentation."""
    bare = [line.strip() for line in wanted]
    have = [line.strip() for line in lines]
    size = len(bare)
    places = [n for n in range(len(have) - size + 1) if have[n] == bare[0] and have[n : n + size] == bare]
    return [n for n in places if _shift(lines[n : n + size], wanted) is not None]


def _shift(real: Sequence[str], wanted: Sequence[str]) -> tuple[str, str] | None:
    """(cut, put) such that every line of ``wanted`` without ``cut`` and with ``put`` before it is the real line."""
    shifts = set()
    for have, want in zip(real, wanted, strict=True):
        if not have.strip():
            continue
        a, b = _indent(have), _indent(want)
        common = 0
        while common < min(len(a), len(b)) and a[-1 - common] == b[-1 - common]:
            common += 1
        shifts.add((b[: len(b) - common], a[: len(a) - common]))
    return shifts.pop() if len(shifts) == 1 else None


_RUNGS: tuple[tuple[Rung, Callable[[Sequence[str], Sequence[str]], list[int]]], ...] = (
    ("exact", lambda lines, wanted: _places(lines, wanted, str)),
    ("trailing space", lambda lines, wanted: _places(lines, wanted, str.rstrip)),
    ("indentation", _shifted),
    ("punctuation", lambda lines, wanted: _places(lines, wanted, _folded)),
)


def _settled(lines: Sequence[str], at: int, wanted: Sequence[str], new: Sequence[str], rung: Rung) -> Found:
    """Replace the lines at ``at``. Lines that the replacement only repeats stay as the file has them."""
    real = lines[at : at + len(wanted)]
    shift = _shift(real, wanted) if rung == "indentation" else None
    origin = {j: i for i, j in matches(wanted, new)}
    fresh = [real[origin[j]] if j in origin else _reindented(line, shift) for j, line in enumerate(new)]
    return Found(at, at + len(wanted), fresh, rung)


def _reindented(line: str, shift: tuple[str, str] | None) -> str:
    if shift is None or not line.strip():
        return line
    cut, put = shift
    return put + line.removeprefix(cut)


def _part_of_line(name: str, lines: Sequence[str], search: str, replacement: str, room: range) -> Found | None:
    search, replacement = search.rstrip("\n"), replacement.rstrip("\n")
    places = [n for n in room if search in lines[n]]
    times = sum(lines[n].count(search) for n in places)
    if times > 1:
        raise _many(name, lines, [search], places, "part of a line", times)
    if not times:
        return None
    line = lines[places[0]]
    start = line.find(search)
    # A place that cuts a word is chance: "x = 1" is no part of "max = 12".
    if _cuts(line[:start][-1:], search[:1]) or _cuts(search[-1:], line[start + len(search) :][:1]):
        return None
    fresh = (line[:start] + replacement + line[start + len(search) :]).split("\n")
    return Found(places[0], places[0] + 1, fresh, "part of a line")


def _cuts(left: str, right: str) -> bool:
    return re.fullmatch(r"\w\w", left + right) is not None


def _many(
    name: str, lines: Sequence[str], wanted: Sequence[str], places: Sequence[int], rung: Rung, times: int = 0
) -> UsageError:
    at = ", ".join(str(place + 1) for place in places[:10]) + (" and more" if len(places) > 10 else "")
    shown = "\n".join(_excerpt(lines, place, len(wanted), 1) for place in places[:3])
    return UsageError(
        f"{name}: the search text stands in {times or len(places)} places (line {at}; by {rung})",
        hint=f"Nothing was written. Add lines around it until only one place is left:\n{shown}",
        code="many_matches",
        param="search",
    )


def _none(name: str, lines: Sequence[str], wanted: Sequence[str], new: Sequence[str]) -> UsageError:
    there = _places(lines, new, str.rstrip) if any(line.strip() for line in new) else []
    if there:
        return UsageError(
            f"{name}: the search text is not in the file, and the replacement is already there (line {there[0] + 1})",
            hint="Nothing was written. If the edit was made before, go on.",
            code="no_match",
            param="search",
        )
    near = nearest(lines, wanted)
    shown = (
        f"The nearest real lines:\n{_excerpt(lines, near, len(wanted), NEAR)}" if near is not None else "It is empty."
    )
    return UsageError(
        f"{name}: the search text is not in the file",
        hint=f"Nothing was written. {shown}\nCopy the lines as they are, without the numbers.",
        code="no_match",
        param="search",
    )


def nearest(lines: Sequence[str], wanted: Sequence[str]) -> int | None:
    """The index of the lines most like ``wanted``; ``None`` in an empty file. For messages only."""
    from rapidfuzz import fuzz, process

    if not lines:
        return None
    anchor = max(range(len(wanted)), key=lambda n: len(wanted[n].strip()))
    close = process.extract(
        wanted[anchor].strip(), [line.strip() for line in lines], scorer=fuzz.ratio, limit=_CANDIDATES
    )
    starts = {max(0, min(index - anchor, len(lines) - 1)) for _, _, index in close}
    whole = "\n".join(line.strip() for line in wanted)

    def likeness(start: int) -> tuple[float, int]:
        there = "\n".join(line.strip() for line in lines[start : start + len(wanted)])
        return fuzz.ratio(whole, there), -start

    return max(starts, key=likeness)


def _excerpt(lines: Sequence[str], at: int, length: int, around: int) -> str:
    first, last = max(0, at - around), min(len(lines), at + min(length, 40) + around)
    return "\n".join(f"{n + 1}\t{lines[n][:300]}" for n in range(first, last))


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]

"""Where a search text stands in a file: five rungs from exact to folded, each of which must find exactly one place.

Nothing is guessed by likeness. A text that stands nowhere, or in two places, is an error that shows the real lines.
"""

from __future__ import annotations

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


def replace(name: str, text: str, search: str, replacement: str) -> Change:
    """Put ``replacement`` in the one place of ``search``. All texts have LF line ends.

    Raises :class:`UsageError`: ``no_match`` or ``many_matches`` with the real lines, ``no_change``, ``empty_search``.
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
    lines, wanted, new = split_lines(text), split_lines(search), split_lines(replacement)
    for rung, key in _LINE_RUNGS:
        places = _places(lines, wanted, key)
        if not places and rung == "exact" and "\n" not in search.rstrip("\n"):
            change = _part_of_line(name, text, search, replacement)
            if change is not None:
                return change
        if len(places) > 1:
            raise _many(name, lines, wanted, places, rung)
        if places:
            return _settled(text, lines, places[0], wanted, new, rung)
    places = _shifted(lines, wanted)
    if len(places) > 1:
        raise _many(name, lines, wanted, places, "indentation")
    if places:
        return _settled(text, lines, places[0], wanted, new, "indentation")
    places = _places(lines, wanted, _folded)
    if len(places) > 1:
        raise _many(name, lines, wanted, places, "punctuation")
    if places:
        return _settled(text, lines, places[0], wanted, new, "punctuation")
    raise _none(name, lines, wanted, new)


def _folded(line: str) -> str:
    return line.translate(_FOLD).rstrip()


_LINE_RUNGS: tuple[tuple[Rung, Callable[[str], str]], ...] = (("exact", str), ("trailing space", str.rstrip))


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


def _settled(text: str, lines: Sequence[str], at: int, wanted: Sequence[str], new: Sequence[str], rung: Rung) -> Change:
    """Replace the lines at ``at``. Lines that the replacement only repeats stay as the file has them."""
    real = lines[at : at + len(wanted)]
    shift = _shift(real, wanted) if rung == "indentation" else None
    origin = {j: i for i, j in matches(wanted, new)}
    fresh = [real[origin[j]] if j in origin else _reindented(line, shift) for j, line in enumerate(new)]
    whole = [*lines[:at], *fresh, *lines[at + len(wanted) :]]
    end = "\n" if text.endswith("\n") and whole else ""
    return Change("\n".join(whole) + end, rung, at + 1, at + len(wanted))


def _reindented(line: str, shift: tuple[str, str] | None) -> str:
    if shift is None or not line.strip():
        return line
    cut, put = shift
    return put + line.removeprefix(cut)


def _part_of_line(name: str, text: str, search: str, replacement: str) -> Change | None:
    search, replacement = search.rstrip("\n"), replacement.rstrip("\n")
    times = text.count(search)
    if not times:
        return None
    start = text.find(search)
    if times > 1:
        lines = split_lines(text)
        places = [n for n, line in enumerate(lines) if search in line]
        raise _many(name, lines, [search], places, "part of a line", times)
    line = text.count("\n", 0, start) + 1
    return Change(text[:start] + replacement + text[start + len(search) :], "part of a line", line, line)


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

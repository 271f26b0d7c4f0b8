"""Hunks: what gives way to what. Each is placed in the text that the model saw, in exactly one place, all or none."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

from vivace.agent.tools.blocks import find
from vivace.agent.workspace import SourceFile
from vivace.errors import UsageError


class Hunk(Struct, frozen=True):
    """``old`` lines give way to ``new`` ones."""

    old: tuple[str, ...]
    new: tuple[str, ...]
    heads: tuple[str, ...] = ()
    """Lines of classes and functions that it stands in, the outermost first."""
    at: tuple[int, int] | None = None
    """Where it stands (from 0, half open), when that was said outright."""
    end: bool = False
    """It stands at the end of the file."""

    @property
    def changes(self) -> bool:
        return self.at is not None or self.old != self.new


class Placed(Struct, frozen=True):
    """``lines[first:last]`` (from 0, half open) give way to ``fresh``."""

    first: int
    last: int
    fresh: tuple[str, ...]
    rung: str
    """How it was found: of :data:`vivace.agent.tools.blocks.Rung`, or ``anchor``, or ``end of file``."""


class Applied(Struct, frozen=True):
    """The whole text after all hunks, and how each was found."""

    text: str
    rungs: tuple[str, ...]


def apply_hunks(source: SourceFile, hunks: Sequence[Hunk], *, parts: bool = False) -> Applied:
    """All hunks or none, each found in the file as it was shown; ``parts`` as for :func:`find`.

    Raises :class:`UsageError`: ``no_match``, ``many_matches`` and ``empty_search`` with the nearest real lines,
    ``overlap``, ``no_change``.
    """
    lines, count = source.lines, len(hunks)
    placed: list[Placed] = []
    faults: list[tuple[int, UsageError]] = []
    for number, hunk in enumerate(hunks, 1):
        if not hunk.changes:
            continue
        try:
            placed.append(_trimmed(lines, place(source.name, lines, hunk, parts=parts)))
        except UsageError as error:
            faults.append((number, error))
    if faults:
        raise _gathered(faults, count)
    rungs = tuple(one.rung for one in placed)
    placed = sorted(set(placed), key=lambda one: (one.first, one.last))  # what is said twice is done once
    _check_apart(source.name, placed)
    whole, at = [], 0
    for one in placed:
        whole += [*lines[at : one.first], *one.fresh]
        at = one.last
    whole += lines[at:]
    if whole == list(lines):
        raise UsageError(f"{source.name}: the answer changes nothing", code="no_change")
    return Applied("".join(line + "\n" for line in whole), rungs)


def place(name: str, lines: Sequence[str], hunk: Hunk, *, parts: bool = False) -> Placed:
    """Where one hunk stands. Raises :class:`UsageError` as :func:`apply_hunks`."""
    if hunk.at is not None:
        return Placed(hunk.at[0], hunk.at[1], hunk.new, "anchor")
    if not hunk.old:
        if hunk.end or not lines:
            return Placed(len(lines), len(lines), hunk.new, "end of file")
        raise UsageError(
            f"{name}: a hunk has no line by which its place could be found",
            hint="Nothing was written. Give the lines beside it.",
            code="empty_search",
        )
    room = _scope(name, lines, hunk.heads)
    if hunk.end:
        room = range(max(room.start, len(lines) - len(hunk.old)), len(lines))
    old, new = ("".join(line + "\n" for line in side) for side in (hunk.old, hunk.new))
    found = find(name, lines, old, new, room, parts=parts)
    return Placed(found.first, found.last, tuple(found.fresh), found.rung)


class Preview:
    """The file as it will be, line by line, while hunks arrive in order. For the eyes only."""

    def __init__(self, source: SourceFile, *, parts: bool) -> None:
        self._source = source
        self._parts = parts
        self._at = 0

    def feed(self, hunk: Hunk) -> list[str]:
        """The new lines from where the last hunk ended to where this one does."""
        lines = self._source.lines
        try:
            found = place(self._source.name, lines, hunk, parts=self._parts)
        except UsageError:
            return []
        if found.first < self._at:
            return []
        shown = [*lines[self._at : found.first], *found.fresh]
        self._at = found.last
        return shown


def _trimmed(lines: Sequence[str], found: Placed) -> Placed:
    """Without the lines at both ends that stay: context belongs to nobody."""
    first, last, fresh = found.first, found.last, found.fresh
    start = 0
    while first < last and start < len(fresh) and lines[first] == fresh[start]:
        first, start = first + 1, start + 1
    end = len(fresh)
    while first < last and start < end and lines[last - 1] == fresh[end - 1]:
        last, end = last - 1, end - 1
    return Placed(first, last, fresh[start:end], found.rung)


def _check_apart(name: str, placed: Sequence[Placed]) -> None:
    for before, after in pairwise(placed):
        twice = before.first == before.last == after.first == after.last
        if after.first < before.last or twice:
            raise UsageError(
                f"{name}: two hunks of the answer change line {after.first + 1}",
                hint="Nothing was written. Change what stands together in one hunk.",
                code="overlap",
            )


def _gathered(faults: Sequence[tuple[int, UsageError]], count: int) -> UsageError:
    """One error for all; where several hunks came, it says which of them do not fit."""
    first = faults[0][1]
    if count == 1:
        return first
    told = [f"hunk {number} of {count}: {error.message}\n{error.hint}" for number, error in faults]
    rest = "" if len(faults) == 1 else f" (and {len(faults) - 1} more)"
    fits = count - len(faults)
    told += [f"The other {'hunk fits' if fits == 1 else f'{fits} hunks fit'}."] if fits else []
    return UsageError(
        f"hunk {faults[0][0]} of {count}: {first.message}{rest}", hint="\n".join(told), code=first.code or "no_match"
    )


def _scope(name: str, lines: Sequence[str], heads: Sequence[str]) -> range:
    """The lines in which a hunk under these heads may stand: those of the innermost."""
    room = range(len(lines))
    for head in heads:
        bare = head.strip().rstrip(":{ \t")
        same = [n for n in room if lines[n].strip().rstrip(":{ \t") == bare]
        begun = same or [n for n in room if lines[n].strip().startswith(bare)] if bare else []
        if not bare:
            continue
        if len(begun) != 1:
            what = "stands nowhere" if not begun else f"stands in {len(begun)} places"
            raise UsageError(
                f"{name}: the line {head.strip()[:80]!r} behind @@ {what}",
                hint="Nothing was written. Leave it out where the lines of the hunk are unique without it.",
                code="many_matches" if begun else "no_match",
            )
        room = range(begun[0], _end_of_block(lines, begun[0], room.stop))
    return room


def _end_of_block(lines: Sequence[str], head: int, stop: int) -> int:
    """Where what begins at ``head`` ends: before the next line that is indented no deeper, a closing bracket aside."""
    depth = _depth(lines[head])
    for n in range(head + 1, stop):
        if lines[n].strip() and _depth(lines[n]) <= depth and lines[n].strip()[0] not in ")]}":
            return n
    return stop


def _depth(line: str) -> int:
    return len(line.expandtabs()) - len(line.expandtabs().lstrip())

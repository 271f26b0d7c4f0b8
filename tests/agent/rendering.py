"""Answers for tests: one edit, written as a model would write it in each dialect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vivace.agent.edit_dialects.line_anchors import anchors, mark
from vivace.agent.edit_dialects.search_replace import size_of_marks
from vivace.agent.reply import fence_for
from vivace.agent.workspace import SourceFile

HUNKS = ("search-replace", "line-anchors", "apply-patch")
DIALECTS = ("whole-file", *HUNKS)


@dataclass(frozen=True)
class Change:
    """``lines[first:last]`` (from 0, half open) of the shown text give way to ``new``."""

    first: int
    last: int
    new: tuple[str, ...] = ()


def source_of(data: bytes, name: str = "f.txt") -> SourceFile:
    return SourceFile(Path(name), name, data)


def answer(dialect: str, source: SourceFile, changes: Sequence[Change]) -> str:
    """What a model says that makes these changes, in their order, and nothing else."""
    match dialect:
        case "whole-file":
            return _whole(source, changes)
        case "search-replace":
            return "".join(_block(source, change) for change in changes)
        case "line-anchors":
            return "".join(_command(source, change) for change in changes)
        case _:
            hunks = "".join(_hunk(source, change) for change in changes)
            return f"*** Begin Patch\n*** Update File: {source.name}\n{hunks}*** End Patch\n"


def block(search: Sequence[str], replacement: Sequence[str], size: int = 7) -> str:
    old, new = "".join(f"{line}\n" for line in search), "".join(f"{line}\n" for line in replacement)
    return f"{'<' * size} SEARCH\n{old}{'=' * size}\n{new}{'>' * size} REPLACE\n"


def _whole(source: SourceFile, changes: Sequence[Change]) -> str:
    lines = list(source.lines)
    for change in sorted(changes, key=lambda change: (change.first, change.last), reverse=True):
        lines[change.first : change.last] = change.new
    text = "".join(line + "\n" for line in lines)
    fence = fence_for(source.text)
    return f"{fence}\n{text}{fence}\n"


def _block(source: SourceFile, change: Change) -> str:
    before, after = _context(source, change, 0)
    old = source.lines[change.first - before : change.last + after]
    head, tail = old[:before], old[len(old) - after :]
    return block(old, [*head, *change.new, *tail], size_of_marks(source))


def _command(source: SourceFile, change: Change) -> str:
    named, made = anchors(source.lines), mark(source)
    body = "".join(f"{line}\n" for line in change.new)
    if change.first == change.last:
        beside = ("before", named[0]) if change.first == 0 else ("after", named[change.first - 1])
        return f"{made} insert {beside[0]} {beside[1]}\n{body}{made} end\n"
    ends = f"{named[change.first]} to {named[change.last - 1]}"
    return f"{made} replace {ends}\n{body}{made} end\n" if change.new else f"{made} delete {ends}\n"


def _hunk(source: SourceFile, change: Change) -> str:
    before, after = _context(source, change, 3)
    lines = source.lines
    head = lines[change.first - before : change.first]
    tail = lines[change.last : change.last + after]
    marked = [f" {line}" for line in head] + [f"-{line}" for line in lines[change.first : change.last]]
    marked += [f"+{line}" for line in change.new] + [f" {line}" for line in tail]
    return "@@\n" + "".join(f"{line}\n" for line in marked)


def _context(source: SourceFile, change: Change, least: int) -> tuple[int, int]:
    """Lines before and after that make the place the only one, and give it something to be found by."""
    lines = source.lines
    for around in range(least, max(least, len(lines)) + 1):
        before, after = min(around, change.first), min(around, len(lines) - change.last)
        old = lines[change.first - before : change.last + after]
        places = [n for n in range(len(lines) - len(old) + 1) if lines[n : n + len(old)] == old]
        if len(places) == 1 and any(line.strip() for line in old):
            return before, after
    raise AssertionError("no context makes this place unique")

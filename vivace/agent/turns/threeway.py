"""A worker's result against files that went on meanwhile: merged by place, or a conflict, never copied over."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from msgspec import Struct

from vivace.agent.applier import unified
from vivace.agent.linediff import diff
from vivace.agent.turns.worktree import FileChange


class Merge(Struct, frozen=True):
    """What accepting would do to one file. ``now`` and ``merged`` are None where there is no file."""

    path: str
    now: bytes | None
    merged: bytes | None
    mode: int
    conflict: str = ""


def merge_all(root: Path, changes: Sequence[FileChange]) -> list[Merge]:
    """One entry per change that is not there already."""
    found = [_merge(root, change) for change in changes]
    return [merge for merge in found if merge.conflict or merge.now != merge.merged]


def preview(merges: Sequence[Merge]) -> str:
    """A unified diff of what accepting would do, conflicts named in front."""
    conflicts = [f"conflict in {merge.path}: {merge.conflict}\n" for merge in merges if merge.conflict]
    return "".join(conflicts) + "".join(_diff(merge) for merge in merges if not merge.conflict)


def _merge(root: Path, change: FileChange) -> Merge:
    file = root / change.path
    link = file.is_symlink()
    now = file.read_bytes() if file.is_file() and not link else None
    if link or (now is None and file.exists()):
        return Merge(change.path, now, now, change.mode, "it is no regular file now")
    if now == change.before or now == change.after:
        return Merge(change.path, now, change.after, change.mode)
    if now is None:
        return Merge(change.path, now, now, change.mode, "it was removed meanwhile")
    if change.after is None:
        return Merge(change.path, now, now, change.mode, "the worker removed it, and it was changed meanwhile")
    merged = _lines(now, change.before or b"", change.after)
    if merged is None:
        return Merge(change.path, now, now, change.mode, "both sides changed the same lines")
    return Merge(change.path, now, merged, change.mode)


def _lines(now: bytes, before: bytes, after: bytes) -> bytes | None:
    """The three-way merge; None for a conflict, and for what is no text."""
    try:
        texts = [data.decode("utf-8").splitlines(keepends=True) for data in (now, before, after)]
    except UnicodeDecodeError:
        return None
    mine, base, theirs = texts
    ours, others = _changes(base, mine), _changes(base, theirs)
    changes: dict[tuple[int, int], list[str]] = dict(ours)
    for place, lines in others.items():
        if changes.setdefault(place, lines) != lines:
            return None
    places = sorted(changes)
    for one, two in pairwise(places):
        if two[0] < one[1] or (two[0] == one[1] and (one in ours) != (two in ours)):
            return None
    merged = list(base)
    for first, last in reversed(places):
        merged[first:last] = changes[first, last]
    return "".join(merged).encode("utf-8")


def _changes(base: list[str], new: list[str]) -> dict[tuple[int, int], list[str]]:
    return {(block.i1, block.i2): new[block.j1 : block.j2] for block in diff(base, new)}


def _diff(merge: Merge) -> str:
    sides = [data if data is not None else b"" for data in (merge.now, merge.merged)]
    try:
        old, new = ([f"{line}\n" for line in side.decode("utf-8").splitlines()] for side in sides)
    except UnicodeDecodeError:
        return f"{merge.path}: binary, {len(sides[0])} bytes before, {len(sides[1])} after\n"
    return unified(merge.path, old, new, diff(old, new))

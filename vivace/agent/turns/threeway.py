"""A worker's result against files that went on meanwhile: merged by place, or a conflict, never copied over."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from msgspec import Struct

from vivace.agent.applier import unified
from vivace.agent.linediff import diff
from vivace.agent.turns.worktree import LINK, NOTHING, FileChange, Found, look


class Merge(Struct, frozen=True):
    """What accepting would do to one path. ``now`` and ``merged`` are None where nothing stands; a link's bytes are its
    target, and its mode is :data:`vivace.agent.turns.worktree.LINK`."""

    path: str
    now: bytes | None
    merged: bytes | None
    mode: int
    conflict: str = ""
    mode_now: int = 0

    @property
    def before(self) -> Found:
        """What stands there now."""
        return Found(self.now, self.mode_now)

    @property
    def after(self) -> Found:
        """What will."""
        return NOTHING if self.merged is None else Found(self.merged, self.mode)


def merge_all(root: Path, changes: Sequence[FileChange]) -> list[Merge]:
    """One entry per change that is not there already."""
    found = [_merge(root, change) for change in changes]
    return [merge for merge in found if merge.conflict or merge.before != merge.after]


def preview(merges: Sequence[Merge]) -> str:
    """A unified diff of what accepting would do, conflicts named in front."""
    conflicts = [f"conflict in {merge.path}: {merge.conflict}\n" for merge in merges if merge.conflict]
    return "".join(conflicts) + "".join(_diff(merge) for merge in merges if not merge.conflict)


def _merge(root: Path, change: FileChange) -> Merge:
    def conflict(reason: str) -> Merge:
        return Merge(change.path, now.data, now.data, now.mode, reason, now.mode)

    now = NOTHING
    file = root / change.path
    if any(folder.is_symlink() for folder in file.parents if folder != root and folder.is_relative_to(root)):
        return conflict("its folder is a link now")
    try:
        now = look(file)
    except OSError as error:
        return conflict(f"it cannot be read now ({error.strerror})")
    before = Found(change.before, change.mode_before) if change.before is not None else NOTHING
    after = Found(change.after, change.mode) if change.after is not None else NOTHING
    if now.odd:
        return conflict("it is no regular file now")
    mode = _mode(now, before, after)
    if now.same(before) or now.same(after):
        return Merge(change.path, now.data, after.data, mode, mode_now=now.mode)
    if now.data is None:
        return conflict("it was removed meanwhile")
    if after.data is None:
        return conflict("the worker removed it, and it was changed meanwhile")
    if now.link or before.link or after.link:
        return conflict("it is a link on one side, and the other changed it, too")
    merged = _lines(now.data, before.data or b"", after.data)
    if merged is None:
        return conflict("both sides changed the same lines")
    return Merge(change.path, now.data, merged, mode, mode_now=now.mode)


def _mode(now: Found, before: Found, after: Found) -> int:
    """The permissions that the worker changed, the others as they are: a copy by git knows only whether it can run."""
    if after.data is None or after.link:
        return after.mode
    if now.data is None or now.link:
        return after.mode
    if before.data is None or before.link:
        return now.mode
    changed = before.mode ^ after.mode
    return (now.mode & ~changed) | (after.mode & changed)


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
    if merge.before.link or merge.after.link:
        return f"{merge.path}: {_said(merge.before)} before, {_said(merge.after)} after\n"
    mode = ""
    if merge.now is not None and merge.merged is not None and merge.mode != merge.mode_now:
        mode = f"{merge.path}: mode {merge.mode_now:o} before, {merge.mode:o} after\n"
    elif merge.now is None and merge.mode & 0o111:
        mode = f"{merge.path}: mode {merge.mode:o}\n"
    if merge.now == merge.merged:
        return mode
    sides = [data if data is not None else b"" for data in (merge.now, merge.merged)]
    try:
        old, new = ([f"{line}\n" for line in side.decode("utf-8").splitlines()] for side in sides)
    except UnicodeDecodeError:
        return f"{mode}{merge.path}: binary, {len(sides[0])} bytes before, {len(sides[1])} after\n"
    return mode + unified(merge.path, old, new, diff(old, new))


def _said(found: Found) -> str:
    if found.data is None:
        return "nothing"
    if found.mode == LINK:
        return f"a link to {found.data.decode('utf-8', 'backslashreplace')}"
    return f"a file of {len(found.data):,} bytes"

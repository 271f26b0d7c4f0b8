"""Writes what was merged into the user's files: all of it or nothing, and never over what somebody saved meanwhile."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from vivace.agent.turns.threeway import Merge
from vivace.agent.turns.worktree import LINK, NOTHING, Found, look
from vivace.errors import VivaceError


def land(root: Path, merges: Sequence[Merge]) -> None:
    """Put every path in the state that was merged, each in one step.

    Everything is staged first. Then each path is compared with what it was merged with, and again directly before it is
    replaced. A failure in the middle puts back what was replaced. Raises :class:`VivaceError` (``changed_meanwhile``,
    ``write_failed``): the files are as before then, ``roll_back_failed``: but for those that it names.
    """
    staged: dict[str, Path] = {}
    folders: list[Path] = []
    done: list[Merge] = []
    try:
        for merge in merges:
            if merge.merged is not None:
                staged[merge.path] = _stage(root / merge.path, merge.after)
        for merge in merges:
            _compare(root, merge)
        for merge in sorted(merges, key=lambda merge: merge.merged is not None):  # what goes makes room
            _compare(root, merge)
            done.append(merge)
            if merge.merged is None:
                (root / merge.path).unlink()
            else:
                _make_folders((root / merge.path).parent, folders)
                staged[merge.path].replace(root / merge.path)
    except BaseException as error:
        _put_back(root, done, folders)
        if isinstance(error, OSError):
            raise VivaceError(
                f"cannot write: {error.strerror or error} ({error.filename})",
                hint="Nothing was changed.",
                code="write_failed",
            ) from None
        raise
    finally:
        for temporary in staged.values():
            temporary.unlink(missing_ok=True)


def _compare(root: Path, merge: Merge) -> None:
    try:
        same = look(root / merge.path) == merge.before
    except OSError:
        same = False
    if not same:
        raise VivaceError(
            f"{merge.path}: was changed by someone else meanwhile",
            hint="Nothing was changed. Accept it again, and it is merged with what is there now.",
            code="changed_meanwhile",
        )


def _stage(file: Path, wanted: Found) -> Path:
    """What is to stand at ``file``, in the nearest folder that is there: it may have to be made."""
    assert wanted.data is not None
    place = next(folder for folder in file.parents if folder.is_dir())
    temporary = place / f".{file.name[:40]}.{secrets.token_hex(4)}.vivace"
    if wanted.mode == LINK:
        temporary.symlink_to(os.fsdecode(wanted.data))
        return temporary
    try:
        with temporary.open("xb") as out:
            out.write(wanted.data)
            out.flush()
            os.fsync(out.fileno())
        temporary.chmod(wanted.mode)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _make_folders(folder: Path, made: list[Path]) -> None:
    missing = [parent for parent in (folder, *folder.parents) if not parent.is_dir()]
    for parent in reversed(missing):
        parent.mkdir()
        made.append(parent)


def _put_back(root: Path, done: Sequence[Merge], folders: Sequence[Path]) -> None:
    """What somebody has changed since it was replaced is left as it is."""
    lost = []
    for merge in reversed(done):
        file = root / merge.path
        try:
            now = look(file)
            if now == merge.before:
                continue
            if now != merge.after:
                lost.append(merge.path)
            elif merge.before == NOTHING:
                file.unlink()
            else:
                _stage(file, merge.before).replace(file)
        except OSError:
            lost.append(merge.path)
    for folder in reversed(folders):
        with contextlib.suppress(OSError):  # somebody has put something there
            folder.rmdir()
    if lost:
        raise VivaceError(
            f"could not put back {', '.join(lost)}",
            hint="The last checkpoint has what was there: /checkpoints.",
            code="roll_back_failed",
        )

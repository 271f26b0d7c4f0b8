"""Files that tools write: as the model saw them, whole or not at all, and looked at again on the disk."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

from vivace.agent.applier import Patch, unified
from vivace.agent.linediff import Block
from vivace.agent.tools.base import Context
from vivace.agent.tools.clip import head_and_tail
from vivace.agent.tools.paths import inside, shown
from vivace.agent.workspace import SourceFile, Workspace, split_lines, write_all
from vivace.errors import UsageError, VivaceError


def source_of(context: Context, name: str) -> SourceFile:
    """The file, for writing. Raises :class:`UsageError` like :meth:`Workspace.read`."""
    path = inside(context.root, name)
    return Workspace(context.root).read(path)


def stale(context: Context, source: SourceFile) -> str:
    """Why the model does not know this text; empty when it saw these very bytes."""
    sight = context.seen.get(source.name)
    if sight is None:
        return "was not read yet"
    return "" if sight.sha256 == source.sha256 else "was changed since it was read"


def write(context: Context, patch: Patch) -> None:
    """Write, verified on the disk; the model is taken to know the result. Raises like :func:`write_all`."""
    write_all([(patch.source, patch.data)])
    remember(context, patch.source.name, patch.data)


def create(context: Context, path: Path, data: bytes) -> None:
    """Make a new file, folders included, whole or not at all; one that appeared meanwhile is not overwritten."""
    name = shown(context.root, path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name[:40]}.", suffix=".vivace", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).chmod(0o666 & ~_umask())
            os.link(temporary, path)  # unlike a rename it fails when the name is taken
        finally:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
        if path.read_bytes() != data:
            raise VivaceError(f"{name}: reads back differently after writing", code="write_failed")
    except FileExistsError:
        raise UsageError(f"{name}: is there already", code="exists", param="path") from None
    except OSError as error:
        raise VivaceError(f"{name}: cannot be written ({error.strerror})", code="write_failed") from None
    remember(context, name, data)


def remember(context: Context, name: str, data: bytes) -> None:
    """The model knows the whole of ``data``: it wrote it, or its edit was built on what it saw."""
    lines = len(split_lines(data.decode("utf-8", "replace")))
    context.seen.note(name, hashlib.sha256(data).hexdigest(), 1, lines)


def diff_text(context: Context, patch: Patch) -> str:
    """The diff for the model, within half a budget: it knows most of it already."""
    return head_and_tail(patch.diff.rstrip("\n"), context.budget // 2, context.count)


def diff_of_new(name: str, text: str) -> str:
    """The unified diff of a file that is new."""
    lines = [line + "\n" for line in split_lines(text)]
    return unified(name, [], lines, [Block(0, 0, 0, len(lines))]) if lines else ""


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask

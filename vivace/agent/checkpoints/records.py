"""What a checkpoint is made of, and what its operations report.

Paths are relative to the workspace, with ``/`` between their parts. Names that are not UTF-8 carry surrogate escapes,
as Python's own file functions give them; :func:`shown` makes them printable.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

NodeKind = Literal["file", "link", "folder"]
ChangeKind = Literal["added", "removed", "changed", "mode", "kind"]
Tree = Mapping[str, "Node"]
"""One folder: names and what they stand for."""


class Node(Struct, frozen=True, array_like=True, gc=False):
    """One entry of a folder. ``digest`` is the SHA-256 of a file's bytes, of a link's target, of a folder's tree.

    ``mode`` holds the permission bits, 0 for a link; ``size`` the bytes of a file, 0 otherwise.
    """

    kind: NodeKind
    mode: int
    size: int
    digest: bytes


class Position(Struct, frozen=True):
    """A place in a conversation: the entry after which it went on."""

    conversation: str
    entry: str


class LeftOut(Struct, frozen=True):
    """What a checkpoint does not hold, for one reason; ``paths`` are the first of ``count``."""

    reason: str
    count: int
    paths: tuple[str, ...]


class Stats(Struct, frozen=True):
    """Sizes are bytes. ``hashed`` files were read; ``stored`` objects of ``stored_size`` bytes were new."""

    files: int = 0
    size: int = 0
    hashed: int = 0
    stored: int = 0
    stored_size: int = 0
    seconds: float = 0.0


class Checkpoint(Struct, frozen=True):
    """The files of a workspace at one moment. ``created`` is in seconds since 1970; ``kind`` is the caller's word."""

    id: int
    parent: int | None
    created: float
    kind: str
    label: str
    tree: bytes
    position: Position | None = None
    stats: Stats = Stats()
    left_out: tuple[LeftOut, ...] = ()


class Change(Struct, frozen=True):
    """One path that differs. ``mode``: only the permission bits do; ``kind``: another sort of entry stands there."""

    path: str
    change: ChangeKind
    before: Node | None
    after: Node | None


class Refused(Struct, frozen=True):
    """A path that was left as it is, and why."""

    path: str
    reason: str


class Restored(Struct, frozen=True):
    """What going to ``checkpoint`` did.

    ``saved`` is the checkpoint of what was there before, when that was not in one already, and ``unsaved`` what it had
    that the last one had not. ``kept`` are folders left in place because they hold what no checkpoint does, ``refused``
    is what could not be restored: with any, the files are not those of the checkpoint. ``position`` is where the
    conversation stood then.
    """

    checkpoint: Checkpoint
    changes: tuple[Change, ...] = ()
    saved: Checkpoint | None = None
    unsaved: tuple[Change, ...] = ()
    kept: tuple[Refused, ...] = ()
    refused: tuple[Refused, ...] = ()
    position: Position | None = None
    recovered: bool = False
    """It was begun by a process that ended in the middle of it, and was finished now."""


class Pruned(Struct, frozen=True):
    """What was dropped; ``size`` counts the stored bytes of the objects."""

    checkpoints: int
    objects: int
    size: int


def shown(path: str) -> str:
    """The path for a person: bytes that are no text become escapes."""
    return path.encode("utf-8", "backslashreplace").decode("utf-8")

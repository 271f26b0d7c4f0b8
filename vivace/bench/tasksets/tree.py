"""A workspace on disk: laid out for a solver, read back after it, and the difference between the two."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from vivace.agent.applier import unified
from vivace.agent.linediff import diff
from vivace.errors import VivaceError

MAX_BYTES = 32 << 20
"""A workspace that has grown beyond this is not read back."""
_BY_THE_WAY = frozenset(
    {"__pycache__", ".git", ".vivace", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", "node_modules"}
)
"""Folders that tools make and nobody means as an edit."""

Tree = Mapping[str, bytes]
"""Path inside the workspace -> content."""


class Difference(Struct, frozen=True):
    """``text`` is a unified diff. A replaced line counts once in ``lines``."""

    paths: tuple[str, ...]
    lines: int
    text: str


def lay_out(files: Tree, root: Path) -> None:
    """Write ``files`` under ``root``, which exists and is empty."""
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def read_back(root: Path) -> dict[str, bytes]:
    """Every regular file under ``root``; links are not followed. Raises :class:`VivaceError` (``too_large``)."""
    found: dict[str, bytes] = {}
    room = MAX_BYTES
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in _BY_THE_WAY)
        for name in sorted(names):
            path = Path(folder, name)
            if path.is_symlink() or not path.is_file():
                continue
            room -= path.stat().st_size
            if room < 0:
                raise VivaceError(f"the turn left more than {MAX_BYTES >> 20} MiB behind", code="too_large")
            found[path.relative_to(root).as_posix()] = path.read_bytes()
    return found


def difference(before: Tree, after: Tree) -> Difference:
    """What changed, file by file in the order of their names."""
    changed = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
    total, parts = 0, []
    for name in changed:
        old, new = _lines(before.get(name, b"")), _lines(after.get(name, b""))
        blocks = diff(old, new)
        total += sum(block.lines for block in blocks)
        # A file that came or went empty has no line to show.
        parts.append(unified(name, old, new, blocks) or f"--- a/{name}\n+++ b/{name}\n")
    return Difference(tuple(changed), total, "".join(parts))


def encoded(files: Mapping[str, str]) -> dict[str, bytes]:
    return {name: text.encode("utf-8") for name, text in files.items()}


def _lines(data: bytes) -> list[str]:
    """Raw lines with their ends, split at LF only."""
    lines = [line + "\n" for line in data.decode("utf-8", "replace").split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]

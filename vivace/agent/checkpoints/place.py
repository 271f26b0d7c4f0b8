"""Where the agent keeps what belongs to a workspace: a folder named after it, outside of it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from vivace.errors import UsageError


def real_root(workspace: Path) -> Path:
    """The workspace without links in its path. Raises :class:`UsageError` when it is not a folder."""
    try:
        real = workspace.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        said = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"{workspace}: {said}", code="bad_path", param="workspace") from None
    if not real.is_dir():
        raise UsageError(f"{workspace}: is not a folder", code="bad_path", param="workspace")
    return real


def place_of(workspace: Path, base: Path) -> Path:
    """``base/<digest of the real path>``, whether it is there or not."""
    return base / hashlib.sha256(os.fsencode(real_root(workspace))).hexdigest()[:20]


def folder_for(workspace: Path, base: Path) -> Path:
    """:func:`place_of`, made private when it is new; a file in it says which workspace it is for."""
    raw = os.fsencode(real_root(workspace))
    folder = place_of(workspace, base)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    named = folder / "workspace"
    if not named.exists():
        named.write_bytes(raw + b"\n")
    return folder

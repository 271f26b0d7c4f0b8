"""A copy of the workspace in which candidates are tried, so that nothing is tried on the user's files."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from vivace.agent.repomap.files import project_files
from vivace.errors import VivaceError

MOST_FILES = 5000
MOST_BYTES = 64 * 1024 * 1024


class Scratch:
    """Made when first asked for. Real copies: a test may write into the files that it finds."""

    def __init__(self, root: Path, cache_dir: Path) -> None:
        self.source = root
        self._base = cache_dir / "scratch"
        self.root: Path | None = None

    def made(self) -> Path:
        """The copy. Raises :class:`VivaceError` (``too_large``) for a workspace that is no quick thing to copy."""
        if self.root is None:
            files = project_files(self.source)
            total = 0
            for path in files:
                with contextlib.suppress(OSError):
                    total += (self.source / path).stat().st_size
            if len(files) > MOST_FILES or total > MOST_BYTES:
                raise VivaceError(
                    f"the workspace is too large to try candidates in a copy ({len(files):,} files, {total:,} bytes)",
                    code="too_large",
                )
            self._base.mkdir(parents=True, exist_ok=True, mode=0o700)
            root = Path(tempfile.mkdtemp(dir=self._base)).resolve()
            copy_files(self.source, root, files)
            self.root = root
        return self.root

    def close(self) -> None:
        if self.root is not None:
            shutil.rmtree(self.root, ignore_errors=True)
            self.root = None


def copy_files(source: Path, target: Path, files: Sequence[str]) -> None:
    """Copy these, with modes and times; links stay links. What has vanished meanwhile is passed over."""
    for path in files:
        there = target / path
        with contextlib.suppress(FileNotFoundError):
            there.parent.mkdir(parents=True, exist_ok=True)
            if (source / path).is_symlink():
                there.symlink_to((source / path).readlink())
            else:
                shutil.copy2(source / path, there)

"""What is looked at although the repository ignores it: what was touched, what git tracks, what a checkpoint holds."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from vivace.agent.checkpoints.database import Database
from vivace.agent.checkpoints.scanning import Trie
from vivace.agent.checkpoints.trees import walk
from vivace.agent.ignoring import index_of, tracked_though_ignored


class Wanted:
    """The paths for one workspace. ``git_said`` is what kept git from telling the tracked ones, if anything did."""

    def __init__(self, database: Database, root: Path) -> None:
        self._database = database
        self._root = root
        self._index: tuple[int, ...] | None = None
        self._tracked: list[str] = []
        self.git_said = ""

    def include(self, paths: Iterable[str | Path]) -> None:
        """From now on these files, and what lies below these folders; what is outside the workspace is not taken."""
        for path in paths:
            # Links are followed in the folders above it: the path itself may be one.
            folder, name = os.path.split(os.path.normpath(self._root / path))
            inner = os.path.relpath(os.path.join(os.path.realpath(folder), name), self._root)  # noqa: PTH118
            if inner not in (".", "..") and not inner.startswith("../"):
                self._database.execute("INSERT OR IGNORE INTO included VALUES(?)", (os.fsencode(inner),))

    def trie(self, target: bytes | None = None) -> Trie:
        """``target``: also what this tree holds."""
        wanted = Trie()
        for (path,) in self._database.execute("SELECT path FROM included"):
            wanted.add(os.fsdecode(path))
        for name in self._tracked_ones():
            wanted.add(name)
        if target is not None:
            for name, node in walk(self._database.tree, target):
                wanted.add(name, whole=node.kind != "folder")
        return wanted

    def _tracked_ones(self) -> list[str]:
        """Asked of git only when its index has another stat than last time."""
        path = index_of(self._root)
        if path is None:
            return []
        try:
            status = path.stat()
        except OSError:
            return []
        stamp = (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)
        if stamp != self._index:
            self._tracked, self.git_said = tracked_though_ignored(self._root)
            self._index = stamp
        return self._tracked

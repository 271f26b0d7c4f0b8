"""Files that are named with ``@``, found while the name is typed."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path

from rapidfuzz import fuzz, process

from vivace.agent.repomap.files import project_files

STALE = 20.0
"""Seconds after which the list of files is read anew when somebody asks."""
MANY = 50_000
"""Files that are looked through at most."""


class Files:
    """The files of a workspace that git does not ignore. Reading them takes a moment: call from a thread."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._paths: list[str] = []
        self._read = -STALE

    def near(self, typed: str, limit: int = 8) -> list[str]:
        """Paths that fit what was typed, best first."""
        if time.monotonic() - self._read > STALE:
            self._paths = project_files(self.root)[:MANY]
            self._read = time.monotonic()
        return near(typed, self._paths, limit)


def near(typed: str, paths: Sequence[str], limit: int = 8) -> list[str]:
    """Every letter of ``typed`` comes in this order; names that begin with it, then short paths, come first."""
    sought = typed.casefold()
    if not sought:
        return sorted(paths, key=lambda path: (path.count("/"), path))[:limit]
    pattern = re.compile(".*?".join(re.escape(letter) for letter in sought))
    fits = [path for path in paths if pattern.search(path.casefold())]
    if not fits:
        return [match[0] for match in process.extract(typed, paths, scorer=fuzz.WRatio, limit=limit, score_cutoff=75)]
    return sorted(fits, key=lambda path: _rank(sought, path.casefold(), pattern))[:limit]


def _rank(sought: str, path: str, pattern: re.Pattern[str]) -> tuple[int, int, int, str]:
    """Scattered letters count the less the further they lie apart."""
    name = path.rpartition("/")[2]
    kinds = (path == sought or name == sought, name.startswith(sought), sought in name, sought in path)
    spread = 0
    if not any(kinds):
        # The shortest place, looked for from each of its first letters.
        starts = [m.start() for m in re.finditer(re.escape(sought[0]), path)]
        spread = min(m.end() - m.start() for start in starts if (m := pattern.match(path, start)) is not None)
    return kinds.index(True) if any(kinds) else 4, spread, len(path), path

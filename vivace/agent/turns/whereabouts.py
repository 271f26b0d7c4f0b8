"""The map of the repository for a deep turn: made beside other work, shown once per context."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from vivace.agent.tools.clip import Count

if TYPE_CHECKING:
    from vivace.agent.repomap.map import Map, RepoMap

PATIENCE = 3.0
"""Seconds that a turn waits for the map of a large repository; it comes with a later turn then."""
BUDGET = 1200
"""Tokens of the map, and at most a sixteenth of the window."""


class Whereabouts:
    """``shown``: the model has a map in its context."""

    def __init__(self, root: Path, cache_dir: Path) -> None:
        self.root = root
        self.cache_dir = cache_dir
        self.shown = False
        self._map: RepoMap | None = None
        self._work: asyncio.Task[Map] | None = None

    async def text(self, task: str, files: Collection[str], window: int, count: Count) -> str:
        """The map for a task; empty when there is nothing to show, or it takes too long."""
        if self._work is None or self._work.done():
            budget = min(BUDGET, window // 16)
            self._work = asyncio.create_task(asyncio.to_thread(self._made, task, files, budget, count))
        done, _ = await asyncio.wait([self._work], timeout=PATIENCE)
        if not done:
            return ""
        found = self._work.result()
        if not found.definitions:
            return ""
        self.shown = True
        return (
            f"Where things are ({found.definitions} of {found.of_definitions} definitions, {found.of_files} files):\n"
            f"{found.text}"
        )

    async def close(self) -> None:
        if self._work is not None:
            await asyncio.wait([self._work])

    def _made(self, task: str, files: Collection[str], budget: int, count: Count) -> Map:
        from vivace.agent.repomap.map import RepoMap

        if self._map is None:
            self._map = RepoMap(self.root, self.cache_dir)
        return self._map.map(budget, count, task=task, files=files)

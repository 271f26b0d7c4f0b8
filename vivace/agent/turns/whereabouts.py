"""The map of the repository for a deep turn: made beside other work, shown once per context."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from vivace.agent.tools.clip import Count

if TYPE_CHECKING:
    from vivace.agent.repomap.map import Map, RepoMap

PATIENCE = 3.0
"""Seconds that a turn waits for the map of a large repository; it comes with a later turn then."""
NEAR = 0.3
"""Share of the best file's rank that another has to have to be looked at with it."""
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

    async def files(self, task: str, limit: int) -> list[str]:
        """Where what ``task`` names most likely is, best first; none where it names nothing that is defined here."""
        return await asyncio.to_thread(self._found, task, limit)

    async def close(self) -> None:
        if self._work is not None:
            await asyncio.wait([self._work])

    def _found(self, task: str, limit: int) -> list[str]:
        from vivace.agent.repomap.map import ranked

        index = self._repo_map().refresh()
        words = set(re.findall(r"[A-Za-z_]\w{2,}", task))
        named = any(index.names[n] in words for n in set(index.d_name.tolist()))
        stems = {path.rsplit("/", 1)[-1].split(".", 1)[0].lower() for path in index.paths}
        if not named and not stems & {word.lower() for word in words}:
            return []
        rank = ranked(index, words, ()).tolist()
        order = sorted(range(len(rank)), key=lambda n: -rank[n])[:limit]
        return [index.paths[n] for n in order if rank[n] >= NEAR * rank[order[0]]]

    def _made(self, task: str, files: Collection[str], budget: int, count: Count) -> Map:
        return self._repo_map().map(budget, count, task=task, files=files)

    def _repo_map(self) -> RepoMap:
        from vivace.agent.repomap.map import RepoMap

        if self._map is None:
            self._map = RepoMap(self.root, self.cache_dir)
        return self._map

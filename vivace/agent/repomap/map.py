"""The map: the definitions that matter for a task, as many as a budget of tokens holds."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vivace.agent.repomap.files import project_files
from vivace.agent.repomap.graph import Floats, page_rank, spread, worth
from vivace.agent.repomap.index import Index, index_path, load, save, up_to_date

NAMED = 100.0
"""Weight of a file that the user named, where any file has 1."""
DEFINES = 30.0
"""Weight of a file that defines a name that the user wrote, shared among those that define it."""
IN_PATH = 10.0
"""Weight of a file whose path holds a word that the user wrote."""
WANTED = 50.0
"""Factor of a definition whose name the user wrote."""
TESTS = 0.2
"""Factor of definitions in tests where the user speaks of none: they mention much and are mentioned by nobody."""
NEAR = 8
"""Share of tokens by which a map may stay under its budget: 1 / NEAR. More rounds of fitting gain little."""

_TEST = re.compile(r"(^|/)(tests?|specs?|__tests__|benchmarks?)/|(^|/)(test_[^/]*|conftest)\.py$|[._](test|spec)\.\w+$")
_WORD = re.compile(r"[A-Za-z_]\w{2,}")


@dataclass(frozen=True)
class Map:
    """``text`` for the model; ``files`` in order of rank; how much of the repository it shows."""

    text: str
    files: tuple[str, ...]
    definitions: int
    of_definitions: int
    of_files: int


class RepoMap:
    """Of one workspace. Reading and ranking are synchronous: call it in a thread where an event loop runs."""

    def __init__(self, root: Path, cache_dir: Path) -> None:
        self.root = root.resolve()
        self._cache = index_path(cache_dir, self.root)
        self._index: Index | None = None

    def refresh(self) -> Index:
        """Bring the index up to date with the disk, and the cache with it."""
        old = self._index if self._index is not None else load(self._cache)
        index = up_to_date(self.root, project_files(self.root), old)
        if index is not old:
            save(index, self._cache)
        self._index = index
        return index

    def map(
        self,
        budget: int,
        count: Callable[[str], int],
        *,
        task: str = "",
        files: Collection[str] = (),
        leave_out: Collection[str] = (),
    ) -> Map:
        """The definitions that matter most for ``task`` and the ``files`` that the user named, within ``budget``
        tokens. Files of which the model has the text already are left out, though what they mention counts."""
        index = self.refresh()
        if not index.paths:
            return Map("", (), 0, 0, 0)
        words = set(_WORD.findall(task))
        rank = ranked(index, words, files)
        order = _definitions(index, rank, words, leave_out)
        text, used = _fitted(index, rank, order, budget, count)
        shown = tuple(index.paths[n] for n in _files_of(index, rank, order[:used]))
        return Map(text, shown, used, len(index.d_file), len(index.paths))

    def files_for(self, task: str, limit: int = 10, files: Collection[str] = ()) -> list[str]:
        """The files where work on ``task`` most likely is, best first."""
        index = self.refresh()
        if not index.paths:
            return []
        rank = ranked(index, set(_WORD.findall(task)), files)
        return [index.paths[n] for n in np.argsort(-rank, kind="stable")[:limit].tolist()]


def ranked(index: Index, words: Collection[str], files: Collection[str]) -> Floats:
    """The rank of every file: by mentions, starting from what was named."""
    size = len(index.paths)
    restart = np.ones(size) / size  # all the rest together weighs as much as one file
    for n, path in enumerate(index.paths):
        if path in files:
            restart[n] += NAMED
    lowered = {word.lower() for word in words}
    if lowered:
        for n, path in enumerate(index.paths):
            stem = path.rsplit("/", 1)[-1].split(".", 1)[0].lower()
            if stem in lowered and stem not in ("index", "main", "__init__", "mod", "test", "tests"):
                restart[n] += IN_PATH
    chosen = [n for n, name in enumerate(index.names) if name in words]
    for n in chosen:
        definers = np.unique(index.d_file[index.d_name == n])
        restart[definers] += DEFINES * worth(index.names[n]) / 3 / max(1, len(definers))
    return page_rank(size, index.e_from, index.e_to, index.e_weight, restart)


def _definitions(index: Index, rank: Floats, words: Collection[str], leave_out: Collection[str]) -> list[int]:
    """Definitions by what they are worth: the rank of their file, and of the files that mention them."""
    names = len(index.names)
    mentioned = spread(rank[index.r_file] * np.sqrt(index.r_count), index.r_name, names)
    definers = np.bincount(index.d_name, minlength=names)
    # Nobody else mentions it: what is worth knowing of a file is first what stands at its top level.
    own = 0.02 / (1 + index.d_depth)
    score = rank[index.d_file] * (own + mentioned[index.d_name] / np.maximum(1, definers[index.d_name]))
    wanted = np.array([1 + WANTED * worth(name) / 3 if name in words else 1.0 for name in index.names])
    score = score * wanted[index.d_name]
    if not any(word.lower().startswith("test") for word in words):
        beside = np.array([TESTS if _TEST.search(path) else 1.0 for path in index.paths])
        score = score * beside[index.d_file]
    hidden = np.array([path in leave_out for path in index.paths], bool)
    order = np.argsort(-score, kind="stable")
    return [int(n) for n in order[~hidden[index.d_file][order]]]


def _fitted(
    index: Index, rank: Floats, order: Sequence[int], budget: int, count: Callable[[str], int]
) -> tuple[str, int]:
    """The longest map that fits: how many definitions that are, is searched."""
    best, used = "", 0
    low, high = 0, min(len(order), max(8, budget // 2))  # no definition takes under two tokens
    guess = min(high, max(1, budget // 16))
    while low < high:
        text = render(index, rank, order[:guess])
        tokens = count(text)
        if tokens <= budget:
            best, used, low = text, guess, guess
            if tokens >= budget - budget // NEAR:
                break
        else:
            high = guess - 1
        guess = (low + high + 1) // 2
    return best, used


def _files_of(index: Index, rank: Floats, chosen: Sequence[int]) -> list[int]:
    files = {int(index.d_file[n]) for n in chosen}
    return sorted(files, key=lambda n: (-rank[n], index.paths[n]))


def render(index: Index, rank: Floats, chosen: Sequence[int]) -> str:
    """Files by rank; below each its definitions by line, with the lines of those that they stand in."""
    by_file: dict[int, set[int]] = {}
    for n in chosen:
        shown = by_file.setdefault(int(index.d_file[n]), set())
        shown.add(n)
        depth, above = int(index.d_depth[n]), n - 1
        while depth and above >= 0 and index.d_file[above] == index.d_file[n]:
            if index.d_depth[above] < depth:
                shown.add(above)
                depth = int(index.d_depth[above])
            above -= 1
    out = []
    for file in sorted(by_file, key=lambda n: (-rank[n], index.paths[n])):
        out.append(f"{index.paths[file]}:")
        out += [
            f"{int(index.d_line[n]) + 1:>5} {'  ' * int(index.d_depth[n])}{index.signatures[n]}"
            for n in sorted(by_file[file])
        ]
    return "\n".join(out)

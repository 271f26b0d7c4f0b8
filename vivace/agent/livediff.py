"""The diff while it is made: old lines against new lines that arrive one by one, never looking back.

Each line costs the same however long the file is. The display may differ from the smallest diff, which is computed when
the answer is whole; this one is for the eyes only.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence

HELD = 4
"""New lines in a row that are held back until the answer is back in step. What is longer is shown before the old lines
that it stands for: half a screen that nobody sees is worse than an order that is not the usual one."""
Shown = tuple[str, str]
"""A mark (``" "``, ``-`` or ``+``) and a line."""


class LiveDiff:
    """Follows one answer. A change is confirmed when the answer is back in step with the old lines."""

    def __init__(self, old: Sequence[str]) -> None:
        self._old = [line.rstrip() for line in old]
        self._raw = old
        self._at = 0
        self._pending: list[str] = []
        self._ahead = 0
        """New lines of this change that were shown already."""
        self._where: dict[str, list[int]] = defaultdict(list)
        for n, line in enumerate(self._old):
            self._where[line].append(n)
        self.changed = 0
        """Lines changed so far; a replaced line counts once."""

    def feed(self, lines: Iterable[str]) -> list[Shown]:
        """Take new lines; return what is certain now."""
        shown: list[Shown] = []
        for line in lines:
            key = line.rstrip()
            if not self._pending and self._at < len(self._old) and self._old[self._at] == key:
                shown.append((" ", line))
                self._at += 1
                continue
            self._pending.append(line)
            self._resync(key, shown)
            if len(self._pending) > HELD:  # the last one may yet be the first of a run
                fresh = len(self._pending) - 1
                self._ahead += fresh
                self.changed += fresh
                shown += [("+", line) for line in self._pending[:fresh]]
                self._pending = self._pending[fresh:]
        return shown

    def finish(self) -> list[Shown]:
        """The answer is whole: what is left of both sides differs."""
        shown: list[Shown] = []
        self._emit(len(self._old), len(self._pending), shown)
        return shown

    def _resync(self, key: str, shown: list[Shown]) -> None:
        places = self._where.get(key, [])
        n = bisect_left(places, self._at)
        if n == len(places):
            return
        at = places[n]
        before = self._pending[-2].rstrip() if len(self._pending) > 1 else None
        run = before is not None and at > self._at and self._old[at - 1] == before
        telling = len(places) == 1 and len(key.strip()) > 3
        if run or telling:
            keep = 2 if run else 1
            self._emit(at + 1 - keep, len(self._pending) - keep, shown)
            shown += [(" ", line) for line in self._pending]
            self._pending = []
            self._at = at + 1

    def _emit(self, upto: int, count: int, shown: list[Shown]) -> None:
        self.changed += max(upto - self._at, count + self._ahead) - self._ahead
        self._ahead = 0
        shown += [("-", line) for line in self._raw[self._at : upto]]
        shown += [("+", line) for line in self._pending[:count]]
        self._at, self._pending = upto, self._pending[count:]

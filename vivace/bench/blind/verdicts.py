"""Verdicts, one JSON object a line, appended as they come."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from vivace.bench.blind.pairs import Pair
from vivace.errors import UsageError

Won = Literal["first", "second", "tie", "skip"]


class Verdict(Struct, frozen=True, kw_only=True):
    """``first`` and ``second`` are the contenders as they were shown; ``skip`` counts for nothing."""

    task: str
    seed: int
    first: str
    second: str
    won: Won
    judge: str
    note: str = ""
    """Why it came so, where that is known: the results are the same, the order of the two decided."""

    @property
    def key(self) -> tuple[str, int, frozenset[str]]:
        return self.task, self.seed, frozenset((self.first, self.second))


def verdict(pair: Pair, won: Won, judge: str, note: str = "") -> Verdict:
    return Verdict(
        task=pair.task,
        seed=pair.seed,
        first=pair.first.contender,
        second=pair.second.contender,
        won=won,
        judge=judge,
        note=note,
    )


class Verdicts:
    """The file of verdicts. A line that was cut by a kill is dropped.

    Raises :class:`UsageError` for a line that is no verdict.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.all: list[Verdict] = []
        data = path.read_bytes() if path.exists() else b""
        whole = data[: data.rfind(b"\n") + 1]
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                self.all.append(msgspec.json.decode(line, type=Verdict))
            except msgspec.DecodeError as error:
                raise UsageError(f"{path}, line {number}: no verdict ({error}).", param="verdicts") from None
        if len(whole) < len(data):
            os.truncate(path, len(whole))

    def add(self, found: Verdict) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            file.write(msgspec.json.encode(found) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self.all.append(found)

    def done(self, judge: str) -> set[tuple[str, int, frozenset[str]]]:
        """What this judge has decided or skipped."""
        return {one.key for one in self.all if one.judge == judge}

    def between(self, names: Iterable[str], judge: str | None = None) -> list[Verdict]:
        """Those on two of these contenders, of one judge or of all."""
        wanted = set(names)
        return [one for one in self.all if {one.first, one.second} <= wanted and judge in (None, one.judge)]

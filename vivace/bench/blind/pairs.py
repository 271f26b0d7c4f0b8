"""Pairs of results of the same task, in an order and on sides that tell nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from random import Random

from msgspec import Struct

from vivace.bench.tasksets.record import Record, Report
from vivace.bench.tasksets.task import Task, TaskSet
from vivace.errors import UsageError


class Side(Struct, frozen=True):
    """``contender`` is for the books only: neither a person nor a judge model is told."""

    contender: str
    diff: str


class Pair(Struct, frozen=True):
    """What is shown: the instruction and two diffs."""

    task: str
    seed: int
    instruction: str
    first: Side
    second: Side

    @property
    def same(self) -> bool:
        return self.first.diff == self.second.diff

    @property
    def key(self) -> tuple[str, int, frozenset[str]]:
        return self.task, self.seed, frozenset((self.first.contender, self.second.contender))

    def swapped(self) -> Pair:
        return Pair(self.task, self.seed, self.instruction, self.second, self.first)


def contenders(paths: Sequence[Path], reports: Sequence[Report]) -> dict[str, Report]:
    """A name for each report: its model, mode and candidates, and its file where that is not enough.

    Raises :class:`UsageError` for fewer than two.
    """
    if len(reports) < 2:
        raise UsageError("A comparison needs two results or more.", param="file")
    names = [report.options.name for report in reports]
    named = {
        name if names.count(name) == 1 else f"{name} ({path.name})": report
        for name, path, report in zip(names, paths, reports, strict=True)
    }
    if len(named) < len(reports):
        raise UsageError("The same result was named twice.", param="file")
    return named


def pairs(reports: Mapping[str, Report], sets: Sequence[TaskSet], seed: int) -> list[Pair]:
    """Every two results of one task and seed, shuffled by ``seed``, sides included.

    Raises :class:`UsageError` where ``sets`` are not the task files that the results were made from.
    """
    _check(reports, sets)
    tasks = {task.id: task for one in sets for task in one.tasks}
    records = {name: {(r.id, r.seed): r for r in report.records} for name, report in reports.items()}
    found = []
    for one, other in combinations(reports, 2):
        for key, record in records[one].items():
            if key in records[other] and key[0] in tasks:
                found.append(_pair(tasks[key[0]], (one, record), (other, records[other][key]), seed))
    if not found:
        raise UsageError("The results have no task in common that is in the task files.", param="tasks")
    Random(seed).shuffle(found)
    return found


def _pair(task: Task, one: tuple[str, Record], other: tuple[str, Record], seed: int) -> Pair:
    sides = [Side(name, record.diff) for name, record in (one, other)]
    # By the pair's own name: what was shown does not change when other results are added.
    if Random(f"{seed} {task.id} {one[1].seed} {one[0]} {other[0]}").random() < 0.5:
        sides.reverse()
    return Pair(task.id, one[1].seed, task.instruction, *sides)


def _check(reports: Mapping[str, Report], sets: Sequence[TaskSet]) -> None:
    for one in sets:
        for name, report in reports.items():
            if report.tasks.get(one.name, one.sha256) != one.sha256:
                raise UsageError(f"{one.name} is not the file that {name} was run on.", param="tasks")


def undecided(found: Sequence[Pair], done: set[tuple[str, int, frozenset[str]]]) -> Iterator[Pair]:
    """Those that the judge has not decided yet."""
    return (pair for pair in found if pair.key not in done)

"""The run: every task and seed through a solver, graded, kept."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from vivace.agent.sandbox.base import Sandbox
from vivace.bench.tasksets.grading import grade
from vivace.bench.tasksets.record import Record
from vivace.bench.tasksets.solver import Outcome, Solver
from vivace.bench.tasksets.task import Task
from vivace.bench.tasksets.tree import difference, encoded, lay_out, read_back
from vivace.errors import VivaceError


class Keeper(Protocol):
    """Takes records as they come; ``done`` are those of an earlier start of the same run."""

    done: list[Record]

    def add(self, record: Record) -> None: ...


class Memory:
    """A keeper for a run that nobody wants to go on with later."""

    def __init__(self) -> None:
        self.done: list[Record] = []

    def add(self, record: Record) -> None:
        self.done.append(record)


async def run_tasks(
    tasks: Sequence[Task],
    seeds: Sequence[int],
    solver: Solver,
    sandbox: Sandbox,
    keeper: Keeper,
    *,
    parallel: int = 1,
    on_record: Callable[[Record], None] = lambda record: None,
) -> list[Record]:
    """Every task with every seed, ``parallel`` turns at a time; those that ``keeper`` has are not run again.

    A turn's tests begin when it is over. With one turn at a time they end before the next begins, so they take nothing
    from its time. The records come in the order of seeds and tasks.
    """
    waiting = iter(left(tasks, seeds, keeper.done))

    async def work() -> None:
        for task, seed in waiting:
            record = await one_task(task, seed, solver, sandbox)
            keeper.add(record)
            on_record(record)

    async with asyncio.TaskGroup() as group:
        for _ in range(parallel):
            group.create_task(work())
    return in_order(tasks, seeds, keeper.done)


def left(tasks: Sequence[Task], seeds: Sequence[int], done: Sequence[Record]) -> list[tuple[Task, int]]:
    """What is still to be run."""
    known = {(record.id, record.seed) for record in done}
    return [(task, seed) for seed in seeds for task in tasks if (task.id, seed) not in known]


def in_order(tasks: Sequence[Task], seeds: Sequence[int], done: Sequence[Record]) -> list[Record]:
    """The records of a run that has come to its end, by seed and task."""
    by_key = {(record.id, record.seed): record for record in done}
    return [by_key[task.id, seed] for seed in seeds for task in tasks]


async def one_task(task: Task, seed: int, solver: Solver, sandbox: Sandbox) -> Record:
    """One turn in a folder of its own, and what became of it there."""
    before = encoded(task.workspace)
    with tempfile.TemporaryDirectory(prefix="vivace-task-") as folder:
        root = Path(folder).resolve()
        lay_out(before, root)
        began = time.perf_counter()
        outcome = await solver(task.problem, root, seed)
        seconds = time.perf_counter() - began
        try:
            after = read_back(root)
        except VivaceError as error:
            after, outcome = before, Outcome(status="refused", reason=error.message)
    found = difference(before, after)
    record = Record(
        id=task.id,
        kind=task.kind,
        seed=seed,
        status=outcome.status,
        applied=bool(found.paths),
        reason=outcome.reason,
        seconds=round(seconds, 3),
        ttft=_rounded(outcome.ttft, 4),
        tok_s=_rounded(outcome.tok_s, 1),
        prompt_tokens=outcome.prompt_tokens,
        output_tokens=outcome.output_tokens,
        draft_accepted=_rounded(outcome.draft_accepted, 3),
        second_round=outcome.second_round,
        steps=outcome.steps,
        mode=outcome.mode,
        lines_changed=found.lines,
        changed=found.paths,
        diff=found.text,
    )
    if record.applied:  # every task fails as it is given, so nothing else needs its tests
        told = await asyncio.to_thread(grade, after, task.tests, sandbox, task.seconds)
        record.passed, record.grade, record.wrong_place = told.passed, told.why, task.strays(after)
        if wanted := difference(before, encoded(task.solved)).lines:
            record.changed_lines_ratio = round(found.lines / wanted, 3)
    return record


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)

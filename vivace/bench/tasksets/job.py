"""What the command line asked for, carried out: tasks read, turns run with a bar, the result kept and told."""

from __future__ import annotations

import asyncio
import datetime
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Protocol

from vivace import __version__
from vivace.agent.sandbox.base import detect
from vivace.bench.conditions import machine
from vivace.bench.tasksets.journal import Head, Journal, journal_of
from vivace.bench.tasksets.record import Options, Record, Report, save
from vivace.bench.tasksets.run import Memory, in_order, left, run_tasks
from vivace.bench.tasksets.solver import check_mode, solver_for
from vivace.bench.tasksets.summary import Summary, rows, summarise
from vivace.bench.tasksets.task import Task, TaskSet, chosen, load
from vivace.protocol.contracts import Service


@dataclass(frozen=True, kw_only=True)
class Job:
    """The options of ``vivace bench tasks``, as its help describes them."""

    files: Sequence[Path]
    options: Options
    out: Path | None = None
    remote: bool = False
    """Another server answers; whose, the result does not say."""
    done: list[Record] = field(default_factory=list)
    """Records so far, for the word at an interruption."""

    @cached_property
    def sets(self) -> list[TaskSet]:
        return load(self.files)

    @cached_property
    def tasks(self) -> list[Task]:
        return chosen(self.sets, self.options.limit)

    @property
    def total(self) -> int:
        return len(self.tasks) * len(self.options.seeds)

    @property
    def head(self) -> Head:
        return Head(__version__, self.options, {one.name: one.sha256 for one in self.sets})

    def check(self) -> None:
        """Everything that can be refused without a model. Raises :class:`UsageError`."""
        check_mode(self.options.mode)
        assert self.tasks

    def interrupted(self) -> None:
        """Say what is kept of a run that was stopped."""
        kept = (
            f"the same command goes on from {journal_of(self.out)}"
            if self.out is not None
            else "nothing is kept without --json"
        )
        _say(f"\nstopped after {len(self.done)} of {self.total} turns; {kept}")


ServiceFactory = Callable[[], AbstractAsyncContextManager[Service]]


async def run_job(open_service: ServiceFactory, job: Job) -> Report:
    """Run, grade and sum up; write the result to ``job.out`` where there is one.

    Every seed gets a service of its own: one that has seen the tasks already has their prompts in KV memory, and its
    times would be those of nobody's first edit.
    """
    options, found = job.options, await asyncio.to_thread(detect)
    if not found.sandbox.holds:
        _say(f"vivace: {found.reason}; the code that models write runs under limits only")
    journal = Journal(journal_of(job.out), job.head) if job.out is not None else None
    keeper = journal or Memory()
    finished = False
    engine: str | None = None
    try:
        with _bar(job, keeper.done) as advance:

            def on_record(record: Record) -> None:
                job.done[:] = keeper.done
                advance(record)

            for seed in options.seeds:
                if engine is not None and not left(job.tasks, (seed,), keeper.done):
                    continue
                async with open_service() as service:
                    engine = (await service.open(options.model)).detail
                    solver = solver_for(options.mode, service, options.model, options.candidates)
                    await run_tasks(
                        job.tasks,
                        (seed,),
                        solver,
                        found.sandbox,
                        keeper,
                        parallel=options.parallel,
                        on_record=on_record,
                    )
        records = in_order(job.tasks, options.seeds, keeper.done)
        report = Report(
            command=_command(job),
            date=datetime.datetime.now(datetime.UTC).date().isoformat(),
            vivace=__version__,
            machine=machine(),
            engine=engine or "",
            sandbox=found.sandbox.name,
            options=options,
            tasks=dict(job.head.tasks),
            summary=summarise(records),
            records=records,
        )
        if job.out is not None:
            save(report, job.out)
        finished = True
    finally:
        if journal is not None:
            journal.close(finished=finished)
    for kind, summary in rows(report.summary):
        print(described(kind, summary, alone=options.parallel == 1))
    if job.out is not None:
        _say(f"written: {job.out}")
    return report


def described(kind: str, summary: Summary, *, alone: bool) -> str:
    """One kind of task in one line, for people; times only where they are one user's."""
    passed, applied = summary.pass_rate, summary.applied_rate
    parts = [
        f"{kind:<20} passed {passed.count} of {passed.of}: {passed.percent} % ({passed.low}-{passed.high})",
        f"applied {applied.percent} %",
    ]
    if alone and summary.median_seconds is not None:
        parts.append(f"to green {summary.median_seconds:.2f} s median, {summary.p90_seconds:.2f} s p90")
    if summary.wrong_place.count:
        parts.append(f"wrong place {summary.wrong_place.count}")
    return ", ".join(parts)


def _command(job: Job) -> str:
    """The command that repeats the run; the folders are whoever's they are."""
    options = job.options
    words = ["vivace", "bench", "tasks", *(path.name for path in job.files)]
    words += ["--model", options.model, "--mode", options.mode]
    words += ["--candidates", str(options.candidates)] if options.candidates is not None else []
    words += [word for seed in options.seeds for word in ("--seed", str(seed))]
    words += ["--server", "URL"] if job.remote else []
    words += ["--limit", str(options.limit)] if options.limit is not None else []
    return shlex.join([*words, "--parallel", str(options.parallel)])


class _Advance(Protocol):
    def __call__(self, record: Record) -> None: ...


@contextmanager
def _bar(job: Job, done: Sequence[Record]) -> Iterator[_Advance]:
    """A bar on stderr with what has passed so far; where nobody looks, one line a turn."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, highlight=False)
    passed = sum(record.passed for record in done)
    count = len(done)
    if not console.is_terminal:

        def told(record: Record) -> None:
            nonlocal count
            count += 1
            _say(f"{count:>4}/{job.total} {record.id:<28} {record.grade or record.status:<10} {record.seconds:7.2f} s")

        yield told
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        row = bar.add_task("", total=job.total, completed=count)

        def advance(record: Record) -> None:
            nonlocal passed, count
            passed, count = passed + record.passed, count + 1
            bar.update(row, advance=1, description=f"{passed} passed, last {record.id} {record.seconds:.1f} s")

        yield advance


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)

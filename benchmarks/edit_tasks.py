"""Edit quality: every task once through the agent's own turn, exactly as ``vivace edit --yes`` runs it.

    python -m benchmarks.edit_tasks --tasks FOLDER --model coder-0.5b --parallel 4
    python -m benchmarks.edit_tasks --table

Tests never reach the model or the choice of a candidate: all turns are over and the engine is closed before the first
test runs. ``--parallel 1`` is for timings; with more, turns share the engine's passes and their times are not one
user's.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
from msgspec import Struct

from benchmarks.grading import grade
from benchmarks.machine import describe
from benchmarks.summary import Record, Summary, summarise
from benchmarks.table import write_table
from benchmarks.tasks import Task, TaskFile, load
from vivace import __version__
from vivace.agent.edit import apply, edit, read_sources
from vivace.agent.result import Began, EditEvent, EditRequest, EditResult
from vivace.composing import compose_gateway
from vivace.errors import VivaceError
from vivace.protocol.contracts import ModelCard, Service
from vivace.settings import Settings

RESULTS = Path(__file__).parent / "results"
SETS = ("edit", "repair", "long_edit")


class Options(Struct, frozen=True):
    """What a run can vary."""

    model: str
    sets: list[str]
    candidates: int
    seed: int
    parallel: int


class Report(Struct):
    """One run, as it is written to the results folder."""

    command: str
    date: str
    vivace: str
    machine: dict[str, str | int | float]
    engine: str
    options: Options
    tasks: dict[str, str]
    """Task file -> SHA-256."""
    summary: dict[str, Summary]
    records: list[Record]


async def run_all(
    service: Service, tasks: Sequence[Task], options: Options
) -> tuple[ModelCard, list[Record], list[bytes]]:
    """All turns, ``parallel`` at a time in the order of the tasks; the records and the files they left behind."""
    card = await service.open(options.model)
    left = iter(range(len(tasks)))
    done: dict[int, tuple[Record, bytes]] = {}

    async def work() -> None:
        for at in left:
            done[at] = await one_turn(service, tasks[at], options)
            record = done[at][0]
            print(
                f"{len(done):>4}/{len(tasks)} {record.id:<24} {record.status:<10} {record.seconds:6.2f} s", flush=True
            )

    try:
        await asyncio.gather(*(work() for _ in range(options.parallel)))
    finally:
        await service.close()
    return card, [done[at][0] for at in range(len(tasks))], [done[at][1] for at in range(len(tasks))]


async def one_turn(service: Service, task: Task, options: Options) -> tuple[Record, bytes]:
    """One task in a folder of its own: its record without a grade, and the file as the turn left it."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        path = root / task.path
        path.write_bytes(task.before.encode("utf-8"))
        asked: list[str] = []

        def listen(event: EditEvent) -> None:
            if isinstance(event, Began):
                asked.append("region" if len(event.old) != len(event.source.lines) else "whole")

        request = EditRequest(
            [task.path], task.instruction, options.model, options.seed, candidates=options.candidates, root=root
        )
        record = Record(task.id, task.kind, "error", applied=False)
        started = time.perf_counter()
        try:
            result = await edit(service, request, read_sources(request), listen)
            if result.status == "changed":
                apply(result)
            _fill(record, result)
        except VivaceError as error:
            record.reason = str(error).replace(str(root), "")
        record.seconds = round(time.perf_counter() - started, 3)
        record.asked, record.resampled = (asked or ["whole"])[0], len(asked) > 1
        return record, path.read_bytes()


def _fill(record: Record, result: EditResult) -> None:
    record.status, record.applied = result.status, result.status == "changed"
    record.reason = "; ".join(file.reason for file in result.files if file.reason)
    record.ttft_s = _rounded(result.ttft, 4)
    record.decode_tok_s = _rounded(result.decode_rate, 1)
    record.prompt_tokens, record.output_tokens = result.prompt_tokens, result.output_tokens
    record.draft_accepted = _rounded(result.draft_accepted, 3)
    record.lines_changed = result.lines_changed


def grade_all(tasks: Sequence[Task], records: Sequence[Record], files: Sequence[bytes]) -> None:
    """Fill in the grades. A file that no edit reached needs no test: every task fails as it is given."""

    def one(task: Task, record: Record, text: bytes) -> None:
        if record.applied:
            found = grade(task.path, text, task.tests)
            record.passed, record.grade, record.untouched = found.passed, found.why, found.untouched

    with ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // 2)) as pool:
        list(pool.map(one, tasks, records, files))


def run(files: Sequence[TaskFile], options: Options, settings: Settings) -> tuple[Report, list[bytes]]:
    """One run, graded; and the files that the turns left."""
    tasks = [task for file in files for task in file.tasks]
    card, records, texts = asyncio.run(run_all(compose_gateway(settings, database=False), tasks, options))
    grade_all(tasks, records, texts)
    report = Report(
        command=_command(options),
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        vivace=__version__,
        machine=describe(),
        engine=card.detail,
        options=options,
        tasks={f"{file.name}.jsonl": file.sha256 for file in files},
        summary=summarise(records),
        records=records,
    )
    return report, texts


def _command(options: Options) -> str:
    """The command that repeats the run; the folder of the tasks is whoever's it is."""
    return (
        f"python -m benchmarks.edit_tasks --tasks TASKS --sets {','.join(options.sets)} --model {options.model} "
        f"--candidates {options.candidates} --seed {options.seed} --parallel {options.parallel}"
    )


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def _save(report: Report, out: Path) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    # One record a line: a change of one task is a change of one line in version control.
    head = msgspec.structs.replace(report, records=[])
    text = msgspec.json.format(msgspec.json.encode(head), indent=1).decode()
    lines = ",\n".join("  " + msgspec.json.encode(record).decode() for record in report.records)
    out.write_text(text.replace('"records": []', f'"records": [\n{lines}\n ]') + "\n", encoding="utf-8")


def _keep(folder: Path, tasks: Sequence[Task], report: Report, texts: Sequence[bytes]) -> None:
    """What the turns left behind, for reading: one folder a task."""
    for task, record, text in zip(tasks, report.records, texts, strict=True):
        place = folder / ("passed" if record.passed else record.grade or record.status) / task.id.replace("/", "-")
        place.mkdir(parents=True, exist_ok=True)
        (place / "instruction.txt").write_text(f"{task.instruction}\n\n{record.reason}\n", encoding="utf-8")
        (place / "before.py").write_text(task.before, encoding="utf-8")
        (place / "after.py").write_bytes(text)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.edit_tasks", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tasks", type=Path, help="the folder with the task files")
    parser.add_argument("--sets", default="edit,repair", help=f"which of {', '.join(SETS)} (default: edit,repair)")
    parser.add_argument("--model", default="coder-0.5b")
    parser.add_argument("--candidates", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--parallel", type=int, default=1, help="turns in flight at once (1 for timings)")
    parser.add_argument("--out", type=Path, help="the result file (default: a name made of the options, in results/)")
    parser.add_argument("--keep", type=Path, help="also keep the files that the turns left, in this folder")
    parser.add_argument("--table", action="store_true", help="only write results/README.md from the result files")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    args = _arguments(argv)
    if args.table:
        write_table(RESULTS)
        return 0
    sets = [name.strip() for name in args.sets.split(",")]
    if args.tasks is None or not set(sets) <= set(SETS) or args.parallel < 1:
        print("give --tasks FOLDER, --sets out of " + ", ".join(SETS) + " and --parallel 1 or more", file=sys.stderr)
        return 2
    options = Options(args.model, sets, args.candidates, args.seed, args.parallel)
    files = load(args.tasks, sets)
    report, texts = run(files, options, Settings())
    name = f"edit-tasks.{args.model}.{'+'.join(sets)}.n{args.candidates}.s{args.seed}.p{args.parallel}.json"
    _save(report, args.out or RESULTS / name)
    if args.keep:
        _keep(args.keep, [task for file in files for task in file.tasks], report, texts)
    for kind, summary in report.summary.items():
        print(
            f"{kind:<10} passed {summary.passed.percent} % ({summary.passed.low}-{summary.passed.high}), "
            f"applied {summary.applied.percent} %, median {summary.seconds_median} s, p90 {summary.seconds_p90} s"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What the command line asked for, carried out: tasks and peers found, the benchmark run, the document kept."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vivace.bench.host import Host
from vivace.bench.peers import PeerPlayer, load_peers
from vivace.bench.record import Document, save
from vivace.bench.speed import Plan, run_speed
from vivace.bench.tasks import Task, load_long_edits, load_tasks
from vivace.errors import UsageError, did_you_mean

LONG_EDIT_CHARACTERS = 9000
"""Long edits with more text than this (some 2,300 tokens) are left out: peers without a draft take minutes for one."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """The options of ``vivace bench speed``, as its help describes them."""

    plan: Plan
    data: Path
    tasks: Sequence[str]
    long_edit: Path | None
    long_edits: int
    peers: Path | None
    only_peers: Sequence[str]
    peers_data: Path
    llama_server: str
    vllm: str
    out: Path


async def run_job(host: Host, job: Job) -> Document:
    """Run the benchmark and write its document to ``job.out``, after each part anew."""
    tasks = find_tasks(job)
    with tempfile.TemporaryDirectory(prefix="vivace-bench-") as logs:
        peers = find_peers(host, job, Path(logs))
        document = await run_speed(host, peers, tasks, job.plan, _say, lambda document: save(document, job.out))
    save(document, job.out)
    _say(f"written: {job.out}")
    return document


def find_tasks(job: Job) -> list[Task]:
    """The tasks to run. Raises :class:`UsageError` for an unknown name."""
    tasks = load_tasks(job.data)
    if job.long_edit is not None:
        tasks += load_long_edits(job.long_edit, job.long_edits, LONG_EDIT_CHARACTERS)
    known = [task.id for task in tasks]
    for name in job.tasks:
        if name not in known:
            raise UsageError(f"There is no task {name!r}.", hint=did_you_mean(name, known), param="task")
    return [task for task in tasks if not job.tasks or task.id in job.tasks]


def find_peers(host: Host, job: Job, logs: Path) -> list[PeerPlayer]:
    """The peers to run beside; none without ``--peers``."""
    if job.peers is None:
        return []
    data = job.peers_data.absolute()
    places = {
        "data": str(data),
        "python": str(data / "bin" / "python"),
        "model": host.facts.name,
        "model_file": host.model_file,
        "llama_server": job.llama_server,
        "vllm": job.vllm,
    }
    return load_peers(job.peers.absolute(), places, host.texts, job.only_peers, logs)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)

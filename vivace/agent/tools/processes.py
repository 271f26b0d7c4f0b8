"""Every process of one conversation: the one in front, and the jobs behind it. All of them end with it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vivace.agent.sandbox.policy import clean_environment
from vivace.agent.tools.output import Output
from vivace.agent.tools.process import PATIENCE, Process
from vivace.errors import UsageError, did_you_mean

MAX_JOBS = 16
"""Background jobs of one conversation that run at the same time."""


@dataclass
class Job:
    """A background command. ``id`` is what the user and the model call it."""

    id: str
    command: str
    process: Process
    told: bool = False
    """The model knows, or is just being told, that it has ended."""
    note: str = ""
    """Why it was ended, where somebody did it."""

    @property
    def seconds(self) -> float:
        """How long it has run, or ran."""
        return self.process.seconds or time.perf_counter() - self.process.started

    @property
    def state(self) -> str:
        if self.process.running:
            return "running"
        if self.process.ended == "exited":
            return f"exited with code {self.process.code}"
        return str(self.process.ended)


@dataclass
class Processes:
    """Owned by the conversation: a turn or a worker that ends takes no job with it.

    ``on_job_start`` is called when a job has started, ``on_job_end`` when it ends by itself or is stopped, once each.
    """

    on_job_start: Callable[[Job], None] = lambda job: None
    on_job_end: Callable[[Job], None] = lambda job: None
    jobs: dict[str, Job] = field(default_factory=dict)
    _front: set[Process] = field(default_factory=set)
    _watchers: set[asyncio.Task[None]] = field(default_factory=set)
    _count: int = 0

    async def run(self, argv: Sequence[str], cwd: Path, timeout: float, output: Output) -> Process:
        """Run one command in front, to its end, its timeout, or an interruption.

        A task that is cancelled here kills the command first.
        """
        process = await Process.start(argv, cwd, environment(), output)
        self._front.add(process)
        try:
            if not await process.wait(timeout):
                await process.stop("timeout", PATIENCE)
        except BaseException:
            await process.stop()
            raise
        finally:
            self._front.discard(process)
        return process

    async def interrupt(self) -> int:
        """End what runs in front, within 100 ms; jobs go on. Gives the number of commands that it ended."""
        running = [process for process in self._front if process.running]
        await asyncio.gather(*(process.stop() for process in running))
        return len(running)

    async def start(self, argv: Sequence[str], cwd: Path, command: str, output: Output) -> Job:
        """Start a job. Raises :class:`UsageError` (``too_many_jobs``)."""
        running = [job.id for job in self.jobs.values() if job.process.running]
        if len(running) >= MAX_JOBS:
            raise UsageError(
                f"{MAX_JOBS} jobs run already ({', '.join(running)})",
                hint="Wait for one of them or kill it.",
                code="too_many_jobs",
            )
        process = await Process.start(argv, cwd, environment(), output)
        self._count += 1
        job = Job(f"job-{self._count}", command, process)
        self.jobs[job.id] = job
        self.on_job_start(job)
        watcher = asyncio.create_task(self._watch(job))
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)
        return job

    def job(self, name: str) -> Job:
        """The job of that id. Raises :class:`UsageError` (``unknown_job``)."""
        if name not in self.jobs:
            hint = did_you_mean(name, list(self.jobs)) if self.jobs else "No job was started."
            raise UsageError(f"there is no job {name!r}", hint=hint, code="unknown_job", param="job")
        return self.jobs[name]

    async def close(self) -> None:
        """End everything; nothing that this conversation started runs on."""
        everything = [*self._front, *(job.process for job in self.jobs.values())]
        await asyncio.gather(*(process.stop() for process in everything))
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*self._watchers, return_exceptions=True)

    async def _watch(self, job: Job) -> None:
        await job.process.wait()
        self.on_job_end(job)


def environment() -> dict[str, str]:
    """What commands inherit: no secrets, no pagers, no colours, nothing that waits for a key."""
    quiet = {"PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0", "GIT_EDITOR": "true"}
    return {**clean_environment(os.environ), **quiet, "TERM": "dumb", "NO_COLOR": "1", "PYTHONUNBUFFERED": "1"}

"""Background commands, made known: to the face by events, to the model when one has ended."""

from __future__ import annotations

import asyncio

from vivace.agent.tools.process import PATIENCE
from vivace.agent.tools.processes import Job
from vivace.agent.turns.desk import Desk
from vivace.agent.turns.events import JobChanged, JobState

TICK = 1.0
"""Seconds between two looks at those that run."""
LAST_OUTPUT = 1000
"""Characters of the end of an output that the model is told."""


class JobWatch:
    """Of one conversation: its jobs end with it, not with its turns."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.processes = desk.context.processes
        self.processes.on_job_start = self._started
        self.processes.on_job_end = self._ended
        self._clock: asyncio.Task[None] | None = None
        self._closing = False

    async def stop(self, name: str) -> None:
        """End one, for the user. Raises :class:`UsageError` (``unknown_job``)."""
        job = self.processes.job(name)
        if job.process.running:
            job.note = "stopped by the user"
            await job.process.stop(grace=PATIENCE)

    def close(self) -> None:
        """The conversation ends, and its jobs with it."""
        self._closing = True
        if self._clock is not None:
            self._clock.cancel()

    def _started(self, job: Job) -> None:
        self._tell(job)
        if self._clock is None or self._clock.done():
            self._clock = asyncio.create_task(self._tick())

    def _ended(self, job: Job) -> None:
        if self._closing:
            job.note = job.note or "ended with the conversation"
        self._tell(job)
        if not job.told:
            self.desk.news.append(_words(job))

    async def _tick(self) -> None:
        while running := [job for job in self.processes.jobs.values() if job.process.running]:
            for job in running:
                self._tell(job)
            await asyncio.sleep(TICK)

    def _tell(self, job: Job) -> None:
        code = None if job.process.running else job.process.code
        self.desk.emit(
            JobChanged(
                job=job.id, command=job.command, state=_state(job), seconds=job.seconds, code=code, note=job.note
            )
        )


def _state(job: Job) -> JobState:
    if job.process.running:
        return "running"
    if job.process.ended != "exited":
        return "stopped"
    return "failed" if job.process.code else "done"


def _words(job: Job) -> str:
    """For the model, which may have gone on to something else since it started the job."""
    how = job.note or job.state
    text = f"A background job has ended. {job.id}: {how}, after {job.seconds:.1f} s. Command: {job.command[:200]}"
    last = job.process.output.text.strip()[-LAST_OUTPUT:]
    return f"{text}\nThe end of its output:\n{last}" if last else f"{text}\nIt printed nothing."

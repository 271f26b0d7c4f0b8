"""Look after background commands: what they printed since, whether they still run, and an end to them."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from vivace.agent.tools.base import Context, Tool, ToolResult
from vivace.agent.tools.clip import head_and_tail
from vivace.agent.tools.process import PATIENCE
from vivace.agent.tools.processes import Job
from vivace.errors import UsageError

MAX_WAIT = 600.0


class JobsArguments(Struct, forbid_unknown_fields=True):
    do: Annotated[Literal["list", "poll", "wait", "kill"], Meta(description="poll: what is new.")] = "list"
    job: Annotated[str, Meta(description="Such as job-1.")] = ""
    seconds: Annotated[float, Meta(description="The longest that wait waits.", gt=0, le=MAX_WAIT)] = 30.0


class Jobs(Tool[JobsArguments]):
    """Jobs belong to the conversation: they outlive a turn and an interruption, and end with it."""

    name = "jobs"
    description = "List background commands, poll their new output, wait for one, or kill it."
    arguments = JobsArguments

    async def run(self, arguments: JobsArguments, context: Context) -> ToolResult:
        if arguments.do == "list":
            jobs = context.processes.jobs.values()
            text = "\n".join(f"{job.id}: {job.state}: {_short(job)}" for job in jobs) or "no jobs"
            return ToolResult(text, data={"jobs": [_data(job) for job in jobs]})
        if not arguments.job:
            raise UsageError(f"{arguments.do} needs a job", code="bad_arguments", param="job")
        job = context.processes.job(arguments.job)
        job.told = True  # by the answer to this
        try:
            if arguments.do == "wait":
                await job.process.wait(arguments.seconds)
            elif arguments.do == "kill":
                await job.process.stop(grace=PATIENCE)
        finally:
            job.told = not job.process.running
        text = job.process.output.take().rstrip("\n")
        body = head_and_tail(text, context.budget - 60, context.count) if text else "(nothing new)"
        return ToolResult(f"[{job.id}: {job.state}: {_short(job)}]\n{body}", data=_data(job))


def _short(job: Job) -> str:
    line = job.command.split("\n", 1)[0]
    return line if len(line) <= 80 else line[:77] + "..."


def _data(job: Job) -> dict[str, object]:
    return {"job": job.id, "command": job.command, "state": job.state, "code": job.process.code, "pid": job.process.pid}

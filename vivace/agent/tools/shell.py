"""Run a shell command: approved as parsed, kept in the sandbox, ended as a group, answered by its two ends."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from vivace.agent.approvals.actions import Action, RunCommand
from vivace.agent.tools.base import Context, Tool, ToolResult
from vivace.agent.tools.clip import head_and_tail
from vivace.agent.tools.output import Output
from vivace.agent.tools.paths import existing, shown
from vivace.agent.tools.process import Process
from vivace.errors import UsageError

SECONDS = 120.0
MAX_SECONDS = 3600.0


class ShellArguments(Struct, forbid_unknown_fields=True):
    command: Annotated[str, Meta(description="Bash command. It gets no input; nothing of it may wait for a key.")]
    folder: Annotated[str, Meta(description="Where it runs, relative to the workspace.")] = "."
    timeout: Annotated[float, Meta(description="Seconds after which it is ended.", gt=0, le=MAX_SECONDS)] = SECONDS
    background: Annotated[bool, Meta(description="Start it as a job and go on; for servers and long builds.")] = False
    network: Annotated[bool, Meta(description="It needs the network.")] = False


class Shell(Tool[ShellArguments]):
    """A new shell each time: ``cd`` and variables do not carry over. In the sandbox the network is off unless asked
    for, which the user has to approve."""

    name = "shell"
    description = "Run a bash command in the workspace."
    arguments = ShellArguments
    changes = True

    def __init__(self) -> None:
        self.program = shutil.which("bash") or "/bin/sh"

    def action(self, arguments: ShellArguments, context: Context) -> Action:
        if not arguments.command.strip():
            raise UsageError("the command is empty", code="empty_command", param="command")
        return RunCommand(
            arguments.command,
            cwd=shown(context.root, _folder(arguments, context)),
            sandboxed=context.sandbox.holds,
            network=arguments.network,
        )

    async def run(self, arguments: ShellArguments, context: Context) -> ToolResult:
        if "\0" in arguments.command:
            raise UsageError("the command holds a zero byte", code="bad_command", param="command")
        folder = _folder(arguments, context)
        policy = msgspec.structs.replace(context.policy, network=context.policy.network or arguments.network)
        argv = context.sandbox.wrap([self.program, "-c", arguments.command], policy, folder)
        if arguments.background:
            job = await context.processes.start(argv, folder, arguments.command, Output(context.on_output))
            text = f"{job.id} runs: {arguments.command}\nLook after it with the jobs tool."
            return ToolResult(text, data={"job": job.id, "pid": job.process.pid})
        process = await context.processes.run(argv, folder, arguments.timeout, Output(context.on_output))
        return ToolResult(
            answer(process, arguments.timeout, context),
            ok=process.ended == "exited" and process.code == 0,
            data={
                "code": process.code,
                "ended": process.ended,
                "seconds": round(process.seconds, 3),
                "sandbox": context.sandbox.name,
                "leftover": process.leftover,
            },
        )


def answer(process: Process, timeout: float, context: Context) -> str:
    """How it ended, then what it printed; head and tail where it was much."""
    head = {
        "exited": f"exit code {process.code}",
        "timeout": f"ended after {timeout:g} s: it was still running",
        "interrupted": "interrupted by the user",
        None: "running",
    }[process.ended]
    if process.ended == "exited" and process.code is not None and process.code < 0:
        head = f"killed by signal {-process.code}"
    notes = [head, f"{process.seconds:.1f} s"] if process.seconds >= 0.1 else [head]
    if process.leftover:
        notes.append("processes that it left in the background were ended; use background for those")
    text = process.output.text.rstrip("\n")
    body = head_and_tail(text, context.budget - 60, context.count) if text else "(no output)"
    return f"[{'; '.join(notes)}]\n{body}"


def _folder(arguments: ShellArguments, context: Context) -> Path:
    folder = existing(context.root, arguments.folder, param="folder")
    if not folder.is_dir():
        raise UsageError(f"{arguments.folder}: is not a folder", code="not_a_folder", param="folder")
    return folder

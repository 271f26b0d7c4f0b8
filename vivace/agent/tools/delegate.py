"""Hand work to a background worker; who that is, and what it may use, is for the caller to say."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from vivace.agent.tools.base import Assignment, Context, Tool, ToolResult
from vivace.agent.tools.clip import head_and_tail
from vivace.agent.tools.paths import existing, shown
from vivace.errors import UsageError


class DelegateArguments(Struct, forbid_unknown_fields=True):
    task: Annotated[str, Meta(description="All that the worker needs to know: it does not see this conversation.")]
    paths: Annotated[list[str], Meta(description="Files that it should look at first.")] = []
    role: Annotated[str, Meta(description="A role with a model of its own, if one is set up.")] = ""


class Delegate(Tool[DelegateArguments]):
    """Gives back what the worker says at once: an id, or a result."""

    name = "delegate"
    description = "Give a task that takes long to a background worker with a copy of the workspace."
    arguments = DelegateArguments

    async def run(self, arguments: DelegateArguments, context: Context) -> ToolResult:
        if not arguments.task.strip():
            raise UsageError("the task is empty", code="empty_task", param="task")
        paths = tuple(shown(context.root, existing(context.root, path, param="paths")) for path in arguments.paths)
        reply = await context.delegate(Assignment(arguments.task, paths, arguments.role))
        return ToolResult(head_and_tail(reply, context.budget, context.count), data={"task": arguments.task})

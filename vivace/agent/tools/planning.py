"""The plan: a short list of steps that the user sees, replaced as a whole each time."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from vivace.agent.tools.base import Context, Tool, ToolResult
from vivace.errors import UsageError

State = Literal["pending", "active", "done", "dropped"]
MARKS: dict[State, str] = {"pending": "[ ]", "active": "[>]", "done": "[x]", "dropped": "[-]"}


class Step(Struct, forbid_unknown_fields=True):
    step: Annotated[str, Meta(description="A few words.")]
    state: State = "pending"


class PlanArguments(Struct, forbid_unknown_fields=True):
    steps: Annotated[list[Step], Meta(min_length=1, max_length=30)]


class Plan(Tool[PlanArguments]):
    """At most one step is active."""

    name = "plan"
    description = "Show the user your steps and their states. Send the whole list each time one changes."
    arguments = PlanArguments

    async def run(self, arguments: PlanArguments, context: Context) -> ToolResult:
        if sum(step.state == "active" for step in arguments.steps) > 1:
            raise UsageError("more than one step is active", code="bad_plan", param="steps")
        steps: list[dict[str, str]] = msgspec.to_builtins(arguments.steps)
        context.on_plan(steps)
        done = sum(step.state in ("done", "dropped") for step in arguments.steps)
        lines = [f"{MARKS[step.state]} {step.step}" for step in arguments.steps]
        text = "\n".join([f"plan: {done} of {len(lines)} done", *lines])
        return ToolResult(text, data={"steps": steps})

"""Look after the background workers: how far they are, what they made, and an end to them."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Protocol

from msgspec import Meta, Struct

from vivace.agent.tools.base import Context, Tool, ToolResult
from vivace.agent.tools.clip import head_and_tail
from vivace.errors import UsageError

MAX_WAIT = 600.0


class WorkersArguments(Struct, forbid_unknown_fields=True):
    do: Annotated[Literal["list", "wait", "diff", "stop"], Meta(description="diff: what it would change.")] = "list"
    worker: Annotated[str, Meta(description="Such as worker-1.")] = ""
    seconds: Annotated[float, Meta(description="The longest that wait waits.", gt=0, le=MAX_WAIT)] = 60.0


class Watched(Protocol):
    """The workers of a conversation. Raises :class:`UsageError` for one that is not there."""

    def told(self, worker: str = "") -> str:
        """How one stands, or all of them, in words."""
        ...

    async def wait_for(self, worker: str, seconds: float) -> None: ...

    async def preview(self, worker: str) -> str: ...

    async def stop(self, worker: str) -> None: ...


class Workers(Tool[WorkersArguments]):
    """Only the user accepts a result."""

    name = "workers"
    description = "List background workers, wait for one, see the diff that it offers, or stop it."
    arguments = WorkersArguments

    def __init__(self, crew: Watched) -> None:
        self.crew = crew

    async def run(self, arguments: WorkersArguments, context: Context) -> ToolResult:
        name = arguments.worker
        data: dict[str, Any] = {"worker": name} if name else {}
        if arguments.do == "list":
            return ToolResult(self.crew.told(name), data=data)
        if not name:
            raise UsageError(f"{arguments.do} needs a worker", code="bad_arguments", param="worker")
        if arguments.do == "diff":
            text = await self.crew.preview(name)
            return ToolResult(head_and_tail(text, context.budget, context.count) or "(no change)", data=data)
        if arguments.do == "wait":
            await self.crew.wait_for(name, arguments.seconds)
        else:
            await self.crew.stop(name)
        return ToolResult(self.crew.told(name), data=data)

"""A context around a folder, as a conversation has one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from vivace.agent.approvals.approvals import Approvals
from vivace.agent.sandbox.policy import Policy
from vivace.agent.tools.base import Context, ToolResult
from vivace.agent.tools.toolbox import Toolbox, standard_tools

T = TypeVar("T")


def context_for(root: Path, **changes: Any) -> Context:
    root = root.resolve()
    return Context(root, Approvals(root, "full"), Policy(root), **changes)


def call(context: Context, name: str, **arguments: Any) -> ToolResult:
    """One call through the whole way."""
    return asyncio.run(Toolbox(standard_tools()).call(name, arguments, context))


def within(context: Context, work: Callable[[Callable[..., Awaitable[ToolResult]]], Awaitable[T]]) -> T:
    """Several calls in one loop; everything that they started is ended."""

    async def run() -> T:
        box = Toolbox(standard_tools())

        def make(name: str, **arguments: Any) -> Awaitable[ToolResult]:
            return box.call(name, arguments, context)

        try:
            return await work(make)
        finally:
            await context.processes.close()

    return asyncio.run(run())

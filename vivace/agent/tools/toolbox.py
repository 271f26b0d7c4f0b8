"""All tools of a conversation by name, and the one way in which a call is made."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from vivace.agent.tools.ask import Ask
from vivace.agent.tools.base import Context, Tool, ToolResult
from vivace.agent.tools.delegate import Delegate
from vivace.agent.tools.edit import Edit
from vivace.agent.tools.jobs import Jobs
from vivace.agent.tools.listing import List
from vivace.agent.tools.planning import Plan
from vivace.agent.tools.read import Read
from vivace.agent.tools.search import Search
from vivace.agent.tools.shell import Shell
from vivace.agent.tools.write import Write
from vivace.errors import UsageError, VivaceError, did_you_mean


def standard_tools() -> list[Tool[Any]]:
    """Every tool that comes with vivace."""
    return [Read(), Search(), List(), Edit(), Write(), Shell(), Jobs(), Ask(), Plan(), Delegate()]


class Toolbox:
    """Tools by name. A call is given whole: what a stream was cut in the middle of never comes here."""

    def __init__(self, tools: Iterable[Tool[Any]]) -> None:
        self.tools: dict[str, Tool[Any]] = {}
        for tool in tools:
            if tool.name in self.tools:
                raise UsageError(f"two tools are called {tool.name!r}", code="duplicate_tool")
            self.tools[tool.name] = tool

    async def call(self, name: str, arguments: str | Mapping[str, Any], context: Context) -> ToolResult:
        """Check, approve, guard, run. Whatever goes wrong is a result that says so; only a cancellation gets out."""
        try:
            tool = self.find(name)
            typed = tool.check(_mapping(name, arguments))
            action = tool.action(typed, context)
            if action is not None:
                await context.approvals.admit(action, context.consult)
            if tool.changes:
                await context.before_change(f"{name} {_brief(typed)}".strip())
            return await tool.run(typed, context)
        except VivaceError as error:
            return ToolResult(f"error: {error}", ok=False, data={"code": error.code})

    def find(self, name: str) -> Tool[Any]:
        """The tool of that name. Raises :class:`UsageError` (``unknown_tool``)."""
        if name not in self.tools:
            raise UsageError(
                f"there is no tool {name!r}",
                hint=did_you_mean(name, list(self.tools)),
                code="unknown_tool",
                param="name",
            )
        return self.tools[name]

    def describe(self) -> list[dict[str, Any]]:
        """The tools as function definitions of OpenAI's Responses API."""
        return [
            {
                "type": "function",
                "name": t.name,
                "description": t.description,
                "parameters": t.parameters,
                "strict": False,
            }
            for t in self.tools.values()
        ]


def _mapping(name: str, arguments: str | Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(arguments, str):
        return arguments
    try:
        found = json.loads(arguments or "{}")
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{name}: the arguments are no whole JSON object ({error})",
            hint="Nothing was done. Make the call again, whole.",
            code="bad_arguments",
            param=name,
        ) from None
    if not isinstance(found, dict):
        raise UsageError(f"{name}: the arguments are no JSON object", code="bad_arguments", param=name)
    return found


def _brief(arguments: object) -> str:
    for field in ("path", "command", "job", "task"):
        value = getattr(arguments, field, "")
        if isinstance(value, str) and value:
            return value.split("\n", 1)[0][:100]
    return ""

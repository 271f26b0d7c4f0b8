"""Tools of MCP servers among our own: named after their server, approved one by one, cut to the budget."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from vivace.agent.approvals.actions import Action, CallTool, Consult
from vivace.agent.approvals.approvals import Approvals
from vivace.agent.mcp.config import ServerConfig
from vivace.agent.mcp.server import RemoteTool, Server
from vivace.agent.tools.base import Context, Tool, ToolResult
from vivace.agent.tools.clip import head_and_tail
from vivace.errors import VivaceError

SEPARATOR = "__"
MAX_NAME = 64
"""Of a function name, in OpenAI's and Anthropic's APIs."""


class RemoteArguments(Struct, frozen=True):
    """Whatever the server's schema says; the server checks it."""

    raw: dict[str, Any]


class McpTool(Tool[RemoteArguments]):
    """One tool of a server, as ``server__tool``."""

    arguments = RemoteArguments

    def __init__(self, server: Server, remote: RemoteTool, name: str) -> None:
        self.server = server
        self.remote = remote
        self.name = name
        self.description = remote.description.strip() or f"{remote.name} of {server.config.name}"
        # What a server does to the workspace it does not say; that it only reads is a claim.
        self.changes = True

    @property
    def parameters(self) -> dict[str, Any]:
        return self.remote.schema or {"type": "object", "properties": {}}

    def check(self, raw: Mapping[str, Any]) -> RemoteArguments:
        return RemoteArguments(dict(raw))

    def action(self, arguments: RemoteArguments, context: Context) -> Action:
        return CallTool(self.server.config.name, self.remote.name, self.remote.read_only)

    async def run(self, arguments: RemoteArguments, context: Context) -> ToolResult:
        reply = await self.server.call(self.remote.name, arguments.raw)
        text = head_and_tail(reply.text, context.budget, context.count) or "(no content)"
        return ToolResult(text, ok=reply.ok, data={"server": self.server.config.name, "structured": reply.structured})


class Servers:
    """All servers of a conversation; ``faults`` says which could not be had, and why."""

    def __init__(self, configs: Mapping[str, ServerConfig]) -> None:
        self.servers = {name: Server(config) for name, config in configs.items() if config.active}
        self.faults: dict[str, str] = {}

    async def start(self, approvals: Approvals, consult: Consult) -> list[McpTool]:
        """Start all of them at once. One that fails is a fault, and no reason for the others to wait.

        A server that comes with the repository is started only with the user's word, given for its very command.
        """
        for server in self.servers.values():
            if not server.config.trusted:
                start = CallTool(server.config.name, f"start:{server.config.fingerprint}:{server.config.shown}")
                try:
                    await approvals.admit(start, consult)
                except VivaceError as error:
                    self.faults[server.config.name] = str(error)
        wanted = [server for name, server in self.servers.items() if name not in self.faults]
        results = await asyncio.gather(*(server.start() for server in wanted), return_exceptions=True)
        for server, result in zip(wanted, results, strict=True):
            if isinstance(result, VivaceError):
                self.faults[server.config.name] = str(result)
            elif isinstance(result, BaseException):
                raise result
        return self.tools()

    def tools(self) -> list[McpTool]:
        """The tools of the servers that run."""
        taken: set[str] = set()
        found = []
        for server in self.servers.values():
            for remote in server.tools if server.state == "running" else []:
                name = tool_name(server.config.name, remote.name, taken)
                taken.add(name)
                found.append(McpTool(server, remote, name))
        return found

    async def close(self) -> None:
        """End all of them."""
        await asyncio.gather(*(server.close() for server in self.servers.values()))


def tool_name(server: str, tool: str, taken: set[str]) -> str:
    """A function name that every API takes, and that no other tool has."""
    name = re.sub(r"[^A-Za-z0-9_-]", "_", f"{server}{SEPARATOR}{tool}")[:MAX_NAME]
    number = 2
    while name in taken:
        name = f"{name[: MAX_NAME - 3]}_{number}"
        number += 1
    return name

"""The MCP servers that an editor brings to a session, as our own configuration of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from acp.schema import HttpMcpServer, McpServerStdio

from vivace.agent.mcp.config import ServerConfig

ORIGIN = "the editor"


def servers_of(given: Sequence[Any] | None, root: Path) -> tuple[tuple[ServerConfig, ...], list[str]]:
    """The servers, and in words which cannot be had. The user set them up in the editor: they need no second yes."""
    found: dict[str, ServerConfig] = {}
    faults = []
    for server in given or ():
        match server:
            case _ if server.name in found:
                faults.append(f"The editor brings two MCP servers called {server.name}; the first is used.")
            case McpServerStdio(name=name, command=command, args=args, env=env):
                values = {variable.name: variable.value for variable in env}
                found[name] = ServerConfig(name, command, tuple(args), values, cwd=str(root), origin=ORIGIN)
            case HttpMcpServer(name=name, url=url, headers=headers):
                values = {header.name: header.value for header in headers}
                found[name] = ServerConfig(name, url=url, headers=values, origin=ORIGIN)
            case _:
                kind = getattr(server, "type", type(server).__name__)
                faults.append(f"The MCP server {server.name} cannot be used: its transport ({kind}) is not supported.")
    return tuple(found.values()), faults

"""A real MCP server for the tests, over standard input and output, or HTTP when a port is given."""

from __future__ import annotations

import os
import sys
import time

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations

server = MCPServer("small", instructions="Add with add.")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def long(lines: int) -> str:
    """Many lines."""
    return "\n".join(f"line {n}" for n in range(lines))


@server.tool()
def fail(what: str) -> str:
    """Fail as a tool does."""
    raise ToolError(what)


@server.tool()
async def slow(seconds: float) -> str:
    """Take time."""
    import anyio

    await anyio.sleep(seconds)
    return "done"


@server.tool()
def crash() -> str:
    """End the server."""
    print("the disk is on fire", file=sys.stderr, flush=True)
    os._exit(3)


@server.tool()
def environment(name: str) -> str:
    """A variable of the server's environment."""
    return os.environ.get(name, "(not set)")


if __name__ == "__main__":
    if sys.argv[1:2] == ["hang"]:
        time.sleep(60)
    if sys.argv[1:2] == ["broken"]:
        sys.exit("no configuration found")
    if len(sys.argv) > 2:
        server.run("streamable-http", port=int(sys.argv[2]))
    else:
        server.run("stdio")

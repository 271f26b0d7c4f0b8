"""One MCP server: started, asked, and honest about its end.

The official client keeps cancel scopes that have to be left by the task that entered them, so each connection lives in
a task of its own, and calls come to it from any other. Importing the client takes over half a second; that happens
when the first server is started.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct

from vivace.agent.mcp.config import ServerConfig
from vivace.errors import VivaceError

if TYPE_CHECKING:
    from mcp import Client

MAX_TOOLS = 500
"""Tools of one server that are listed; more would fill any window."""
MAX_STARTS = 4
"""How often one server is started in a conversation, crashes included."""

State = Literal["stopped", "starting", "running", "crashed"]


class RemoteTool(Struct, frozen=True):
    """A tool as the server describes it. ``read_only`` is a claim, not a fact."""

    name: str
    description: str
    schema: dict[str, Any]
    read_only: bool = False


class Reply(Struct, frozen=True):
    """What a call came back with: text for the model, other contents named in it."""

    text: str
    ok: bool
    structured: Any = None


class Server:
    """A connection by ``config``; ``state`` and ``fault`` say how it is."""

    def __init__(self, config: ServerConfig) -> None:
        self.config = config
        self.state: State = "stopped"
        self.fault = ""
        self.tools: list[RemoteTool] = []
        self.instructions = ""
        self._client: Client | None = None
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._starts = 0
        self._lock = asyncio.Lock()
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 (closed in close)

    async def start(self) -> None:
        """Connect and list the tools. Raises :class:`VivaceError` (``mcp_failed``) with the server's last words."""
        async with self._lock:
            if self.state == "running":
                return
            if self._starts >= MAX_STARTS:
                raise self._failure(f"was started {MAX_STARTS} times and did not last")
            self._starts += 1
            self.state, self.fault = "starting", ""
            self._closing = asyncio.Event()
            ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._task = asyncio.create_task(self._own(ready))
            try:
                await asyncio.wait_for(asyncio.shield(ready), self.config.startup_timeout_sec)
            except TimeoutError:
                await self._end()
                self.state = "crashed"
                raise self._failure(f"did not answer within {self.config.startup_timeout_sec:g} s") from None
            except BaseException:
                await self._end()
                self.state = "crashed"
                raise

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> Reply:
        """Call a tool; a server that crashed before is started anew first.

        Raises :class:`VivaceError`: ``mcp_crashed`` when it ends meanwhile, ``mcp_timeout``, ``mcp_failed``.
        """
        await self.start()
        client = self._client
        assert client is not None
        from mcp import MCPError
        from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT

        try:
            result = await client.call_tool(tool, dict(arguments), read_timeout_seconds=self.config.tool_timeout_sec)
        except MCPError as error:
            if error.code == REQUEST_TIMEOUT:
                raise VivaceError(
                    f"{self.config.name}: {tool} did not answer within {self.config.tool_timeout_sec:g} s",
                    hint="It may still be at work; the server was told to stop.",
                    code="mcp_timeout",
                ) from None
            if error.code == CONNECTION_CLOSED:
                await self._end()
                self.state = "crashed"
                raise self._failure("ended while it worked", code="mcp_crashed") from None
            raise VivaceError(f"{self.config.name}: {tool}: {error.message}", code="mcp_failed") from None
        except OSError as error:
            raise VivaceError(f"{self.config.name}: {tool}: {error}", code="mcp_failed") from None
        return _reply(result)

    async def close(self) -> None:
        """Disconnect, and end a server that was started."""
        await self._end()
        self.state = "stopped"
        self._errors.close()

    async def _own(self, ready: asyncio.Future[None]) -> None:
        """Holds the connection from its start to its end."""
        from mcp import Client

        try:
            async with contextlib.AsyncExitStack() as stack:
                client = await stack.enter_async_context(
                    Client(await self._transport(stack), client_info=_client_info())
                )
                self.tools = await _tools(client, self.config)
                self.instructions = client.instructions or ""
                self._client = client
                self.state = "running"
                ready.set_result(None)
                await self._closing.wait()
        except (Exception, asyncio.CancelledError) as error:
            self.state = "crashed"
            self.fault = _innermost(error)
            if not ready.done():
                ready.set_exception(self._failure(f"could not be started ({self.fault})"))
                ready.exception()  # whoever waits gets it again; nobody has to
        finally:
            self._client = None

    async def _transport(self, stack: contextlib.AsyncExitStack) -> Any:
        import httpx2
        from mcp import StdioServerParameters, stdio_client
        from mcp.client.streamable_http import streamable_http_client

        config = self.config
        if config.url:
            # A server may keep an answer's stream open for as long as the tool takes.
            timeout = httpx2.Timeout(30, read=config.tool_timeout_sec + 30)
            http = await stack.enter_async_context(httpx2.AsyncClient(headers=config.headers, timeout=timeout))
            return streamable_http_client(config.url, http_client=http)
        parameters = StdioServerParameters(
            command=config.command, args=list(config.args), env=dict(config.env), cwd=config.cwd or None
        )
        return stdio_client(parameters, errlog=self._errors)

    async def _end(self) -> None:
        self._closing.set()
        if self._task is not None:
            if self._client is None:  # it is still connecting, and would go on to wait
                self._task.cancel()
            _, pending = await asyncio.wait([self._task], timeout=6)
            for task in pending:
                task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def _failure(self, what: str, code: str = "mcp_failed") -> VivaceError:
        """An error with the end of what the server wrote to its error output."""
        words = self._last_words()
        hint = f"Its last words:\n{words}" if words else ""
        return VivaceError(f"MCP server {self.config.name} ({self.config.shown}) {what}", hint=hint, code=code)

    def _last_words(self) -> str:
        if self._errors.closed:
            return ""
        self._errors.seek(0)
        return "\n".join(self._errors.read()[-4000:].strip().split("\n")[-8:])


async def _tools(client: Client, config: ServerConfig) -> list[RemoteTool]:
    found: list[RemoteTool] = []
    if client.server_capabilities.tools is None:
        return found
    cursor: str | None = None
    while len(found) < MAX_TOOLS:
        page = await client.list_tools(cursor=cursor)
        for tool in page.tools:
            if config.offers(tool.name):
                hints = tool.annotations
                read_only = bool(hints and hints.read_only_hint)
                found.append(RemoteTool(tool.name, tool.description or "", dict(tool.input_schema), read_only))
        cursor = page.next_cursor
        if cursor is None:
            break
    return found


def _reply(result: Any) -> Reply:
    parts = []
    for content in result.content:
        if content.type == "text":
            parts.append(content.text)
        elif content.type in ("image", "audio"):
            parts.append(f"[{content.type}, {content.mime_type}, {len(content.data) * 3 // 4:,} bytes: not shown]")
        elif content.type == "resource" and getattr(content.resource, "text", None) is not None:
            parts.append(content.resource.text)
        else:
            where = getattr(content, "uri", "") or getattr(getattr(content, "resource", None), "uri", "")
            parts.append(f"[{content.type} {where}: not shown]")
    structured = result.structured_content
    if not parts and structured is not None:
        parts.append(msgspec.json.encode(structured).decode())
    return Reply("\n".join(parts), not result.is_error, structured)


def _client_info() -> Any:
    from importlib.metadata import version

    from mcp_types import Implementation

    return Implementation(name="vivace", version=version("vivace"))


def _innermost(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return str(error) or type(error).__name__

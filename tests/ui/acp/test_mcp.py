"""MCP servers that an editor brings: real servers, a real connection, a real agent on a model that acts by script."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from acp.client.connection import ClientSideConnection
from acp.helpers import text_block
from acp.schema import EnvVariable, HttpHeader, HttpMcpServer, McpServerStdio, SseMcpServer

from tests.agent.mcp.test_mcp import SERVER, serving
from tests.agent.turns.stage import ActingBackend, Seen, call, options, say
from tests.ui.acp.test_server import Editor, connected
from vivace.backends.paced_script import Step
from vivace.composing import compose_gateway
from vivace.settings import Settings
from vivace.ui.acp.mcp_servers import servers_of
from vivace.ui.acp.server import Server
from vivace.ui.agents import Agents
from vivace.ui.contract import Choice

Body = Callable[[ClientSideConnection, Editor, ActingBackend], Awaitable[None]]


def small(*args: str, name: str = "small", **env: str) -> McpServerStdio:
    variables = [EnvVariable(name=key, value=value) for key, value in env.items()]
    return McpServerStdio(name=name, command=sys.executable, args=[SERVER, *args], env=variables)


def serve(folder: Path, act: Callable[[Seen], list[Step]], body: Body) -> None:
    (folder / "work").mkdir()

    async def main() -> None:
        backend = ActingBackend(act)
        settings = Settings(state_dir=folder / "service", cache_dir=folder / "cache")
        gateway = compose_gateway(settings, backends={"acting": backend}, catalogue=False, database=False)
        await gateway.begin()
        house = Agents(lambda: gateway, options(folder, mcp=True))
        server = Server(house, Choice(root=folder / "work", model="acting", mode="deep", approvals="full"))
        async with connected(server, 60) as (client, editor):
            await body(client, editor, backend)

    asyncio.run(main())


def tools(seen: Seen) -> list[Step]:
    if "small__add" not in seen.tools:
        return [say("There is no such tool.")]
    steps = [call("small__add", a=2, b=3), Step(call="small__environment", arguments={"name": "COLOUR"})]
    done = len(seen.outputs) % 2 if not seen.user else 0
    return [say("Added.")] if not seen.user and not done else [steps[done]]


def children() -> set[int]:
    """Processes below this one that run the server."""
    found = set()
    for entry in Path("/proc").iterdir():
        try:
            text = (entry / "cmdline").read_bytes().decode()
            parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        if SERVER in text and parent == os.getpid():
            found.add(int(entry.name))
    return found


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="processes are looked up in /proc")
def test_servers_of_a_session_live_and_end_with_it(tmp_path: Path) -> None:
    async def body(client: ClientSideConnection, editor: Editor, backend: ActingBackend) -> None:
        cwd = str(tmp_path / "work")
        bare = await client.new_session(cwd=cwd, mcp_servers=[])
        assert not children()
        session = await client.new_session(cwd=cwd, mcp_servers=[small(COLOUR="green")])
        assert len(children()) == 1
        response = await client.prompt(session_id=session.session_id, prompt=[text_block("add 2 and 3")])
        assert response.stop_reason == "end_turn" and editor.said().endswith("Added.")
        assert backend.actor.seen[-1].outputs == ["5", "green"]
        await client.prompt(session_id=bare.session_id, prompt=[text_block("add 2 and 3")])
        assert editor.said().endswith("There is no such tool.")
        await client.close_session(session_id=session.session_id)
        assert not children()
        # Loaded again it has what the editor brings now.
        loaded = await client.load_session(cwd=cwd, session_id=session.session_id, mcp_servers=[small(COLOUR="red")])
        assert loaded is not None and len(children()) == 1
        await client.prompt(session_id=session.session_id, prompt=[text_block("once more")])
        assert backend.actor.seen[-1].outputs[-1] == "red"

    serve(tmp_path, tools, body)
    assert not children()


def test_a_server_over_http(tmp_path: Path) -> None:
    async def body(client: ClientSideConnection, editor: Editor, backend: ActingBackend) -> None:
        brought = HttpMcpServer(name="small", type="http", url=url, headers=[HttpHeader(name="X-A", value="b")])
        session = await client.new_session(cwd=str(tmp_path / "work"), mcp_servers=[brought])
        await client.prompt(session_id=session.session_id, prompt=[text_block("add")])
        assert backend.actor.seen[-1].outputs == ["5", "(not set)"]

    with serving() as (url, _):
        serve(tmp_path, tools, body)


def test_a_server_that_cannot_be_had_is_told_and_the_session_is_there(tmp_path: Path) -> None:
    async def body(client: ClientSideConnection, editor: Editor, backend: ActingBackend) -> None:
        brought: list[Any] = [
            small("broken", name="broken"),
            McpServerStdio(name="absent", command=str(tmp_path / "nothing"), args=[], env=[]),
            SseMcpServer(name="old", type="sse", url="http://127.0.0.1:9/", headers=[]),
            small(),
            small(name="small"),
        ]
        session = await client.new_session(cwd=str(tmp_path / "work"), mcp_servers=brought)
        await client.prompt(session_id=session.session_id, prompt=[text_block("add")])
        said = editor.said()
        assert "The MCP server broken cannot be used" in said and "no configuration found" in said
        assert "The MCP server absent cannot be used" in said
        assert "The MCP server old cannot be used: its transport (sse) is not supported" in said
        assert "brings two MCP servers called small" in said
        assert backend.actor.seen[-1].outputs[0] == "5"

    serve(tmp_path, tools, body)


def test_what_an_editor_brings_needs_no_second_yes(tmp_path: Path) -> None:
    (found,), faults = servers_of([small("x", A="1")], tmp_path)
    assert found.trusted and found.env == {"A": "1"} and found.args == (SERVER, "x") and found.cwd == str(tmp_path)
    assert not faults and servers_of(None, tmp_path) == ((), [])


def test_the_session_knows_what_it_can_take(tmp_path: Path) -> None:
    async def body(client: ClientSideConnection, editor: Editor, backend: ActingBackend) -> None:
        answer: Any = await client.initialize(protocol_version=1)
        assert answer.agent_capabilities.mcp_capabilities.http is True
        assert not answer.agent_capabilities.mcp_capabilities.sse

    serve(tmp_path, tools, body)

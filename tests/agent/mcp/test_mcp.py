"""MCP with real servers: over pipes and over HTTP, when all is well and when it is not."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from tests.agent.tools.bench import context_for
from tests.agent.turns.stage import stage
from vivace.agent.approvals.actions import Action, Answer, CallTool, Decision, nobody
from vivace.agent.approvals.approvals import Approvals
from vivace.agent.mcp.config import Found, ServerConfig, load_servers
from vivace.agent.mcp.tools import McpTool, Servers, tool_name
from vivace.agent.tools.toolbox import Toolbox, standard_tools
from vivace.agent.turns.events import Noted
from vivace.errors import VivaceError

SERVER = str(Path(__file__).with_name("small_server.py"))
T = TypeVar("T")


def config(*args: str, **changes: object) -> ServerConfig:
    return ServerConfig("small", sys.executable, (SERVER, *args), **changes)  # type: ignore[arg-type]


def using(one: ServerConfig, work: Callable[[Servers, dict[str, McpTool]], Awaitable[T]]) -> T:
    async def run() -> T:
        servers = Servers({one.name: one})
        try:
            tools = await servers.start(Approvals(Path.cwd(), "full"), nobody)
            return await work(servers, {tool.remote.name: tool for tool in tools})
        finally:
            await servers.close()

    return asyncio.run(run())


@contextlib.contextmanager
def serving() -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, SERVER, "http", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp", process
    finally:
        process.terminate()
        process.wait()


async def exercise(servers: Servers, tools: dict[str, McpTool], context_root: Path) -> None:
    assert servers.faults == {} and set(tools) == {"add", "long", "fail", "slow", "crash", "environment"}
    assert tools["add"].name == "small__add" and tools["add"].remote.read_only and not tools["long"].remote.read_only
    assert tools["add"].parameters["properties"]["a"]["type"] == "integer"
    assert servers.servers["small"].instructions == "Add with add."
    box = Toolbox([*standard_tools(), *tools.values()])
    context = context_for(context_root, budget=200)
    assert (await box.call("small__add", {"a": 2, "b": 3}, context)).text == "5"
    long = await box.call("small__long", {"lines": 5000}, context)
    assert "lines left out" in long.text and long.text.endswith("line 4999") and context.count(long.text) <= 200
    failed = await box.call("small__fail", {"what": "no such ticket"}, context)
    assert not failed.ok and "no such ticket" in failed.text
    wrong = await box.call("small__add", {"a": "x"}, context)
    assert not wrong.ok
    answers = await asyncio.gather(*(box.call("small__slow", {"seconds": 0.2}, context) for _ in range(5)))
    assert [answer.text for answer in answers] == ["done"] * 5


def test_over_pipes(tmp_path: Path) -> None:
    using(config(), lambda servers, tools: exercise(servers, tools, tmp_path))


def test_over_http_and_when_the_server_goes_away(tmp_path: Path) -> None:
    with serving() as (url, process):

        async def work(servers: Servers, tools: dict[str, McpTool]) -> None:
            await exercise(servers, tools, tmp_path)
            process.kill()
            process.wait()
            with pytest.raises(VivaceError) as caught:
                await servers.servers["small"].call("add", {"a": 1, "b": 1})
            assert "small" in caught.value.message and caught.value.code.startswith("mcp_")

        using(ServerConfig("small", url=url, headers={"X-Test": "1"}), work)


def test_a_server_that_crashes_says_its_last_words_and_is_started_again(tmp_path: Path) -> None:
    async def work(servers: Servers, tools: dict[str, McpTool]) -> None:
        server = servers.servers["small"]
        for _ in range(3):
            with pytest.raises(VivaceError, match="ended while it worked") as caught:
                await server.call("crash", {})
            assert caught.value.code == "mcp_crashed" and "the disk is on fire" in caught.value.hint
            assert server.state == "crashed"
        assert (await server.call("add", {"a": 1, "b": 1})).text == "2"
        with pytest.raises(VivaceError):
            await server.call("crash", {})
        with pytest.raises(VivaceError, match="started 4 times"):
            await server.call("add", {"a": 1, "b": 1})

    using(config(), work)


def test_a_call_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    async def work(servers: Servers, tools: dict[str, McpTool]) -> None:
        server = servers.servers["small"]
        with pytest.raises(VivaceError, match="did not answer within") as caught:
            await server.call("slow", {"seconds": 30})
        assert caught.value.code == "mcp_timeout"
        assert (await server.call("add", {"a": 1, "b": 1})).text == "2"

    using(config(tool_timeout_sec=0.5), work)


@pytest.mark.parametrize(
    ("one", "says"),
    [
        (config("broken"), "no configuration found"),
        (config("hang", startup_timeout_sec=0.5), "did not answer within 0.5 s"),
        (ServerConfig("small", "/no/such/program"), "could not be started"),
        (ServerConfig("small", url="http://127.0.0.1:9/mcp"), "could not be started"),
    ],
)
def test_a_server_that_does_not_start_is_a_fault_with_its_reason(one: ServerConfig, says: str) -> None:
    async def work(servers: Servers, tools: dict[str, McpTool]) -> None:
        assert tools == {} and says in servers.faults["small"], servers.faults

    using(one, work)


def test_secrets_of_the_environment_are_not_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")

    async def work(servers: Servers, tools: dict[str, McpTool]) -> None:
        server = servers.servers["small"]
        assert (await server.call("environment", {"name": "OPENAI_API_KEY"})).text == "(not set)"
        assert (await server.call("environment", {"name": "MINE"})).text == "yes"

    using(config(env={"MINE": "yes"}), work)


def test_each_tool_is_approved_and_a_repository_starts_nothing_by_itself(tmp_path: Path) -> None:
    asked: list[Action] = []

    async def consult(action: Action, decision: Decision) -> Answer:
        asked.append(action)
        return Answer(allow=len(asked) > 1, scope="session")

    async def run() -> None:
        approvals = Approvals(tmp_path.resolve(), "auto")
        for expected in (0, 6):
            servers = Servers({"small": config(trusted=False)})
            try:
                assert len(await servers.start(approvals, consult)) == expected
                assert bool(servers.faults) == (expected == 0)
                if expected:
                    box = Toolbox(servers.tools())
                    context = context_for(tmp_path, consult=consult)
                    context.approvals = approvals
                    assert [(await box.call("small__add", {"a": 1, "b": n}, context)).text for n in (1, 2)] == [
                        "2",
                        "3",
                    ]
            finally:
                await servers.close()

    asyncio.run(run())
    assert [action.tool.split(":")[0] for action in asked if isinstance(action, CallTool)] == ["start", "start", "add"]


def test_files_of_other_agents_are_read(tmp_path: Path) -> None:
    work, user = tmp_path / "work", tmp_path / "user"
    (work / ".vivace").mkdir(parents=True)
    user.mkdir()
    assert load_servers(work, user, {}) == Found()
    (work / ".mcp.json").write_text(
        json.dumps(
            {
                "mcpServers": {
                    "a": {"type": "stdio", "command": "run", "args": ["${X}", "${Y:-two}"], "env": {"K": "v"}},
                    "b": {"type": "http", "url": "https://x/mcp", "headers": {"H": "${X}"}, "timeout": 5},
                }
            }
        )
    )
    (user / "mcp.toml").write_text(
        '[mcp_servers.b]\nurl = "http://y/mcp"\nbearer_token_env_var = "T"\ndisabled_tools = ["z"]\n'
    )
    servers = load_servers(work, user, {"X": "one", "T": "tok"}).servers
    assert (servers["a"].args, servers["a"].trusted, servers["b"].trusted) == (("one", "two"), False, True)
    assert servers["b"].headers == {"Authorization": "Bearer tok"} and not servers["b"].offers("z")
    (work / "mcp.toml").write_text('[mcp_servers.c]\ncommand = "x"\n')
    assert not load_servers(work, work, {"X": "one"}).servers["c"].trusted
    assert servers["a"].fingerprint != load_servers(work, user, {"X": "other", "T": "tok"}).servers["a"].fingerprint


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"mcpServers": {"a": {}}}', "a command or a url"),
        ('{"mcpServers": {"a": {"command": "${NOPE}"}}}', "NOPE is not set"),
        ('{"mcpServers": {"a": {"url": "http://x", "bearer_token_env_var": "NOPE"}}}', "NOPE is not set"),
        ('{"mcpServers": {"a": {"command": 3}}}', "Expected `str`"),
        ('{"mcpServers": {"a": {"type": "sse", "url": "http://x"}}}', "SSE"),
        ('{"mcpServers": {"a": 1}}', "no table"),
        ('{"mcpServers": []}', "no table"),
        ("{", ".mcp.json"),
        ("[" * 100_000, ".mcp.json"),
    ],
)
def test_a_file_or_a_server_that_is_wrong_is_a_fault_of_its_own(tmp_path: Path, text: str, says: str) -> None:
    work, user = tmp_path / "work", tmp_path / "user"
    (work / ".vivace").mkdir(parents=True)
    user.mkdir()
    (work / ".vivace" / "mcp.toml").write_text('[mcp_servers.b]\ncommand = "x"\n')
    (work / ".mcp.json").write_text(text)
    found = load_servers(work, user, {"T": "tok"})
    assert list(found.servers) == ["b"] and len(found.faults) == 1
    assert str(work / ".mcp.json") in found.faults[0] and says in found.faults[0]


def test_a_server_that_is_off_is_not_looked_at_and_the_users_own_word_counts(tmp_path: Path) -> None:
    work, user = tmp_path / "work", tmp_path / "user"
    work.mkdir()
    user.mkdir()
    off = {"off": {"disabled": True, "command": "${NOPE}"}, "sse": {"enabled": False, "type": "sse"}}
    (work / ".mcp.json").write_text(json.dumps({"mcpServers": {**off, "mine": {"command": "theirs"}}}))
    (user / "mcp.toml").write_text('[mcp_servers.mine]\ncommand = "${NOPE}"\n')
    found = load_servers(work, user, {})
    assert not any(server.active for server in found.servers.values()) and set(found.servers) == {"off", "sse"}
    assert len(found.faults) == 1 and "mcp.toml" in found.faults[0]


def test_a_conversation_begins_whatever_the_repository_says_of_servers(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    servers = {
        "unset": {"command": "x", "env": {"T": "${VIVACE_NO_SUCH_VARIABLE}"}},
        "old": {"type": "sse", "url": "http://127.0.0.1:9/sse"},
        "small": {"command": sys.executable, "args": [SERVER]},
    }
    (work / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))

    async def run(worker: bool) -> tuple[list[str], list[str]]:
        async with stage(tmp_path, lambda seen: [], mcp=True, worker=worker) as scene:
            assert scene.agent.desk is not None
            warnings = [event.text for event in scene.of(Noted) if "MCP" in event.text]
            assert all(event.level == "warning" for event in scene.of(Noted) if "MCP" in event.text)
            return warnings, list(scene.agent.desk.toolbox.tools)

    warnings, tools = asyncio.run(run(False))
    assert len(warnings) == 2 and "VIVACE_NO_SUCH_VARIABLE is not set" in warnings[0] and "SSE" in warnings[1]
    assert "small__add" in tools
    warnings, tools = asyncio.run(run(True))
    assert warnings == [] and not any("__" in tool for tool in tools)


def test_names_fit_every_api() -> None:
    taken = {"a__b"}
    assert tool_name("a", "b", taken) == "a__b_2"
    assert tool_name("my server", "get.x/y", set()) == "my_server__get_x_y"
    assert len(tool_name("s" * 80, "t", set())) == 64


def test_the_client_is_not_imported_before_a_server_is_started() -> None:
    code = "import sys, vivace.agent.mcp.tools; sys.exit('mcp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[3]).returncode == 0

"""opencode with both of its adapters, with the settings that the server prints.

It runs offline: without the internet it does without its list of providers, which the settings stand in for.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.clients.harness import Ran, Running, Server, client, environment, kinds, texts

pytestmark = pytest.mark.clients

Serve = Callable[..., Server]

ADAPTERS = {"chat": "@ai-sdk/openai-compatible", "responses": "@ai-sdk/openai"}


def run(folder: Path, server: Server, adapter: str, prompt: str) -> Ran:
    """A task in ``folder``."""
    config = json.loads(server.settings("opencode"))
    assert config["provider"]["vivace"]["npm"] == ADAPTERS["chat"]
    config["provider"]["vivace"]["npm"] = ADAPTERS[adapter]
    folder.mkdir(exist_ok=True)
    (folder / "opencode.json").write_text(json.dumps(config), encoding="utf-8")
    command = [client("opencode"), "run", "--format", "json", "--thinking", prompt]
    return Running(command, folder, environment(folder.parent / "home")).wait()


def parts(ran: Ran, kind: str) -> list[dict[str, Any]]:
    return [event["part"] for event in ran.json if event["type"] == kind]


def main_requests(server: Server) -> list[dict[str, Any]]:
    """Those of the task itself; a title is asked for beside it, without tools."""
    return [request for request in server.requests() if request.get("tools")]


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_text_and_a_tool(tmp_path: Path, serve: Serve, adapter: str) -> None:
    file = tmp_path / "work" / "hello.txt"
    write = {"call": "write", "arguments": {"filePath": str(file), "content": "hello\n"}}
    server = serve(
        {"when": {"output": "."}, "steps": [{"text": "It is written."}]},
        {"when": {"tool": "write"}, "steps": [{"reasoning": "A file it is."}, {"text": "I write."}, write]},
        {"steps": [{"text": "Greetings"}]},
    )
    ran = run(file.parent, server, adapter, "write hello")
    assert ran.code == 0, ran
    assert [part["text"] for part in parts(ran, "text")] == ["I write.", "It is written."]
    assert file.read_text() == "hello\n"
    (tool,) = parts(ran, "tool_use")
    assert (tool["tool"], tool["state"]["status"]) == ("write", "completed")
    # The adapter of Responses shows summaries of thoughts only, and sends back what it shows or what is opaque; it asks
    # for neither.
    thoughts = ["A file it is."] if adapter == "chat" else [""]
    assert [part["text"] for part in parts(ran, "reasoning")] == thoughts
    first, second = main_requests(server)
    assert texts(first, "user")[-1].strip('"\n') == "write hello"
    assert kinds(second)[-2:] == ["function_call", "function_call_output"]
    assert ("reasoning" in kinds(second)) == (adapter == "chat")
    # One conversation, by the session that its headers or its key name.
    assert first["prompt_cache_key"] == second["prompt_cache_key"]
    ends = [event["response"] for event in server.events("response.completed")]
    used = [part["tokens"] for part in parts(ran, "step_finish")]
    calling = next(end for end in ends if any(item["type"] == "function_call" for item in end["output"]))
    assert used[0]["input"] + used[0]["cache"]["read"] == calling["usage"]["input_tokens"]
    assert used[0]["reasoning"] == calling["usage"]["output_tokens_details"]["reasoning_tokens"] > 0
    assert used[1]["cache"]["read"] >= calling["usage"]["input_tokens"]


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_long_silence(tmp_path: Path, serve: Serve, adapter: str) -> None:
    server = serve({"when": {"tool": "write"}, "prefill": 3.0, "steps": [{"text": "At last."}]})
    ran = run(tmp_path / "work", server, adapter, "think long")
    assert [part["text"] for part in parts(ran, "text")] == ["At last."]
    assert len(main_requests(server)) == 1
    assert server.events("keepalive")  # which its adapter did not stumble over


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_failure_is_told_in_words(tmp_path: Path, serve: Serve, adapter: str) -> None:
    server = serve({"steps": [{"error": "context_length_exceeded", "message": "The prompt is too long for it."}]})
    ran = run(tmp_path / "work", server, adapter, "try")
    assert "too long" in ran.out + ran.err, ran

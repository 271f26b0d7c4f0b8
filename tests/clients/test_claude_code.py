"""Claude Code with the settings that the server prints."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.clients.harness import Ran, Running, Server, client, environment, kinds, texts

pytestmark = pytest.mark.clients

Serve = Callable[..., Server]


def printed(server: Server) -> dict[str, str]:
    """The variables that the server tells to set."""
    return dict(re.findall(r"^export (\w+)=(.*)$", server.settings("Claude Code"), re.MULTILINE))


def run(folder: Path, server: Server, prompt: str, *arguments: str) -> Ran:
    work = folder / "work"
    work.mkdir(exist_ok=True)
    command = [client("claude"), "-p", prompt, "--output-format", "stream-json", "--verbose", *arguments]
    return Running(command, work, environment(folder / "home", **printed(server))).wait()


def result(ran: Ran) -> dict[str, Any]:
    (found,) = [event for event in ran.json if event["type"] == "result"]
    return found


def test_a_bash_round_trip(tmp_path: Path, serve: Serve) -> None:
    bash = {"call": "Bash", "arguments": {"command": "echo made > made.txt; echo is there", "description": "make"}}
    server = serve(
        {"when": {"output": "."}, "steps": [{"text": "It is done."}]},
        {"when": {"tool": "Bash", "user": "make the file"}, "steps": [{"text": "I make it."}, bash]},
        {"steps": [{"text": "Something else."}]},
    )
    ran = run(tmp_path, server, "make the file", "--allowedTools", "Bash")
    told = result(ran)
    assert (told["is_error"], told["result"]) == (False, "It is done."), ran
    assert (tmp_path / "work" / "made.txt").read_text() == "made\n"
    first, second = [request for request in server.requests() if request.get("tools")][-2:]
    assert any("make the file" in text for text in texts(first, "user"))
    assert [kind for kind in kinds(second) if kind != "message"] == ["function_call", "function_call_output"]
    output = [item for item in second["input"] if item.get("type") == "function_call_output"][-1]
    assert "is there" in str(output["output"])
    ends = [event["response"]["usage"] for event in server.events("response.completed")]
    assert told["usage"]["cache_read_input_tokens"] == sum(end["input_tokens_details"]["cached_tokens"] for end in ends)
    assert told["usage"]["output_tokens"] == sum(end["output_tokens"] for end in ends)


def test_thinking_is_sent_back_and_not_refused(tmp_path: Path, serve: Serve) -> None:
    bash = {"call": "Bash", "arguments": {"command": "echo hi", "description": "greet"}}
    server = serve(
        {"when": {"output": "."}, "steps": [{"reasoning": "That was it."}, {"text": "It is done."}]},
        {"steps": [{"reasoning": "A greeting."}, bash]},
    )
    ran = run(tmp_path, server, "greet", "--allowedTools", "Bash")
    assert result(ran)["result"] == "It is done.", ran


def test_an_error_is_told_in_words(tmp_path: Path, serve: Serve) -> None:
    server = serve({"steps": [{"error": "context_length_exceeded", "message": "The prompt is too long for it."}]})
    ran = run(tmp_path, server, "try")
    assert "too long" in ran.out, ran


def test_counting_tokens_is_counting_the_prompt(serve: Serve) -> None:
    server = serve({"steps": [{"text": "Hello."}]})
    body = {"model": "paced", "messages": [{"role": "user", "content": "Tell me of birds."}], "system": "Be brief."}
    with httpx2.Client(base_url=server.base_url, trust_env=False) as client:
        counted = client.post("/messages/count_tokens?beta=true", json=body).json()
        asked = client.post("/messages?beta=true", json={**body, "max_tokens": 50}).json()
    assert counted == {"input_tokens": asked["usage"]["input_tokens"]}
    assert counted["input_tokens"] > 3

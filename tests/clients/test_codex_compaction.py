"""Codex CLI and compaction: by the server where the provider is called OpenAI, else by Codex itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clients.appserver import AppServer
from tests.clients.codex import Codex, answer
from tests.clients.harness import Server, kinds, texts

pytestmark = pytest.mark.clients

Serve = Callable[..., Server]

SUMMARY = [{"text": "They counted to 3000."}]
TRIGGERED = {"when": {"item": "compaction_trigger"}, "steps": SUMMARY}
ASKED = {"when": {"user": "handoff summary"}, "steps": SUMMARY}
KNOWS = {"when": {"said": "They counted to 3000"}, "steps": [{"text": "I know that we counted."}]}
COUNT = {"call": "exec_command", "arguments": {"cmd": "seq 3000"}}


def test_a_full_window_is_compacted_in_the_middle_of_a_task(tmp_path: Path, serve: Serve, way: str) -> None:
    server = serve(TRIGGERED, KNOWS, {"steps": [COUNT]})
    limit = 8000
    codex = Codex(
        tmp_path, server, name="OpenAI", supports_websockets=way == "ws", top={"model_auto_compact_token_limit": limit}
    )
    assert answer(codex.run("count twice")) == "I know that we counted."
    *before, trigger, after = server.requests()
    assert kinds(trigger)[-2:] == ["function_call_output", "compaction_trigger"]
    assert len(trigger["tools"]) == len(before[-1]["tools"]) > 5
    if way == "ws":
        assert len(kinds(trigger)) == 2
        assert trigger["previous_response_id"] == server.events("response.completed")[-3]["response"]["id"]
    assert (kinds(after)[-1], "previous_response_id" in after) == ("compaction", False)
    counted, compacted, last = [event["response"] for event in server.events("response.completed")][-3:]
    (item,) = compacted["output"]
    assert item["type"] == "compaction"
    assert item["encrypted_content"] == after["input"][-1]["encrypted_content"]
    assert "counted" not in item["encrypted_content"]
    # The prompt before the order to compact was in the cache, and the conversation is short again.
    read = compacted["usage"]["input_tokens_details"]["cached_tokens"]
    assert read >= counted["usage"]["input_tokens"]
    assert last["usage"]["total_tokens"] < limit < compacted["usage"]["total_tokens"]


def test_a_conversation_goes_on_after_compaction_by_the_server(tmp_path: Path, serve: Serve) -> None:
    server = serve(TRIGGERED, KNOWS, {"steps": [{"text": "One, two, three."}]})
    with AppServer(Codex(tmp_path, server, name="OpenAI")) as app:
        app.turn("count")
        app.ask("thread/compact/start", threadId=app.thread)
        assert app.wait("turn/completed")["turn"]["status"] == "completed"
        app.turn("what did we do?")
        app.turn("are you sure?")
    *_, trigger, next_one, last = server.requests()
    assert kinds(trigger) == ["compaction_trigger"]
    assert kinds(next_one)[-2:] == ["compaction", "message"]
    assert kinds(last) == ["message"]
    answers = [event["response"]["output"][0]["content"] for event in server.events("response.completed")[-2:]]
    assert [content[0]["text"] for content in answers] == ["I know that we counted."] * 2


def test_codex_compacts_by_itself_with_another_provider_name(tmp_path: Path, serve: Serve) -> None:
    server = serve(ASKED, KNOWS, {"steps": [{"text": "One, two, three."}]})
    with AppServer(Codex(tmp_path, server)) as app:
        app.turn("count")
        app.ask("thread/compact/start", threadId=app.thread)
        assert app.wait("turn/completed")["turn"]["status"] == "completed"
        app.turn("what did we do?")
    *_, summary, last = server.requests()
    assert (summary.get("tools", []), summary["parallel_tool_calls"]) == ([], False)
    assert "They counted to 3000." in texts(last, "user")[-2]
    assert server.events("response.completed")[-1]["response"]["output"][0]["content"][0]["text"].startswith("I know")
    assert len({request["_"]["line"] for request in server.requests()}) == 1

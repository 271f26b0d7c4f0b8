"""Codex's app-server: several user turns on one socket, steering, interrupts, compaction."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clients.appserver import AppServer
from tests.clients.codex import Codex
from tests.clients.harness import Server, kinds, texts, until

pytestmark = pytest.mark.clients

Serve = Callable[..., Server]


def test_the_second_user_turn_is_an_increment_on_the_same_socket(tmp_path: Path, serve: Serve) -> None:
    server = serve({"when": {"user": "second"}, "steps": [{"text": "Two."}]}, {"steps": [{"text": "One."}]})
    with AppServer(Codex(tmp_path, server)) as app:
        assert app.turn("the first")["status"] == "completed"
        assert app.turn("the second")["status"] == "completed"
    assert {request["_"]["line"] for request in server.requests()} == {1}
    warm, first, second = server.requests("ws")
    ends = [event["response"]["id"] for event in server.events("response.completed")]
    assert (warm["generate"], first["previous_response_id"], second["previous_response_id"]) == (False, *ends[:2])
    assert (kinds(second), texts(second)) == (["message"], ["the second"])


def test_an_interrupt_ends_the_response_and_the_chain_is_found_again(tmp_path: Path, serve: Serve) -> None:
    server = serve(
        {"when": {"user": "again"}, "steps": [{"text": "Back."}]}, {"steps": [{"text": "So "}, {"hang": True}]}
    )
    with AppServer(Codex(tmp_path, server)) as app:
        turn = app.begin("the first")
        until(server.running, what="the response")
        app.wait("item/agentMessage/delta")
        app.ask("turn/interrupt", threadId=app.thread, turnId=turn)
        assert app.wait("turn/completed")["turn"]["status"] == "interrupted"
        until(lambda: not server.running(), 1.0, "the end of what nobody reads")
        assert app.turn("again")["status"] == "completed"
    last = server.requests()[-1]
    assert any("<turn_aborted>" in text for text in texts(last))
    usage = server.events("response.completed")[-1]["response"]["usage"]
    assert usage["input_tokens_details"]["cached_tokens"] > 0.9 * usage["input_tokens"]


def test_what_the_user_adds_comes_as_an_increment(tmp_path: Path, serve: Serve) -> None:
    server = serve(
        {"when": {"user": "shorter"}, "steps": [{"text": "Short."}]},
        {"steps": [{"text": "A long story."}, {"delay": 1.5}]},
    )
    with AppServer(Codex(tmp_path, server)) as app:
        turn = app.begin("tell a story")
        app.wait("item/agentMessage/delta")
        given = [{"type": "text", "text": "shorter"}]
        app.ask("turn/steer", threadId=app.thread, expectedTurnId=turn, input=given)
        assert app.wait("turn/completed")["turn"]["status"] == "completed"
    last = server.requests("ws")[-1]
    assert (kinds(last), texts(last)) == (["message"], ["shorter"])
    assert last["previous_response_id"] == server.events("response.completed")[-2]["response"]["id"]


def test_a_connection_that_grew_too_old_is_replaced_silently(tmp_path: Path, serve: Serve) -> None:
    server = serve(
        {"when": {"user": "second"}, "steps": [{"text": "Two."}]},
        {"steps": [{"text": "One."}]},
        options=["--backend", "paced", "--connection-seconds", "1"],
    )
    with AppServer(Codex(tmp_path, server)) as app:
        app.turn("the first")
        until(lambda: server.lines("close"), 5, "the end of the connection")
        assert app.turn("the second")["status"] == "completed"
    assert not [note for note in app.seen if note["method"] == "error"]
    last = server.events("response.completed")[-1]["response"]
    assert last["output"][0]["content"][0]["text"] == "Two."
    assert last["usage"]["input_tokens_details"]["cached_tokens"] > 0.9 * last["usage"]["input_tokens"]

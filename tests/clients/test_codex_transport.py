"""Codex CLI and the connection: prewarming, increments, cuts, restarts, refusals, silence, limits."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from tests.clients.codex import Codex, answer, faults
from tests.clients.harness import Json, Server, kinds, texts, until
from tests.clients.proxy import Wire

pytestmark = pytest.mark.clients

Serve = Callable[..., Server]

DONE = {"name": "done", "when": {"output": "."}, "steps": [{"text": "It is done."}]}
COUNT = {"call": "exec_command", "arguments": {"cmd": "echo ran >> runs.txt"}}

LIMITS = """\
default_plan = "small"
[[tier]]
id = "default"
[[plan]]
id = "small"
[[plan.window]]
meter = "requests"
seconds = 3
limit = 2
"""


def whole(request: Json) -> bool:
    """Whether a request holds a conversation from its beginning."""
    return "previous_response_id" not in request and texts(request, "developer") != []


def test_prewarming_is_answered_at_once_and_then_only_increments_come(tmp_path: Path, serve: Serve) -> None:
    # A prompt takes two seconds to read: the prewarming answer must not wait for it.
    server = serve(
        {"when": {"prefill_only": True}, "prefill": 2.0, "steps": []},
        {"when": {"output": "two"}, "steps": [{"text": "It is done."}]},
        {"when": {"output": "one"}, "steps": [{"call": "exec_command", "arguments": {"cmd": "echo two"}}]},
        {"steps": [{"text": "I look."}, {"call": "exec_command", "arguments": {"cmd": "echo one"}}]},
    )
    assert answer(Codex(tmp_path, server).run("look twice")) == "It is done."
    warm, *turns = server.requests("ws")
    assert (warm["generate"], kinds(warm)) == (False, ["message"])
    ends = server.events("response.completed")
    assert ends[0]["_at"] - warm["_"]["at"] < 0.5
    assert ends[0]["response"]["output"] == []
    assert ends[0]["response"]["usage"]["output_tokens"] == 0
    # Each frame names the response before it and brings only what is new.
    assert [turn["previous_response_id"] for turn in turns] == [end["response"]["id"] for end in ends[:-1]]
    assert [kinds(turn) for turn in turns] == [["message"] * 3, ["function_call_output"], ["function_call_output"]]
    # What came before was in the cache: all but the new output and the question were read already.
    used = [end["response"]["usage"] for end in ends[1:]]
    for before, now in pairwise(used):
        assert now["input_tokens_details"]["cached_tokens"] >= before["input_tokens"]


def test_a_cut_in_the_middle_of_a_turn_costs_one_full_resend(tmp_path: Path, serve: Serve) -> None:
    server = serve(DONE, {"steps": [COUNT, {"delay": 30}]})
    with Wire(server.root) as wire:
        codex = Codex(tmp_path, server, root=wire.root)
        running = codex.start("count")
        until((codex.work / "runs.txt").exists, what="the call")
        time.sleep(0.5)
        wire.cut()
        ran = running.wait()
    assert ran.code == 0, ran
    assert answer(ran) == "It is done."
    assert (codex.work / "runs.txt").read_text() == "ran\n"
    before = [request for request in server.requests() if request["_"]["line"] == 1]
    after = [request for request in server.requests() if request["_"]["line"] == 2]
    assert [request.get("generate") for request in before] == [False, None]
    assert [whole(request) for request in after] == [True]
    assert kinds(after[0])[-2:] == ["function_call", "function_call_output"]
    assert server.running() == []  # the one that was cut off ended with its client


def test_a_cut_of_an_http_stream_is_survived(tmp_path: Path, serve: Serve) -> None:
    server = serve(DONE, {"steps": [COUNT, {"delay": 30}]})
    with Wire(server.root) as wire:
        codex = Codex(tmp_path, server, root=wire.root, supports_websockets=False)
        running = codex.start("count")
        until((codex.work / "runs.txt").exists, what="the call")
        time.sleep(0.5)
        wire.cut()
        ran = running.wait()
    assert ran.code == 0, ran
    assert answer(ran) == "It is done."
    assert (codex.work / "runs.txt").read_text() == "ran\n"
    assert [line["reason"] for line in server.lines("stop")] == ["disconnect"]
    assert server.running() == []


@pytest.mark.parametrize("how", ["killed", "told to end"])
def test_a_restart_in_the_middle_of_a_task(tmp_path: Path, serve: Serve, way: str, how: str) -> None:
    server = serve(DONE, {"steps": [COUNT, {"delay": 2.0 if how == "told to end" else 60}]})
    codex = Codex(tmp_path, server, supports_websockets=way == "ws")
    running = codex.start("count")
    until((codex.work / "runs.txt").exists, what="the call")
    if how == "killed":
        server.kill()
    else:
        server.stop()  # what runs ends first
        assert server.events("response.completed")[-1]["response"]["output"][-1]["type"] == "function_call"
    time.sleep(1.0)  # Codex finds nobody there
    server.start()
    ran = running.wait()
    assert ran.code == 0, ran
    assert answer(ran) == "It is done."
    assert (codex.work / "runs.txt").read_text() == "ran\n"
    assert whole(server.requests()[-1])


def test_upgrades_refused_with_426_are_not_even_mentioned(tmp_path: Path, serve: Serve) -> None:
    server = serve(DONE, {"steps": [COUNT]}, options=["--backend", "paced", "--no-websockets"])
    assert "supports_websockets = false" in server.settings("Codex CLI")
    codex = Codex(tmp_path, server, supports_websockets=True)
    ran = codex.run("count")
    assert (answer(ran), faults(ran)) == ("It is done.", [])
    assert {request["_"]["way"] for request in server.requests()} == {"http"}
    assert server.answered("/v1/responses", "WEBSOCKET") == {426: 1}


def test_a_long_silence_is_filled_with_events(tmp_path: Path, serve: Serve, way: str) -> None:
    server = serve({"prefill": 6.0, "steps": [{"text": "At last."}]})
    codex = Codex(tmp_path, server, stream_idle_timeout_ms=3000, supports_websockets=way == "ws")
    ran = codex.run("think long")
    assert (answer(ran), faults(ran)) == ("At last.", [])
    assert ran.seconds > 6
    assert len(server.requests()) == (2 if way == "ws" else 1)
    assert len(server.events("keepalive")) >= 2


def test_a_limit_is_waited_for(tmp_path: Path, serve: Serve, way: str) -> None:
    file = tmp_path / "tiers.toml"
    file.write_text(LIMITS)
    more = {"call": "exec_command", "arguments": {"cmd": "echo more"}}
    server = serve(
        {"when": {"turn": [1, 2]}, "steps": [more]}, {"steps": [{"text": "It is done."}]},
        settings={"VIVACE_TIERS_FILE": str(file)},
    )  # fmt: skip
    codex = Codex(tmp_path, server, supports_websockets=way == "ws")
    ran = codex.run("do two things")
    assert answer(ran) == "It is done."
    refused = [(event["status"], event["headers"], event["_at"]) for event in server.events("error")]
    refused += [(line["status"], line["headers"], line["at"]) for line in server.lines("refused")]
    assert refused, server.log
    for status, headers, at in refused:
        assert status == 429
        next_one = min(request["_"]["at"] for request in server.requests() if request["_"]["at"] > at)
        # Less a tenth: Codex varies the wait.
        assert next_one - at >= 0.9 * float(headers["retry-after"]), (next_one - at, headers)


def test_a_failure_in_the_stream_is_seen_at_once_and_retried(tmp_path: Path, serve: Serve, way: str) -> None:
    failure = {"error": "rate_limit_exceeded", "message": "Please try again in 1s.", "retry_after": 1}
    server = serve({"times": 1, "steps": [{"text": "I sta"}, failure]}, {"steps": [{"text": "It is done."}]})
    ran = Codex(tmp_path, server, supports_websockets=way == "ws").run("try")
    assert answer(ran) == "It is done."
    (failed,) = server.events("response.failed")
    assert failed["response"]["error"]["code"] == "rate_limit_exceeded"
    again = server.requests()[-1]["_"]["at"] - failed["_at"]
    assert 0.9 <= again < 2.5


def test_a_context_that_is_too_long_is_told_in_words(tmp_path: Path, serve: Serve, way: str) -> None:
    server = serve({"steps": [{"error": "context_length_exceeded", "message": "The prompt is too long."}]})
    ran = Codex(tmp_path, server, supports_websockets=way == "ws").start("try").wait()
    assert ran.code != 0
    assert any("context window" in fault or "too long" in fault for fault in faults(ran)), ran
    assert len([request for request in server.requests() if request.get("generate") is not False]) == 1


def test_a_key_is_asked_for_and_sent(tmp_path: Path, serve: Serve, way: str) -> None:
    from vivace.service.database import default_url, open_database
    from vivace.service.keys import KeyStore

    state = tmp_path / "server" / "state"
    state.mkdir(parents=True)
    engine = open_database(default_url(state))
    secret, _ = KeyStore(engine).create("laptop", principal="ann")
    engine.dispose()
    server = serve({"steps": [{"text": "Hello Ann."}]})
    assert 'env_key = "VIVACE_API_KEY"' in server.settings("Codex CLI")
    codex = Codex(tmp_path, server, key=secret, supports_websockets=way == "ws")
    ran = codex.run("say hello")
    assert (answer(ran), faults(ran)) == ("Hello Ann.", [])
    wrong = Codex(tmp_path, server, key="vv_wrong", supports_websockets=way == "ws", stream_max_retries=0)
    assert any("401" in fault for fault in faults(wrong.start("say hello").wait()))

"""Codex CLI does tasks: what it says, runs, edits and delegates, over both transports."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clients.codex import Codex, answer, faults, items
from tests.clients.harness import Server, kinds, texts, until

pytestmark = pytest.mark.clients

Serve = Callable[..., Server]

DONE = {"name": "done", "when": {"output": "."}, "steps": [{"text": "It is done."}]}

PATCH = """\
*** Begin Patch
*** Update File: notes.txt
@@
 first
-second
+changed
*** Add File: more.txt
+new
*** End Patch
"""


def start(folder: Path, server: Server, way: str) -> Codex:
    return Codex(folder, server, supports_websockets=way == "ws")


def test_text_with_the_settings_as_they_are_printed(tmp_path: Path, serve: Serve) -> None:
    server = serve({"steps": [{"reasoning": "Greet them."}, {"text": "Hello there."}]})
    ran = Codex(tmp_path, server).run("say hello")
    assert answer(ran) == "Hello there."
    assert faults(ran) == []
    assert {request["_"]["way"] for request in server.requests()} == {"ws"}
    usage = ran.json[-1]["usage"]
    told = server.events("response.completed")[-1]["response"]["usage"]
    assert usage["input_tokens"] == told["input_tokens"] > usage["cached_input_tokens"] > 0
    assert usage["reasoning_output_tokens"] == told["output_tokens_details"]["reasoning_tokens"] > 0


def test_text_over_http(tmp_path: Path, serve: Serve) -> None:
    server = serve({"steps": [{"text": "Hello there."}]})
    ran = start(tmp_path, server, "http").run("say hello")
    assert (answer(ran), faults(ran)) == ("Hello there.", [])
    (request,) = server.requests()
    assert request["_"]["way"] == "http"
    assert texts(request, "user")[-1] == "say hello"


def test_a_command_makes_a_file_before_the_response_ends(tmp_path: Path, serve: Serve, way: str) -> None:
    call = {"call": "exec_command", "arguments": {"cmd": "echo made > made.txt; echo is there"}}
    server = serve(DONE, {"steps": [{"text": "I make it."}, call, {"delay": 1.5}]})
    codex = start(tmp_path, server, way)
    running = codex.start("make the file")
    made = codex.work / "made.txt"
    until(made.exists, what="the command")
    # The call ran as soon as it was whole. (A prewarmed connection has one completed response of its own by now.)
    calling = server.events("response.output_item.done")[-1]
    assert calling["item"]["name"] == "exec_command"
    assert len(server.events("response.completed")) == (way == "ws")
    ran = running.wait()
    assert answer(ran) == "It is done."
    assert made.read_text() == "made\n"
    (command,) = items(ran, "command_execution")
    assert (command["exit_code"], command["aggregated_output"]) == (0, "is there\n")
    last = server.requests()[-1]["input"]
    assert last[-1]["call_id"] == calling["item"]["call_id"]
    assert "is there" in last[-1]["output"]


def test_apply_patch_changes_and_adds_files(tmp_path: Path, serve: Serve, way: str) -> None:
    server = serve(DONE, {"when": {"tool": "apply_patch"}, "steps": [{"call": "apply_patch", "input": PATCH}]})
    codex = start(tmp_path, server, way)
    (codex.work / "notes.txt").write_text("first\nsecond\nthird\n")
    ran = codex.run("change the notes")
    assert (answer(ran), faults(ran)) == ("It is done.", [])
    assert (codex.work / "notes.txt").read_text() == "first\nchanged\nthird\n"
    assert (codex.work / "more.txt").read_text() == "new\n"
    (change,) = items(ran, "file_change")
    assert {Path(file["path"]).name: file["kind"] for file in change["changes"]} == {
        "notes.txt": "update",
        "more.txt": "add",
    }
    (call,) = [event["item"] for event in server.events("response.output_item.done") if "input" in event["item"]]
    assert (call["type"], call["input"]) == ("custom_tool_call", PATCH)
    assert server.requests()[-1]["input"][-1]["type"] == "custom_tool_call_output"


def test_parallel_calls_run_side_by_side_and_answer_together(tmp_path: Path, serve: Serve, way: str) -> None:
    def call(name: str) -> dict[str, object]:
        # Each waits for the other: one after the other they would wait in vain.
        other = {"one": "two", "two": "one"}[name]
        wait = f"for n in $(seq 50); do test -e {other} && echo {name} met {other} && break; sleep 0.1; done"
        return {"call": "exec_command", "arguments": {"cmd": f"touch {name}; {wait}"}, "call_id": f"call_{name}"}

    server = serve(DONE, {"steps": [call("one"), call("two")]})
    ran = start(tmp_path, server, way).run("do both")
    assert answer(ran) == "It is done."
    last = server.requests()[-1]
    outputs = [item for item in last["input"] if item["type"] == "function_call_output"]
    assert [output["call_id"] for output in outputs] == ["call_one", "call_two"]
    assert "one met two" in outputs[0]["output"]
    assert "two met one" in outputs[1]["output"]
    assert len(server.requests()) == (3 if way == "ws" else 2)


def test_a_child_agent_has_its_own_socket_and_chain(tmp_path: Path, serve: Serve, way: str) -> None:
    wait = {"call": "wait_agent", "namespace": "multi_agent_v1", "arguments": {"targets": ["${id}"]}}
    spawn = {"call": "spawn_agent", "namespace": "multi_agent_v1", "arguments": {"message": "count the birds"}}
    server = serve(
        {"when": {"output": "seven birds"}, "steps": [{"text": "The child saw seven."}]},
        {"when": {"output": '"agent_id": ?"(?P<id>[^"]+)"'}, "expand": True, "steps": [wait]},
        {"when": {"user": "count the birds"}, "steps": [{"delay": 0.5}, {"text": "I see seven birds."}]},
        {"when": {"user": "delegate"}, "steps": [spawn]},
    )
    ran = start(tmp_path, server, way).run("delegate the counting")
    assert answer(ran) == "The child saw seven.", server.log
    parent = [request for request in server.requests() if "x-openai-subagent" not in request["_"]["caller"]]
    child = [request for request in server.requests() if "x-openai-subagent" in request["_"]["caller"]]
    assert all("function_call_output" in kinds(request) for request in parent[-2:])
    assert texts(child[-1], "user")[-1] == "count the birds"
    assert {request["prompt_cache_key"] for request in parent + child} == {parent[0]["prompt_cache_key"]}
    assert child[0]["_"]["caller"]["thread-id"] != parent[0]["_"]["caller"]["thread-id"]
    if way == "ws":
        assert {request["_"]["line"] for request in parent} == {1}
        assert {request["_"]["line"] for request in child} == {2}
        made = {event["response"]["id"]: event["response"] for event in server.events("response.completed")}
        assert child[-1]["previous_response_id"] in made  # by its own prewarming
        assert child[-1]["previous_response_id"] not in {request.get("previous_response_id") for request in parent}


def test_a_tool_that_is_not_offered_does_not_end_the_task(tmp_path: Path, serve: Serve, way: str) -> None:
    server = serve(DONE, {"steps": [{"call": "no_such_tool", "arguments": {"a": 1}}]})
    assert answer(start(tmp_path, server, way).run("try it")) == "It is done."
    assert "unsupported call: no_such_tool" in str(server.requests()[-1]["input"][-1]["output"])


def test_an_answer_by_a_schema(tmp_path: Path, serve: Serve, way: str) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text(
        '{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}'
    )
    server = serve({"steps": [{"text": '{"n":7}'}]})
    ran = start(tmp_path, server, way).run("count", "--output-schema", str(schema))
    assert answer(ran) == '{"n":7}'
    given = server.requests()[-1]["text"]["format"]
    assert (given["type"], given["name"], given["strict"]) == ("json_schema", "codex_output_schema", True)

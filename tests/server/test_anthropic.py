"""Messages: requests in, events out, without a server. The shapes are those that Claude Code 2.1 sends and reads."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tests.server.scripted import Answer
from vivace.protocol import events as ev
from vivace.protocol.anthropic import decode_count_request, decode_messages_request
from vivace.protocol.errors import BadRequest
from vivace.protocol.items import Reasoning, ReasoningText
from vivace.protocol.requests import ResponseRequest
from vivace.server.anthropic import EventWriter, message, shows_thinking, to_request


def translated(**body: Any) -> dict[str, Any]:
    given = {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}], **body}
    found: dict[str, Any] = msgspec.to_builtins(to_request(decode_messages_request(json.dumps(given))))
    return found


def events(written: bytes) -> list[dict[str, Any]]:
    """The events, whose lines must agree."""
    found = []
    for block in written.decode().strip().split("\n\n"):
        name, data = block.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


def test_a_conversation_with_tools_becomes_items() -> None:
    found = translated(
        system=[
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=00001;"},
            {"type": "text", "text": "You help.", "cache_control": {"type": "ephemeral"}},
            {"type": "text", "text": "Be brief."},
        ],
        messages=[
            {"role": "user", "content": [{"type": "text", "text": "look"}]},
            {"role": "system", "content": "a reminder"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "v1.x"},
                    {"type": "redacted_thinking", "data": "v1.y"},
                    {"type": "text", "text": "I call"},
                    {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "a.py"}]},
                    {"type": "text", "text": "go on"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}},
                ],
            },
        ],
        tools=[
            {"name": "Bash", "description": "run", "input_schema": {"type": "object"}},
            {"type": "web_search_20250305", "name": "web_search"},
        ],
        tool_choice={"type": "any", "disable_parallel_tool_use": True},
        metadata={"user_id": "u1"},
        speed="fast",
        stop_sequences=["END"],
    )
    assert found["instructions"] == "You help.\n\nBe brief."
    assert found["input"] == [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "look"}]},
        {"type": "message", "role": "system", "content": "a reminder"},
        {
            "type": "reasoning",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "hm"}],
            "encrypted_content": "v1.x",
        },
        {"type": "reasoning", "summary": [], "encrypted_content": "v1.y"},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "I call", "annotations": [], "logprobs": []}],
        },
        {"type": "function_call", "call_id": "toolu_1", "name": "Bash", "arguments": '{"command":"ls"}'},
        {"type": "function_call_output", "call_id": "toolu_1", "output": "a.py"},
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "go on"},
                {"type": "input_image", "image_url": "data:image/png;base64,AA"},
            ],
        },
    ]
    assert found["tools"][0] == {
        "type": "function",
        "name": "Bash",
        "description": "run",
        "parameters": {"type": "object"},
        "strict": False,
    }
    assert found["tools"][1]["type"] == "web_search_20250305"
    assert (found["tool_choice"], found["parallel_tool_calls"]) == ("required", False)
    assert (found["service_tier"], found["prompt_cache_key"], found["stop"]) == ("fast", "u1", ["END"])
    assert (found["max_output_tokens"], found["store"]) == (100, False)


@pytest.mark.parametrize(
    ("body", "effort", "shown"),
    [
        ({}, "none", (False, False)),
        ({"thinking": {"type": "disabled"}}, "none", (False, False)),
        ({"thinking": {"type": "adaptive", "display": "omitted"}}, None, (True, True)),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}, "high", (True, False)),
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, "low", (True, False)),
        ({"thinking": {"type": "enabled", "budget_tokens": 31999}}, "high", (True, False)),
    ],
)
def test_how_much_is_thought_and_shown(body: dict[str, Any], effort: str | None, shown: tuple[bool, bool]) -> None:
    assert translated(**body)["reasoning"]["effort"] == effort
    given = {"model": "m", "max_tokens": 1, "messages": [], **body}
    assert shows_thinking(decode_messages_request(json.dumps(given))) == shown


def test_what_cannot_be_served_is_refused_by_name() -> None:
    with pytest.raises(BadRequest) as refusal:
        translated(output_config={"format": {"type": "grammar"}})
    assert refusal.value.param == "output_config.format"
    with pytest.raises(BadRequest) as refusal:
        translated(messages=[{"role": "user", "content": [{"type": "image", "source": {"type": "file"}}]}])
    assert refusal.value.param == "messages.0.content.0.source"


def test_counting_takes_what_makes_the_prompt() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "system": "s"}
    request = to_request(decode_count_request(json.dumps(body)))
    assert request.instructions == "s" and request.max_output_tokens is None


def thinking_answer() -> tuple[Answer, list[ev.Event]]:
    answer = Answer(ResponseRequest(model="m"))
    found = answer.begin()
    thought = Reasoning("rs_1", content=[ReasoningText("hmm")], encrypted_content="v1.sealed")
    answer.response.output.append(thought)
    found += [
        ev.ItemAdded(2, 0, Reasoning("rs_1")),
        ev.PartAdded(3, "rs_1", 0, 0, ReasoningText("")),
        ev.ReasoningTextDelta(4, "rs_1", 0, 0, "hm"),
        ev.ReasoningTextDelta(5, "rs_1", 0, 0, "m"),
        ev.PartDone(6, "rs_1", 0, 0, ReasoningText("hmm")),
        ev.ItemDone(7, 0, thought),
        *answer.message(["Hel", "lo"]),
        *answer.call("Bash", ['{"command"', ':"ls"}']),
        ev.Keepalive(sequence_number=80),
        *answer.completed(),
    ]
    return answer, found


def test_a_streamed_answer_with_thoughts_text_and_a_call() -> None:
    answer, given = thinking_answer()
    found = events(EventWriter(shown=True)(given))
    delta, stop = "content_block_delta", "content_block_stop"
    assert [event["type"] for event in found] == [
        "message_start", "ping", "ping",
        "content_block_start", delta, delta, delta, stop,
        "content_block_start", delta, delta, stop,
        "content_block_start", delta, delta, stop,
        "ping", "message_delta", "message_stop",
    ]  # fmt: skip
    assert [event["index"] for event in found if event["type"] == "content_block_start"] == [0, 1, 2]
    assert [event["delta"] for event in found if event["type"] == "content_block_delta"] == [
        {"type": "thinking_delta", "thinking": "hm"},
        {"type": "thinking_delta", "thinking": "m"},
        {"type": "signature_delta", "signature": "v1.sealed"},
        {"type": "text_delta", "text": "Hel"},
        {"type": "text_delta", "text": "lo"},
        {"type": "input_json_delta", "partial_json": '{"command"'},
        {"type": "input_json_delta", "partial_json": ':"ls"}'},
    ]
    started = found[12]["content_block"]
    assert started["type"] == "tool_use" and started["name"] == "Bash" and started["input"] == {}
    ending = found[-2]
    assert ending["delta"]["stop_reason"] == "tool_use"
    assert ending["usage"]["input_tokens"] == 8 and ending["usage"]["output_tokens"] == 12
    assert (ending["usage"]["cache_read_input_tokens"], ending["usage"]["cache_creation_input_tokens"]) == (8, 4)
    whole = json.loads(msgspec.json.encode(message(answer.response, shown=True)))
    assert [block["type"] for block in whole["content"]] == ["thinking", "text", "tool_use"]
    assert whole["content"][2]["input"] == {"command": "ls"} and whole["stop_reason"] == "tool_use"
    assert whole["usage"] == ending["usage"]


def test_thinking_that_nobody_asked_for_is_left_out() -> None:
    answer, given = thinking_answer()
    found = events(EventWriter(shown=False)(given))
    kinds = [event["content_block"]["type"] for event in found if event["type"] == "content_block_start"]
    assert kinds == ["text", "tool_use"]
    assert "thinking" not in json.dumps(found)
    assert [block.type for block in map(_Tagged, message(answer.response, shown=False).content)] == kinds


class _Tagged:
    def __init__(self, block: Any) -> None:
        self.type = msgspec.to_builtins(block)["type"]


def test_thinking_without_its_text_keeps_its_signature() -> None:
    _, given = thinking_answer()
    found = events(EventWriter(shown=True, silent=True)(given))
    kinds = [event["delta"]["type"] for event in found if event["type"] == "content_block_delta"]
    assert kinds[0] == "signature_delta" and "thinking_delta" not in kinds


def test_a_failure_in_the_stream_and_a_cut_answer() -> None:
    answer = Answer(ResponseRequest(model="m"))
    found = events(EventWriter(shown=False)([*answer.begin(), *answer.failed("server_is_overloaded", "busy")]))
    assert found[-1] == {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}
    answer = Answer(ResponseRequest(model="m"))
    given = [*answer.begin(), *answer.message(["x"]), *answer.incomplete("max_output_tokens")]
    assert events(EventWriter(shown=False)(given))[-2]["delta"]["stop_reason"] == "max_tokens"

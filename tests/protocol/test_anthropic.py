"""Messages: the request of Claude Code, and the shapes of the answer and its events."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocol import strategies as some
from vivace.protocol import anthropic as an
from vivace.protocol.errors import BadRequest
from vivace.protocol.items import encode
from vivace.protocol.usage import InputTokensDetails, OutputTokensDetails, Usage

CLAUDE: dict[str, Any] = {
    "model": "vivace-30b",
    "max_tokens": 32000,
    "system": [{"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": "list the files"},
        {"role": "system", "content": "A reminder."},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "v1:x"},
                {"type": "redacted_thinking", "data": "AA"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}},
                {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "a.py"}]},
                {"type": "tool_result", "tool_use_id": "toolu_2", "content": "no", "is_error": True},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}},
            ],
        },
    ],
    "tools": [{"name": "Bash", "input_schema": {"type": "object"}}, {"type": "web_search_20250305", "name": "w"}],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
    "thinking": {"type": "adaptive", "display": "omitted"},
    "output_config": {"effort": "high"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015"}]},
    "metadata": {"user_id": "u"},
    "stream": True,
    "speed": "fast",
    "stop_sequences": ["x"],
    "temperature": 1,
}
USAGE = Usage(10, InputTokensDetails(6, 3), 5, OutputTokensDetails(), 15)


def test_a_request_comes_out_as_it_went_in() -> None:
    request = an.decode_messages_request(json.dumps({**CLAUDE, "x_new": {}}))
    assert json.loads(encode(request)) == CLAUDE
    assert request.messages[2].text == "I look."
    assert an.blocks_text(request.system) == "You are an agent."
    assert isinstance(request.messages[2].content[4], an.OtherBlock)


def test_counting_needs_no_max_tokens() -> None:
    body = {key: CLAUDE[key] for key in ("model", "messages", "system", "tools")}
    assert an.decode_count_request(json.dumps(body)).messages[0].text == "list the files"
    with pytest.raises(BadRequest) as refusal:
        an.decode_messages_request(json.dumps(body))
    assert refusal.value.param == "max_tokens"
    assert json.loads(encode(an.TokenCount(7))) == {"input_tokens": 7}


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"messages": [{"role": "tool", "content": ""}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, "messages[0].content[0].tool_use_id"),
        ({"system": 4}, "system"),
        ({"tools": [{"description": "x"}]}, "tools[0].name"),
        ({"tool_choice": {"type": "maybe"}}, "tool_choice.type"),
        ({"temperature": 1.5}, "temperature"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as refusal:
        an.decode_messages_request(json.dumps({**CLAUDE, **change}))
    assert refusal.value.param == param


@settings(max_examples=200)
@given(st.binary(max_size=40) | some.mutated([json.dumps(CLAUDE).encode()]))
def test_hostile_bodies_give_a_request_or_a_refusal(body: bytes) -> None:
    for decode in (an.decode_messages_request, an.decode_count_request):
        try:
            request = decode(body)
        except BadRequest:
            continue
        assert decode(encode(request)) == request


def test_usage_counts_cached_tokens_beside_the_input() -> None:
    usage = an.AnthropicUsage.of(USAGE)
    assert json.loads(encode(usage)) == {
        "input_tokens": 1, "cache_creation_input_tokens": 3, "cache_read_input_tokens": 6, "output_tokens": 5,
    }  # fmt: skip
    assert usage.usage == USAGE


EVENTS: list[tuple[an.StreamEvent, dict[str, Any]]] = [
    (
        an.MessageStart(an.MessagesResponse(id="msg_1", model="m", usage=an.AnthropicUsage(9))),
        {
            "type": "message_start",
            "message": {
                "type": "message", "id": "msg_1", "role": "assistant", "model": "m", "content": [],
                "stop_reason": None, "stop_sequence": None,
                "usage": {
                    "input_tokens": 9, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
                    "output_tokens": 0,
                },
            },
        },
    ),
    (an.Ping(), {"type": "ping"}),
    (
        an.ContentBlockStart(0, an.TextBlock("")),
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    ),
    (
        an.ContentBlockStart(1, an.ToolUseBlock("toolu_1", "Bash")),
        {
            "type": "content_block_start", "index": 1,
            "content_block": {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {}},
        },
    ),
    (
        an.ContentBlockStart(2, an.ThinkingBlock("")),
        {
            "type": "content_block_start", "index": 2,
            "content_block": {"type": "thinking", "thinking": "", "signature": ""},
        },
    ),
    (
        an.ContentBlockDelta(0, an.TextDelta("x")),
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x"}},
    ),
    (
        an.ContentBlockDelta(1, an.InputJsonDelta("{")),
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "{"}},
    ),
    (
        an.ContentBlockDelta(2, an.ThinkingDelta("x")),
        {"type": "content_block_delta", "index": 2, "delta": {"type": "thinking_delta", "thinking": "x"}},
    ),
    (
        an.ContentBlockDelta(2, an.SignatureDelta("x")),
        {"type": "content_block_delta", "index": 2, "delta": {"type": "signature_delta", "signature": "x"}},
    ),
    (an.ContentBlockStop(0), {"type": "content_block_stop", "index": 0}),
    (
        an.MessageDelta(an.Ending("tool_use"), an.AnthropicUsage(1, output_tokens=5)),
        {
            "type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": None},
            "usage": {
                "input_tokens": 1, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 5,
            },
        },
    ),
    (an.MessageStop(), {"type": "message_stop"}),
    (
        an.StreamError(an.StreamFault("overloaded_error", "later")),
        {"type": "error", "error": {"type": "overloaded_error", "message": "later"}},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("event", "shape"), EVENTS)
def test_events(event: an.StreamEvent, shape: dict[str, Any]) -> None:
    data = an.encode(event)
    assert json.loads(data) == shape
    assert an.event_name(event) == shape["type"]
    assert an.decode(data) == event


@given(st.binary(max_size=40) | some.mutated([an.encode(event) for event, _ in EVENTS]))
def test_hostile_events_raise_decode_errors_only(data: bytes) -> None:
    try:
        event = an.decode(data)
    except (msgspec.DecodeError, UnicodeError):
        return
    assert isinstance(event, an.StreamEvent)

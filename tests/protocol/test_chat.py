"""Chat Completions and the older Completions: what clients send, and what the SDK makes of our answers."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.protocol import strategies as some
from vivace.protocol import chat, completions
from vivace.protocol.errors import BadRequest
from vivace.protocol.items import encode
from vivace.protocol.requests import Prediction
from vivace.protocol.usage import InputTokensDetails, OutputTokensDetails, Usage

OPENCODE: dict[str, Any] = {
    "model": "vivace-30b",
    "messages": [
        {"role": "system", "content": "You are opencode."},
        {"role": "developer", "content": [{"type": "text", "text": "be brief"}]},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "look: "},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
                {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}},
                {"type": "file", "file": {"file_data": "AA"}},
                {"type": "video_url", "video_url": {"url": "x"}},
            ],
        },
        {
            "role": "assistant",
            "reasoning_content": "I will read it.",
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": "{}"}},
                {"id": "call_2", "type": "custom", "custom": {"name": "patch", "input": "***"}},
                {"id": "call_3", "type": "new", "new": 1},
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "text"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}], "name": "a"},
    ],
    "tools": [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}],
    "tool_choice": {"type": "function", "function": {"name": "read"}},
    "stream": True,
    "stream_options": {"include_usage": True},
    "max_tokens": 32000,
    "max_completion_tokens": 32000,
    "prediction": {"type": "content", "content": "code"},
    "response_format": {"type": "json_schema", "json_schema": {"name": "o", "schema": {}, "strict": True}},
    "reasoning_effort": "high",
    "n": 2,
    "stop": "x",
    "seed": 4,
    "logit_bias": {"50256": -100},
    "logprobs": True,
    "top_logprobs": 3,
    "presence_penalty": -0.5,
    "service_tier": "fast",
}


def test_a_request_comes_out_as_it_went_in() -> None:
    request = chat.decode_chat_request(json.dumps({**OPENCODE, "x_new": [1]}))
    assert json.loads(encode(request)) == OPENCODE
    assert request.messages[2].text == "look: "
    assert request.prediction == Prediction("code")
    calls = request.messages[3].tool_calls or []
    assert [type(call) for call in calls] == [chat.FunctionToolCall, chat.CustomToolCall, chat.OtherToolCall]


def test_nulls_and_missing_types_pass() -> None:
    call = {"id": "c", "function": {"name": "f", "arguments": "{}"}}
    body = {
        "model": "m", "tools": None, "tool_choice": None, "stop": None, "n": None, "stream": None,
        "messages": [{"role": "assistant", "content": None, "tool_calls": [call], "audio": None}],
    }  # fmt: skip
    message = chat.decode_chat_request(json.dumps(body)).messages[0]
    assert message == chat.ChatMessage("assistant", tool_calls=[chat.FunctionToolCall("c", chat.Function("f", "{}"))])


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"model": ...}, "model"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"role": "robot"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        ({"tool_choice": "maybe"}, "tool_choice"),
        ({"response_format": {"type": "yaml"}}, "response_format.type"),
        ({"n": 0}, "n"),
        ({"presence_penalty": 3}, "presence_penalty"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], param: str) -> None:
    body = {key: value for key, value in {**OPENCODE, **change}.items() if value is not ...}
    with pytest.raises(BadRequest) as refusal:
        chat.decode_chat_request(json.dumps(body))
    assert refusal.value.param == param


@settings(max_examples=200)
@given(st.binary(max_size=40) | some.mutated([json.dumps(OPENCODE).encode()]))
def test_hostile_bodies_give_a_request_or_a_refusal(body: bytes) -> None:
    for decode in (chat.decode_chat_request, completions.decode_completion_request):
        try:
            request = decode(body)
        except BadRequest:
            continue
        assert decode(encode(request)) == request


USAGE = Usage(10, InputTokensDetails(6, 4), 5, OutputTokensDetails(1, 3, 2), 15)


def test_usage_keeps_its_counts() -> None:
    usage = chat.ChatUsage.of(USAGE)
    assert json.loads(encode(usage)) == {
        "prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15,
        "prompt_tokens_details": {"cached_tokens": 6},
        "completion_tokens_details": {
            "reasoning_tokens": 1, "accepted_prediction_tokens": 3, "rejected_prediction_tokens": 2,
        },
    }  # fmt: skip
    assert usage.usage == Usage(10, InputTokensDetails(6, 0), 5, OutputTokensDetails(1, 3, 2), 15)
    assert chat.ChatUsage(3, 4).usage == Usage(3, output_tokens=4, total_tokens=7)


def test_the_sdk_reads_our_answer() -> None:
    calls: list[chat.ToolCall] = [
        chat.FunctionToolCall("call_1", chat.Function("read", "{}")),
        chat.CustomToolCall("call_2", chat.CustomInput("patch", "***")),
    ]
    answer = chat.ChatCompletion(
        id="chatcmpl-1", created=1, model="m", usage=chat.ChatUsage.of(USAGE), service_tier="default",
        choices=[
            chat.Choice(0, chat.ChatAnswer(tool_calls=calls, reasoning_content="hm"), "tool_calls"),
            chat.Choice(1, chat.ChatAnswer(content="Done."), "stop"),
        ],
    )  # fmt: skip
    read = ChatCompletion.model_validate_json(encode(answer), strict=True)
    assert read.choices[0].message.tool_calls is not None
    assert [call.type for call in read.choices[0].message.tool_calls] == ["function", "custom"]
    assert read.choices[0].message.content is None
    assert read.choices[1].message.content == "Done."
    assert read.usage is not None
    assert read.usage.total_tokens == 15
    assert chat.decode_completion(encode(answer)) == answer


def delta(**fields: Any) -> chat.ChatCompletionChunk:
    return chat.ChatCompletionChunk(id="c", created=1, model="m", choices=[chat.ChunkChoice(0, chat.Delta(**fields))])


CHUNKS = [
    delta(role="assistant", content=""),
    delta(reasoning_content="hm"),
    delta(content="Do"),
    delta(tool_calls=[chat.ToolCallDelta(0, "call_1", "function", chat.FunctionDelta("read", ""))]),
    delta(tool_calls=[chat.ToolCallDelta(0, function=chat.FunctionDelta(arguments='{"a"'))]),
    chat.ChatCompletionChunk(
        id="c", created=1, model="m", choices=[chat.ChunkChoice(0, chat.Delta(), "tool_calls")], service_tier="default"
    ),
    chat.ChatCompletionChunk(id="c", created=1, model="m", usage=chat.ChatUsage.of(USAGE)),
]


@pytest.mark.parametrize("chunk", CHUNKS)
def test_the_sdk_reads_our_chunks(chunk: chat.ChatCompletionChunk) -> None:
    data = encode(chunk)
    read = ChatCompletionChunk.model_validate_json(data, strict=True)
    assert read.object == "chat.completion.chunk"
    assert len(read.choices) == len(chunk.choices)
    assert chat.decode_chunk(data) == chunk


def test_a_chunk_has_no_more_than_it_says() -> None:
    assert json.loads(encode(CHUNKS[2])) == {
        "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
        "choices": [{"index": 0, "delta": {"content": "Do"}, "finish_reason": None}],
    }  # fmt: skip
    assert json.loads(encode(CHUNKS[6]))["choices"] == []


@pytest.mark.parametrize(
    "data",
    [
        '{"choices":[{"delta":{"content":"x","tool_calls":null},"index":0}],"usage":null}',
        '{"choices":[{"delta":{"reasoning":"x"},"logprobs":null,"token_ids":null}],"created":1,"prompt_token_ids":[]}',
        '{"error":{"message":"gone","code":500}}',
        '{"choices":[{"delta":{"tool_calls":[{"function":{"name":"f","arguments":"{}"},"id":"x","type":"function"}]}}]}',
        '{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3,"prompt_tokens_details":null}}',
    ],
)
def test_chunks_of_other_servers(data: str) -> None:
    chunk = chat.decode_chunk(data)
    assert chunk.choices or chunk.error or chunk.usage
    assert chat.decode_chunk(encode(chunk)) == chunk


@given(st.binary(max_size=40) | some.mutated([encode(chunk) for chunk in CHUNKS]))
def test_hostile_chunks_raise_decode_errors_only(data: bytes) -> None:
    try:
        chunk = chat.decode_chunk(data)
    except (msgspec.DecodeError, UnicodeError):
        return
    assert isinstance(chunk, chat.ChatCompletionChunk)


@pytest.mark.parametrize("prompt", ["def f", ["a", "b"], [1, 2], [[1], [2]], None])
def test_completion_prompts(prompt: Any) -> None:
    body = {"model": "m", "prompt": prompt, "suffix": "return x", "stop": ["\n"], "max_tokens": 0, "echo": True}
    request = completions.decode_completion_request(json.dumps(body))
    assert (request.prompt, request.suffix, request.stops) == (prompt, "return x", ["\n"])


def test_the_sdk_reads_our_completions() -> None:
    whole = completions.Completion(
        id="cmpl-1", created=1, model="m", usage=chat.ChatUsage.of(USAGE),
        choices=[completions.CompletionChoice("x", 0, "stop")],
    )  # fmt: skip
    assert Completion.model_validate_json(encode(whole), strict=True).choices[0].text == "x"
    chunk = completions.Completion(id="cmpl-1", created=1, model="m", choices=[completions.CompletionChoice("x")])
    assert json.loads(encode(chunk))["choices"] == [{"text": "x", "index": 0, "finish_reason": None, "logprobs": None}]
    assert completions.decode_completion(encode(chunk)) == chunk

"""Chat Completions: requests in, events out, without a server."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.server.scripted import Answer
from vivace.protocol import events as ev
from vivace.protocol.chat import decode_chat_request
from vivace.protocol.errors import BadRequest
from vivace.protocol.items import CustomToolCall, Reasoning, ReasoningText
from vivace.protocol.requests import ResponseRequest
from vivace.server.chat import ChunkWriter, completion, to_request

AUDIO = {"type": "input_audio", "input_audio": {}}
NO_SCHEMA = {"type": "json_schema", "json_schema": {"name": "n"}}


def translated(**body: Any) -> dict[str, Any]:
    """The request that a body becomes, as the JSON that a Responses client would have sent."""
    given = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **body}
    found: dict[str, Any] = msgspec.to_builtins(to_request(decode_chat_request(json.dumps(given))))
    return found


def chunks(written: bytes) -> list[dict[str, Any]]:
    """The JSON of every ``data:`` line; [DONE] is left out."""
    lines = [line[6:] for line in written.decode().split("\n") if line.startswith("data: ")]
    found = [json.loads(line) for line in lines if line != "[DONE]"]
    for chunk in found:
        # The SDK's stricter check knows no custom calls in chunks; its parser passes them.
        if "error" not in chunk and '"custom"' not in json.dumps(chunk):
            ChatCompletionChunk.model_validate(chunk)
    return found


def test_messages_keep_their_places_and_kinds() -> None:
    found = translated(
        messages=[
            {"role": "system", "content": "first"},
            {
                "role": "user",
                "content": [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "data:x"}}],
            },
            {
                "role": "assistant",
                "content": "I call",
                "reasoning_content": "hm",
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}},
                    {"id": "c2", "type": "custom", "custom": {"name": "patch", "input": "***"}},
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "one"},
            {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "two"}]},
            {"role": "developer", "content": "late"},
        ]
    )
    assert found["input"] == [
        {"type": "message", "role": "system", "content": "first"},
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "look"}, {"type": "input_image", "image_url": "data:x"}],
        },
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "I call", "annotations": [], "logprobs": []}],
        },
        {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "c2", "name": "patch", "input": "***"},
        {"type": "function_call_output", "call_id": "c1", "output": "one"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "two"}]},
        {"type": "message", "role": "developer", "content": "late"},
    ]


def test_tools_and_choices_lose_their_nesting() -> None:
    found = translated(
        tools=[
            {
                "type": "function",
                "function": {"name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True},
            },
            {
                "type": "custom",
                "custom": {
                    "name": "p",
                    "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: x"}},
                },
            },
        ],
        tool_choice={"type": "function", "function": {"name": "f"}},
        parallel_tool_calls=False,
    )
    assert found["tools"] == [
        {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True},
        {"type": "custom", "name": "p", "format": {"type": "grammar", "syntax": "lark", "definition": "start: x"}},
    ]
    assert found["tool_choice"] == {"type": "function", "name": "f"}
    assert found["parallel_tool_calls"] is False
    allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "f"}}]}
    found = translated(tool_choice={"type": "allowed_tools", "allowed_tools": allowed})
    assert found["tool_choice"] == {
        "type": "allowed_tools",
        "mode": "required",
        "tools": [{"type": "function", "name": "f"}],
    }


def test_options_find_their_names() -> None:
    schema = {"type": "object", "properties": {}}
    found = translated(
        max_tokens=5,
        stop="END",
        top_k=-1,
        seed=3,
        reasoning_effort="low",
        verbosity="low",
        response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}},
        prediction={"type": "content", "content": [{"type": "text", "text": "ab"}, {"type": "text", "text": "c"}]},
        n=1,
        presence_penalty=0,
        chat_template_kwargs={"enable_thinking": True},
    )
    assert (found["max_output_tokens"], found["stop"], found["top_k"], found["seed"]) == (5, ["END"], 0, 3)
    assert found["text"]["format"] == {"type": "json_schema", "name": "n", "schema": schema, "strict": True}
    assert found["text"]["verbosity"] == "low" and found["reasoning"]["effort"] == "low"
    assert found["prediction"]["content"] == "abc"
    assert found["store"] is False
    assert translated(chat_template_kwargs={"enable_thinking": False})["reasoning"]["effort"] == "none"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"presence_penalty": 1.5}, "presence_penalty"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"chat_template_kwargs": {"x": 1}}, "chat_template_kwargs.x"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [AUDIO]}]}, "messages[0].content[0]"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"response_format": NO_SCHEMA}, "response_format.json_schema.schema"),
    ],
)  # fmt: skip
def test_what_cannot_be_served_is_refused_by_name(body: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as refusal:
        translated(**body)
    assert refusal.value.param == param and refusal.value.status == 400


def test_a_streamed_answer_with_thoughts_text_and_calls() -> None:
    answer = Answer(ResponseRequest(model="m"))
    write = ChunkWriter(usage=True)
    thought = Reasoning("rs_1", content=[ReasoningText("hm")])
    written = write(answer.begin())
    written += write([ev.ItemAdded(2, 0, Reasoning("rs_1")), ev.ReasoningTextDelta(3, "rs_1", 0, 0, "hm")])
    # A summary beside the raw text says the same again.
    written += write([ev.ReasoningSummaryTextDelta(4, "rs_1", 0, 0, "HM"), ev.ItemDone(5, 0, thought)])
    answer.response.output.append(thought)
    written += write([*answer.message(["Hel", "lo"]), *answer.call("f", ['{"a"', ":1}"]), *answer.call("g", ["{}"])])
    custom = CustomToolCall("call_9", "patch", "", None, "ctc_9")
    written += write([ev.ItemAdded(90, 4, custom), ev.CustomInputDelta(91, "ctc_9", 4, "***")])
    written += write([ev.Keepalive(sequence_number=92)])
    written += write(answer.completed())
    assert written.endswith(b"data: [DONE]\n\n") and b"\n: keep-alive\n" in written
    found = chunks(written)
    deltas = [chunk["choices"][0]["delta"] for chunk in found if chunk["choices"]]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "hm"
    assert "".join(delta.get("content", "") for delta in deltas) == "Hello"
    calls: dict[int, dict[str, Any]] = {}
    for delta in deltas:
        for piece in delta.get("tool_calls", ()):
            call = calls.setdefault(piece["index"], {"text": ""})
            call.update({name: value for name, value in piece.items() if name in ("id", "type")})
            inner = piece.get("function") or piece.get("custom")
            call["name"] = inner.get("name", call.get("name"))
            call["text"] += inner.get("arguments", inner.get("input", ""))
    assert [(call["type"], call["name"], call["text"]) for call in calls.values()] == [
        ("function", "f", '{"a":1}'),
        ("function", "g", "{}"),
        ("custom", "patch", "***"),
    ]
    assert [chunk["choices"][0]["finish_reason"] for chunk in found if chunk["choices"]][-1] == "tool_calls"
    usage = found[-1]["usage"]
    assert found[-1]["choices"] == [] and usage["prompt_tokens"] == 20
    assert usage["prompt_tokens_details"]["cached_tokens"] == 8
    assert usage["completion_tokens_details"] == {
        "reasoning_tokens": 3,
        "accepted_prediction_tokens": 5,
        "rejected_prediction_tokens": 1,
    }
    assert {chunk["id"] for chunk in found} == {f"chatcmpl-{answer.response.id[5:]}"}


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("max_output_tokens", "length"),
        ("max_time", "length"),
        ("content_filter", "content_filter"),
        ("stopped", "stop"),
    ],
)
def test_a_cut_answer_says_why(reason: str, finish: str) -> None:
    answer = Answer(ResponseRequest(model="m"))
    events = [*answer.begin(), *answer.message(["x"]), *answer.incomplete(reason)]
    assert chunks(ChunkWriter(False)(events))[-1]["choices"][0]["finish_reason"] == finish
    assert completion(answer.response).choices[0].finish_reason == finish


def test_a_failure_in_the_stream_is_an_error_and_no_done() -> None:
    answer = Answer(ResponseRequest(model="m"))
    written = ChunkWriter(True)([*answer.begin(), *answer.failed("rate_limit_exceeded", "slowly")])
    assert chunks(written)[-1]["error"] == {
        "message": "slowly",
        "type": "rate_limit_error",
        "param": None,
        "code": "rate_limit_exceeded",
    }
    assert b"[DONE]" not in written
    with pytest.raises(BadRequest) as refusal:
        completion(answer.response)
    assert refusal.value.status == 429


def test_a_whole_answer() -> None:
    answer = Answer(ResponseRequest(model="m"))
    for _ in (*answer.begin(), *answer.message(["Hel", "lo"]), *answer.call("f", ["{}"]), *answer.completed()):
        pass
    found = json.loads(msgspec.json.encode(completion(answer.response)))
    parsed = ChatCompletion.model_validate(found)
    message = parsed.choices[0].message
    assert message.content == "Hello" and message.tool_calls is not None
    assert parsed.choices[0].finish_reason == "tool_calls"
    assert parsed.usage is not None and parsed.usage.total_tokens == 32

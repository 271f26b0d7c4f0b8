"""Requests and frames: what clients send is understood, what is wrong is named, and nothing else can happen."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.responses import ResponsesClientEvent
from pydantic import TypeAdapter

from tests.protocol import strategies as some
from vivace.protocol import items as it
from vivace.protocol.errors import BadRequest
from vivace.protocol.items import encode
from vivace.protocol.requests import (
    CancelFrame,
    ClientFrame,
    CreateFrame,
    InjectFrame,
    OtherFrame,
    Prediction,
    ResponseRequest,
    SteerFrame,
    decode_frame,
    decode_request,
    written_tools,
)

CODEX: dict[str, Any] = {
    "model": "vivace-30b",
    "input": [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "You are an agent."}]},
        {"type": "reasoning", "summary": [], "content": None, "encrypted_content": "v1:AA"},
        {"type": "function_call", "call_id": "call_1", "name": "exec_command", "arguments": "{}", "namespace": "ns"},
        {"type": "function_call_output", "call_id": "call_1", "output": [{"type": "input_text", "text": "ok"}]},
        {"type": "custom_tool_call", "call_id": "call_2", "name": "apply_patch", "input": "*** Begin Patch"},
        {"type": "compaction_trigger"},
    ],
    "tools": [
        {"type": "function", "name": "exec_command", "strict": False, "parameters": {"type": "object"}},
        {
            "type": "custom",
            "name": "apply_patch",
            "format": {"type": "grammar", "syntax": "lark", "definition": "a: b"},
        },
        {
            "type": "namespace",
            "name": "ns",
            "description": "",
            "tools": [{"type": "function", "name": "spawn", "parameters": {}}],
        },
        {"type": "web_search"},
    ],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "reasoning": {"effort": "ultra", "summary": "auto"},
    "store": False,
    "stream": True,
    "include": ["reasoning.encrypted_content", "something.new"],
    "prompt_cache_key": "0198",
    "client_metadata": {"thread_id": "t"},
    "text": {"verbosity": "low", "format": {"type": "json_schema", "name": "o", "schema": {}, "strict": True}},
    "service_tier": "turbo",
    "x_unknown": {"a": 1},
}
FULL: dict[str, Any] = {
    **CODEX,
    "previous_response_id": "resp_1",
    "instructions": "be brief",
    "max_output_tokens": 20,
    "temperature": 0.5,
    "top_p": 1,
    "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []},
    "metadata": {"a": "b"},
    "truncation": "auto",
    "context_management": [{"type": "compaction", "compact_threshold": 1000}],
    "prompt_cache_options": {"mode": "implicit", "prewarm": True},
    "prediction": {"type": "content", "content": "code"},
    "seed": 1,
    "stop": ["x"],
    "stream_id": "lane-1",
}
FRAMES = [
    {"type": "response.create", **FULL},
    {"type": "response.steer", "previous_response_id": "resp_1", "input": "stop that", "preempt": True},
    {"type": "response.cancel", "response_id": "resp_1", "stream_id": "a"},
    {
        "type": "response.inject",
        "response_id": "r",
        "input": [{"type": "function_call_output", "call_id": "c", "output": ""}],
    },
    {"type": "response.interrupt", "discard_partial_items": True},
]


def test_what_codex_sends() -> None:
    request = decode_request(json.dumps(CODEX).encode())
    assert isinstance(request.input, list)
    assert [type(item) for item in request.input] == [
        it.Message, it.Reasoning, it.FunctionCall, it.FunctionCallOutput, it.CustomToolCall, it.CompactionTrigger
    ]  # fmt: skip
    assert request.tools == CODEX["tools"]
    assert request.store is False
    assert request.reasoning is not None
    assert request.reasoning.effort == "ultra"
    assert request.service_tier == "turbo"
    assert not request.prepares_only


def test_what_is_not_said_is_not_known_and_not_written() -> None:
    request = decode_request(b'{"model":"m","input":"hi"}')
    assert request == ResponseRequest(model="m", input="hi")
    assert request.store is None
    assert json.loads(encode(request)) == {"model": "m", "input": "hi"}
    assert json.loads(encode(decode_request(b'{"model":"m"}'))) == {"model": "m", "input": []}


def test_a_request_comes_out_as_it_went_in() -> None:
    request = decode_request(json.dumps(FULL).encode())
    known = {key: value for key, value in FULL.items() if key != "x_unknown"}
    written = json.loads(encode(request))
    del written["input"], known["input"]
    assert written == known
    assert decode_request(encode(request)) == request
    assert request.prepares_only


@pytest.mark.parametrize(
    "content", ["some code", [{"type": "text", "text": "some "}, {"type": "text", "text": "code"}]]
)
def test_a_prediction_is_text_however_it_is_given(content: Any) -> None:
    body = {"model": "m", "input": "x", "prediction": {"type": "content", "content": content}}
    assert decode_request(json.dumps(body).encode()).prediction == Prediction("some code")


@pytest.mark.parametrize(
    ("change", "param", "code"),
    [
        ({"model": None}, "model", "invalid_type"),
        ({"model": ...}, "model", "missing_required_parameter"),
        ({"input": {"role": "user"}}, "input", "invalid_type"),
        ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input[0].content[0].text",
         "missing_required_parameter"),
        ({"input": ["a"]}, "input[0]", "invalid_type"),
        ({"input": [{"role": "robot", "content": ""}]}, "input[0].role", "invalid_value"),
        ({"tools": {}}, "tools", "invalid_type"),
        ({"tools": [{"name": "f"}]}, "tools[0].type", "missing_required_parameter"),
        ({"tool_choice": "sometimes"}, "tool_choice", "invalid_value"),
        ({"tool_choice": {"name": "f"}}, "tool_choice.type", "missing_required_parameter"),
        ({"truncation": "left"}, "truncation", "invalid_value"),
        ({"text": {"format": {"type": "yaml"}}}, "text.format.type", "invalid_value"),
        ({"text": {"verbosity": "epic"}}, "text.verbosity", "invalid_value"),
        ({"temperature": 3}, "temperature", "invalid_value"),
        ({"max_output_tokens": 0}, "max_output_tokens", "invalid_value"),
        ({"metadata": {"a": 1}}, "metadata", "invalid_type"),
        ({"stream_id": ""}, "stream_id", "invalid_stream_id"),
        ({"stream_id": "a b"}, "stream_id", "invalid_stream_id"),
        ({"stream_id": "a\n"}, "stream_id", "invalid_stream_id"),
        ({"stream_id": "x" * 257}, "stream_id", "invalid_stream_id"),
        ({"prediction": {"type": "content", "content": 1}}, "prediction.content", "invalid_type"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(change: dict[str, Any], param: str, code: str) -> None:
    body = {key: value for key, value in {**CODEX, **change}.items() if value is not ...}
    with pytest.raises(BadRequest) as refusal:
        decode_request(json.dumps(body).encode())
    assert (refusal.value.param, refusal.value.code, refusal.value.status) == (param, code, 400)
    assert param in refusal.value.message
    with pytest.raises(BadRequest) as refusal:
        decode_frame(json.dumps({"type": "response.create", "stream_id": "lane", **body}))
    assert (refusal.value.param, refusal.value.code) == (param, code)
    assert refusal.value.stream_id == (None if param == "stream_id" else "lane")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"nul",
        b"\xff",
        b'{"model":"\xff"}',
        b'{"model":"\\ud800"}',
        b'{"model":"m","x":' + b"[" * 200_000,
    ],
)
def test_no_json_object(body: bytes) -> None:
    frame = body.replace(b"{", b'{"type":"response.create",', 1)
    for decode in (lambda: decode_request(body), lambda: decode_frame(frame)):
        with pytest.raises(BadRequest) as refusal:
            decode()
        assert refusal.value.code in ("invalid_json", "invalid_type")
        assert refusal.value.param is None
        assert len(refusal.value.message) < 600


def test_frames() -> None:
    create, steer, cancel, inject, other = (decode_frame(json.dumps(frame)) for frame in FRAMES)
    assert isinstance(create, CreateFrame)
    assert isinstance(create, ResponseRequest)
    assert create.stream_id == "lane-1"
    assert steer == SteerFrame(previous_response_id="resp_1", input="stop that", preempt=True)
    assert cancel == CancelFrame(response_id="resp_1", stream_id="a")
    assert isinstance(inject, InjectFrame)
    assert inject.input == [it.FunctionCallOutput("c", "")]
    assert other == OtherFrame("response.interrupt", {"type": "response.interrupt", "discard_partial_items": True})
    for frame in (create, steer, cancel, inject):
        assert decode_frame(encode(frame)) == frame


@pytest.mark.parametrize("text", ['{"model":"m"}', '{"type":5}', '{"type":null}'])
def test_a_frame_without_a_type(text: str) -> None:
    with pytest.raises(BadRequest) as refusal:
        decode_frame(text)
    assert refusal.value.param == "type"


def test_the_sdk_reads_our_frames() -> None:
    """Words of our own and Codex CLI's missing ids aside: the SDK's types list OpenAI's tiers, efforts and includes."""
    events: TypeAdapter[Any] = TypeAdapter(ResponsesClientEvent)
    words: dict[str, Any] = {"reasoning": {"effort": "high"}, "include": [], "service_tier": "priority"}
    words["input"] = [{"id": "rs_1", **item} if item["type"] == "reasoning" else item for item in CODEX["input"]]
    for frame in ({**FRAMES[0], **words}, FRAMES[1]):
        assert events.validate_json(encode(decode_frame(json.dumps(frame)))).type == frame["type"]


@settings(max_examples=300)
@given(st.binary(max_size=60) | some.mutated([json.dumps(FULL).encode(), json.dumps(CODEX).encode()]))
def test_hostile_bodies_give_a_request_or_a_refusal(body: bytes) -> None:
    try:
        request = decode_request(body)
    except BadRequest as refusal:
        assert refusal.status == 400
        return
    assert decode_request(encode(request)) == request


@settings(max_examples=300)
@given(st.text(max_size=40) | some.mutated([json.dumps(frame).encode() for frame in FRAMES]))
def test_hostile_frames_give_a_frame_or_a_refusal(data: str | bytes) -> None:
    try:
        frame = decode_frame(data)
    except BadRequest as refusal:
        assert refusal.status == 400
        return
    assert isinstance(frame, ClientFrame)


@given(some.objects)
def test_unknown_keys_pass(rest: dict[str, Any]) -> None:
    new = {f"x_{key}": value for key, value in rest.items()}
    assert decode_request(json.dumps({**FULL, **new}).encode()) == decode_request(json.dumps(FULL).encode())


@given(st.lists(some.items, max_size=4))
def test_items_of_a_request_round_trip(items: list[it.Item]) -> None:
    assert decode_request(encode(ResponseRequest(model="m", input=items))).input == items


def test_the_same_tools_are_parsed_once_and_written_as_they_are() -> None:
    tools = [{"type": "function", "name": "a", "parameters": {"b": [1, None, "é\n"]}}]
    body = json.dumps({"model": "m", "tools": tools}, indent=1).encode()
    one, other = decode_request(body), decode_request(body)
    assert one.tools == tools
    assert one.tools is other.tools
    assert json.loads(encode(one))["tools"] == tools
    assert encode({"tools": written_tools(one.tools)}) == encode({"tools": tools}), "on one line, for events"
    assert (written_tools(None), written_tools(tools)) == ([], tools)
    assert decode_request(b'{"model":"m","tools":null}').tools is None
    assert decode_request(b'{"model":"m","tools":[]}').tools == []


@pytest.mark.parametrize("size", [10, 300_000])
def test_faults_of_tools_name_their_place(size: int) -> None:
    for tools, param in (('[{"type":"x"},5]', "tools[1]"), ('{"a":1}', "tools"), ('[{"name":"a"}]', "tools[0].type")):
        for decode in (decode_request, decode_frame):
            text = f'{{"model":"m","type":"response.create","tools":{tools}{" " * size}}}'
            for _ in range(2):
                with pytest.raises(BadRequest) as raised:
                    decode(text.encode())
                assert raised.value.param == param

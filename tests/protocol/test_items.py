"""Items decode as clients send them, encode as OpenAI's types have them, and what is unknown passes unchanged."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from openai.types.responses import ResponseOutputItem
from pydantic import TypeAdapter

from tests.protocol import strategies as some
from vivace.protocol import items as it


@given(some.items)
def test_round_trip(item: it.Item) -> None:
    assert it.items_of(msgspec.Raw(b"[" + it.encode(item) + b"]")) == [item]
    assert it.items_of([it.to_builtins(item)]) == [item]
    assert it.item_of(it.to_builtins(item)) == item
    assert isinstance(item, it.Item)
    assert isinstance(it.item_text(item), str)


@given(some.parts)
def test_parts_round_trip(part: it.ContentPart) -> None:
    assert it.part_of(json.loads(it.encode(part))) == part


def test_a_string_is_one_user_message() -> None:
    assert it.items_of("fix it") == [it.Message("user", "fix it")]
    assert it.items_of(msgspec.Raw(b'"fix it"')) == [it.Message("user", "fix it")]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        # opencode: neither type nor id, the system's content a plain string
        ({"role": "system", "content": "be brief"}, it.Message("system", "be brief")),
        ({"type": None, "role": "user", "content": []}, it.Message("user", [])),
        (
            {"role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
            it.Message("assistant", [it.OutputText("a")]),
        ),
        ({"id": "msg_1"}, it.ItemReference("msg_1")),
        # Codex CLI: null content beside a blob, keys of its own
        (
            {"type": "reasoning", "summary": [], "content": None, "encrypted_content": "v1:x"},
            it.Reasoning(encrypted_content="v1:x"),
        ),
        (
            {
                "type": "function_call",
                "call_id": "c",
                "name": "f",
                "arguments": "{}",
                "internal_chat_message_metadata_passthrough": {"turn_id": "t"},
            },
            it.FunctionCall("c", "f", "{}"),
        ),
        (
            {
                "type": "function_call_output",
                "call_id": "c",
                "output": [{"type": "input_image", "image_url": "data:x"}],
            },
            it.FunctionCallOutput("c", [it.InputImage("data:x")]),
        ),
        (
            {"type": "agent_message", "content": [{"type": "zz"}]},
            it.OtherItem(type="agent_message", content=[{"type": "zz"}]),
        ),
        ({"type": 7, "x": 1}, it.OtherItem(type=7, x=1)),
        ({}, it.OtherItem()),
    ],
)
def test_what_clients_send(given: dict[str, Any], expected: it.Item) -> None:
    before = json.dumps(given)
    assert it.items_of([given]) == [expected]
    assert type(it.items_of([given])[0]) is type(expected)
    assert json.dumps(given) == before


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({"role": "robot", "content": ""}, "$.role"),
        ({"type": "function_call", "name": "f", "arguments": "{}"}, "call_id"),
        ({"role": "user", "content": [{"type": "input_text", "text": 1}]}, "$.text"),
        ("text", "$[0]"),
    ],
)
def test_a_known_type_must_have_its_shape(given: Any, path: str) -> None:
    with pytest.raises(msgspec.ValidationError) as refusal:
        it.items_of([given])
    assert path in str(refusal.value)


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (
            it.Message("assistant", [], "msg_1", "in_progress"),
            {"type": "message", "role": "assistant", "content": [], "id": "msg_1", "status": "in_progress"},
        ),
        (it.Reasoning("rs_1"), {"type": "reasoning", "id": "rs_1", "summary": []}),
        (
            it.FunctionCall("c", "f", "", id="fc_1", status="in_progress"),
            {
                "type": "function_call", "call_id": "c", "name": "f", "arguments": "", "id": "fc_1",
                "status": "in_progress",
            },
        ),
        (
            it.Message("assistant", [it.OutputText("x")], "m", "completed", "final_answer"),
            {
                "type": "message", "role": "assistant", "id": "m", "status": "completed", "phase": "final_answer",
                "content": [{"type": "output_text", "text": "x", "annotations": [], "logprobs": []}],
            },
        ),
        (it.CompactionTrigger(), {"type": "compaction_trigger"}),
    ],
)  # fmt: skip
def test_the_public_shape(item: it.Item, expected: dict[str, Any]) -> None:
    assert json.loads(it.encode(item)) == expected
    assert it.to_builtins(item) == expected


OUTPUT = [
    it.Message("assistant", [it.OutputText("x"), it.Refusal("no")], "msg_1", "completed", "commentary"),
    it.Reasoning("rs_1", [it.SummaryText("s")], [it.ReasoningText("r")], "v1:x", "completed"),
    it.FunctionCall("call_1", "f", "{}", "ns", "fc_1", "completed"),
    it.CustomToolCall("call_2", "apply_patch", "*** Begin Patch", None, "ctc_1", "completed"),
    it.Compaction("v1:x", "cmp_1"),
    it.WebSearchCall("ws_1", "completed", {"type": "search", "query": "q", "queries": ["q"], "sources": []}),
]


@pytest.mark.parametrize("item", OUTPUT, ids=lambda item: type(item).__name__)
def test_the_sdk_reads_output_items(item: it.Item) -> None:
    read = TypeAdapter(ResponseOutputItem).validate_json(it.encode(item))
    kept = read.model_dump(mode="json", exclude_unset=True, by_alias=True)
    assert kept == it.to_builtins(item)


def test_texts() -> None:
    assert (
        it.Message("user", [it.InputText("a"), it.InputImage("data:"), it.OtherPart(type="k", text="b")]).text == "ab"
    )
    assert it.item_text(it.Reasoning(summary=[it.SummaryText("s")])) == "s"
    assert it.item_text(it.Reasoning(summary=[it.SummaryText("s")], content=[it.ReasoningText("r")])) == "r"
    assert it.item_text(it.FunctionCallOutput("c", [it.InputText("o"), it.InputText("k")])) == "ok"
    assert it.item_text(it.CompactionTrigger()) == ""

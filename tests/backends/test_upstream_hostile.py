"""Whatever a server sends, an answer ends; it never raises anything but a fault."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.backends.asking import PATCH, SHELL, assembled, job
from vivace.backends.base import End
from vivace.backends.faults import Fault, fault_of
from vivace.backends.upstream_chat import ChatStream
from vivace.backends.upstream_responses import ResponsesStream

JOB = job(tools=[SHELL, PATCH])
plain = st.none() | st.booleans() | st.integers() | st.text(max_size=6)
anything = st.recursive(plain, lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=6), x, max_size=3))
name = st.sampled_from(["shell", "apply_patch", "other", ""])
call = st.fixed_dictionaries(
    {},
    optional={
        "index": st.integers(0, 2) | st.none(),
        "id": st.sampled_from(["a", "b", ""]) | st.none(),
        "function": st.fixed_dictionaries(
            {},
            optional={
                "name": name,
                "arguments": st.sampled_from(["{", "}", '"a"', ":", "1", "{}", "", "x"]) | st.none(),
            },
        ),
    },
)
delta = st.fixed_dictionaries(
    {},
    optional={
        "content": st.text(max_size=5) | st.none(),
        "reasoning_content": st.text(max_size=5),
        "tool_calls": st.lists(call, max_size=3),
    },
)
finish = st.sampled_from([None, "stop", "length", "tool_calls", "content_filter", "odd"])
chunk = st.fixed_dictionaries(
    {"choices": st.lists(st.fixed_dictionaries({"delta": delta, "finish_reason": finish}), max_size=2)},
    optional={"usage": anything, "error": anything},
)
kinds = [
    "output_text.delta", "reasoning_text.delta", "output_item.added", "output_item.done", "completed", "incomplete",
    "function_call_arguments.delta", "custom_tool_call_input.delta", "failed", "odd",
]  # fmt: skip
item = st.fixed_dictionaries(
    {"type": st.sampled_from(["function_call", "custom_tool_call", "message"]), "name": name},
    optional={
        "call_id": st.text(max_size=3),
        "arguments": st.sampled_from(["{}", "{", ""]),
        "input": st.text(max_size=3),
    },
)
event = st.fixed_dictionaries(
    {"type": st.sampled_from([f"response.{kind}" for kind in kinds] + ["error"])},
    optional={
        "delta": st.text(max_size=5),
        "output_index": st.integers(0, 2),
        "item": item,
        "response": st.dictionaries(st.sampled_from(["usage", "error", "incomplete_details"]), anything),
        "error": anything,
    },
)


def outlast(stream: ChatStream | ResponsesStream, events: list[Any]) -> None:
    pieces: list[Any] = []
    with contextlib.suppress(Fault):
        for one in events:
            pieces += stream.feed(one if isinstance(one, bytes) else json.dumps(one).encode())
        rest, end = stream.finish()
        pieces += rest
        assert isinstance(end, End)
        assert end.usage.total_tokens >= 0
    assembled(pieces)  # calls lie one after the other in any case


@given(st.lists(chunk | st.binary(max_size=20) | anything | st.just(b"[DONE]"), max_size=8))
def test_chat(events: list[Any]) -> None:
    outlast(ChatStream(JOB, "up", "hermes"), events)


@given(st.lists(event | st.binary(max_size=20) | anything, max_size=8))
def test_responses(events: list[Any]) -> None:
    outlast(ResponsesStream(JOB, "up", "hermes"), events)


@given(st.integers(300, 599), st.binary(max_size=30) | anything.map(lambda value: json.dumps(value).encode()))
def test_refusals(status: int, body: bytes) -> None:
    fault = fault_of(status, body, {"retry-after": "x"}, "up")
    assert fault.message
    assert fault.code


def test_nesting() -> None:
    outlast(ChatStream(JOB, "up", "hermes"), [b'{"usage":{"a":' + b"[" * 100_000])

"""``responses.connect()`` of OpenAI's Python SDK: chains, lanes, warming up, steering, errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from openai import AsyncOpenAI, OpenAI

from tests.clients.harness import Server

pytestmark = pytest.mark.clients

RULES: list[dict[str, Any]] = [
    {"when": {"output": "sunny", "said": "in Celsius"}, "steps": [{"text": "It is 21 °C and sunny."}]},
    {"when": {"user": "be brief"}, "steps": [{"text": "Briefly: yes."}]},
    {"when": {"user": "weather"}, "steps": [{"call": "weather", "arguments": {"city": "Rome"}}, {"delay": 0.4}]},
    {"when": {"user": "for ever"}, "steps": [{"text": "So it "}, {"hang": True}]},
    {"when": {"user": "slowly"}, "steps": [{"tokens": 60, "pause": 0.01}, {"reasoning": "Well. "}, {"tokens": 60}]},
    {"when": {"user": "fail"}, "steps": [{"error": "rate_limit_exceeded", "message": "Please try again in 1s."}]},
    {"when": {"turn": 2}, "steps": [{"text": "Hello again."}]},
    {"steps": [{"text": "Hello there."}]},
]

TOOLS: Any = [
    {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}, "strict": False}
]

ENDS = ("response.completed", "response.incomplete", "response.failed", "error")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("server"), RULES) as server:
        yield server


@pytest.fixture
def connection(server: Server) -> Iterator[Any]:
    with OpenAI(base_url=server.base_url, api_key="none") as client, client.responses.connect() as connection:
        yield connection


def read(connection: Any, kind: str | tuple[str, ...] = ENDS) -> list[Any]:
    """Events up to one of this type, that one included."""
    events: list[Any] = []
    while not events or events[-1].type not in (kind if isinstance(kind, tuple) else (kind,)):
        events.append(connection.recv())
    return events


def said(event: Any) -> str:
    return "".join(part.text for item in event.response.output if item.type == "message" for part in item.content)


def test_a_chain_warmed_up_first(connection: Any, server: Server) -> None:
    connection.response.create(model="paced", input=[], instructions="Greet.", generate=False, store=False)
    warm = read(connection)[-1]
    assert (warm.response.output, warm.response.usage.output_tokens) == ([], 0)
    connection.response.create(
        model="paced", input="hi", instructions="Greet.", store=False, previous_response_id=warm.response.id
    )
    first = read(connection)[-1]
    assert said(first) == "Hello there."
    connection.response.create(
        model="paced", input="and now?", instructions="Greet.", store=False, previous_response_id=first.response.id
    )
    events = read(connection)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert said(events[-1]) == "Hello again."
    usage = events[-1].response.usage
    assert usage.input_tokens_details.cached_tokens >= first.response.usage.input_tokens


def test_two_lanes_interleave_and_one_lane_keeps_its_order(connection: Any) -> None:
    for lane, text in (("a", "slowly"), ("b", "slowly"), ("a", "hi")):
        connection.response.create(model="paced", input=text, stream_id=lane)
    events: list[Any] = []
    while sum(event.type in ENDS for event in events) < 3:
        events.append(connection.recv())
    lanes = [event.stream_id for event in events]
    assert set(lanes) == {"a", "b"}
    changes = sum(one != other for one, other in pairwise(lanes))
    assert changes > 10
    of_a = [event.type for event in events if event.stream_id == "a"]
    begun = [i for i, kind in enumerate(of_a) if kind == "response.created"]
    assert len(begun) == 2
    assert of_a[begun[1] - 1] == "response.completed"
    of_b = [event.sequence_number for event in events if event.stream_id == "b"]
    assert of_b == list(range(len(of_b)))


def test_a_fork_of_another_lanes_response(connection: Any) -> None:
    connection.response.create(model="paced", input="hi", store=False)
    first = read(connection)[-1]
    for lane in ("left", "right"):
        connection.response.create(
            model="paced", input="go on", store=False, stream_id=lane, previous_response_id=first.response.id
        )
    ends = [read(connection)[-1], read(connection)[-1]]
    assert {end.stream_id for end in ends} == {"left", "right"}
    assert [said(end) for end in ends] == ["Hello again."] * 2
    assert {end.response.previous_response_id for end in ends} == {first.response.id}


def test_steering_ends_the_item_and_starts_a_successor(connection: Any) -> None:
    connection.response.create(model="paced", input="slowly", max_output_tokens=500)
    first = read(connection, "response.created")[-1].response.id
    read(connection, "response.output_text.delta")
    connection.response.steer(previous_response_id=first, input="be brief")
    accepted = read(connection, "response.steer.accepted")[-1]
    assert accepted.steer.previous_response_id == first
    assert accepted.steer.id.startswith("steer_")
    ended = read(connection)[-1]
    assert (ended.type, ended.response.incomplete_details.reason) == ("response.incomplete", "steered")
    assert [(item.type, item.status) for item in ended.response.output] == [("message", "completed")]
    created = read(connection, "response.created")[-1].response
    assert (created.previous_response_id, created.max_output_tokens) == (first, 500)
    assert said(read(connection)[-1]) == "Briefly: yes."


def test_steering_waits_for_the_outputs_of_calls(connection: Any, server: Server) -> None:
    connection.response.create(model="paced", input="the weather?", tools=TOOLS)
    first = read(connection, "response.created")[-1].response.id
    read(connection, "response.output_item.added")
    connection.response.steer(previous_response_id=first, input="in Celsius")
    ended = read(connection)[-1]
    assert ended.type == "response.completed"
    (call,) = ended.response.output
    pending = read(connection, "response.steer.pending")[-1]
    assert pending.reason == "waiting_for_required_input"
    assert [(need.type, need.call_id, need.name) for need in pending.required_input] == [
        ("function_call_output", call.call_id, "weather")
    ]
    output: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    connection.response.create(model="paced", input=[output], tools=TOOLS, previous_response_id=first)
    assert said(read(connection)[-1]) == "It is 21 °C and sunny."


def test_steering_what_has_ended_gives_the_input_back(connection: Any) -> None:
    connection.response.create(model="paced", input="hi")
    first = read(connection)[-1].response.id
    connection.response.steer(previous_response_id=first, input="be brief")
    failed = read(connection, "response.steer.failed")[-1]
    assert failed.error.code in ("response_already_completed", "response_not_active")
    assert failed.steer.input == "be brief"


def test_cancelling_ends_a_response_and_the_lane_goes_on(connection: Any, server: Server) -> None:
    connection.response.create(model="paced", input="for ever")
    first = read(connection, "response.created")[-1].response.id
    read(connection, "response.output_text.delta")
    connection.send({"type": "response.cancel", "response_id": first})
    ended = read(connection)[-1]
    assert (ended.type, ended.response.status) == ("response.incomplete", "cancelled")
    connection.response.create(model="paced", input="hi")
    assert said(read(connection)[-1]) == "Hello there."
    assert server.running() == []


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ({"type": "response.create", "model": "paced", "input": "hi", "previous_response_id": "resp_none"},
         "previous_response_not_found"),
        ({"type": "response.create", "model": "nobody", "input": "hi"}, "model_not_found"),
        ({"type": "response.create", "model": "paced", "input": "hi", "stream_id": ""}, None),
        ({"type": "no.such.event"}, "unknown_event"),
        ({"type": "response.create", "model": "paced", "temperature": "hot"}, None),
    ],
)  # fmt: skip
def test_a_bad_frame_is_answered_with_a_status_and_harms_nothing(connection: Any, frame: Any, code: str | None) -> None:
    connection.send_raw(json.dumps(frame))
    error = read(connection, "error")[-1]
    assert isinstance(error.status, int)
    assert 400 <= error.status < 500
    assert code in (None, error.error.code)
    connection.response.create(model="paced", input="hi")
    assert said(read(connection)[-1]) == "Hello there."


def test_a_failure_is_an_event_of_its_response(connection: Any) -> None:
    connection.response.create(model="paced", input="fail", stream_id="x")
    failed = read(connection)[-1]
    assert (failed.type, failed.stream_id, failed.response.error.code) == (
        "response.failed", "x", "rate_limit_exceeded",
    )  # fmt: skip


def test_asynchronous_and_reconnected_after_a_restart(serve: Callable[..., Server]) -> None:
    server = serve(*RULES)

    async def talk() -> tuple[str, str, str]:
        async with AsyncOpenAI(base_url=server.base_url, api_key="none") as client:

            async def ask(connection: Any, text: str, before: str | None) -> Any:
                await connection.response.create(model="paced", input=text, previous_response_id=before)
                while (event := await connection.recv()).type not in ENDS:
                    pass
                return event

            async with client.responses.connect() as connection:
                first = await ask(connection, "hi", None)
            await asyncio.to_thread(server.stop)
            await asyncio.to_thread(server.start)
            async with client.responses.connect() as connection:
                second = await ask(connection, "and now?", first.response.id)
            return first.response.id, second.response.previous_response_id, said(second)

    first, before, text = asyncio.run(talk())
    assert (before, text) == (first, "Hello again.")

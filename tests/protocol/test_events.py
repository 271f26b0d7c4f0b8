"""Every event of the protocol: the published samples, the SDK's own types, and whatever else comes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import ResponsesServerEvent, ResponseStreamEvent
from pydantic import TypeAdapter

from tests.protocol import strategies as some
from vivace.protocol import events as ev
from vivace.protocol import items as it

SAMPLES = Path(__file__).parents[3] / "shared" / "reference" / "samples" / "sample_server_events.json"
SOCKET_ONLY = (ev.ErrorEvent, ev.SteerAccepted, ev.SteerPending, ev.SteerFailed)
NOT_IN_THE_SDK = (ev.Metadata, ev.RateLimits, ev.Keepalive)


@pytest.fixture(scope="module")
def samples() -> list[dict[str, Any]]:
    if not SAMPLES.is_file():
        pytest.skip(f"{SAMPLES} is not here")
    return [sample["event"] for sample in json.loads(SAMPLES.read_text())]


@pytest.fixture(scope="module")
def stream_events() -> TypeAdapter[Any]:
    return TypeAdapter(ResponseStreamEvent)


@pytest.fixture(scope="module")
def socket_events() -> TypeAdapter[Any]:
    return TypeAdapter(ResponsesServerEvent)


def differences(left: Any, right: Any, path: str = "$") -> Iterator[str]:
    if isinstance(left, dict) and isinstance(right, dict):
        for key in sorted(left.keys() | right.keys()):
            yield from differences(left.get(key), right.get(key), f"{path}.{key}")
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for n, pair in enumerate(zip(left, right, strict=True)):
            yield from differences(*pair, f"{path}[{n}]")
    elif left != right:
        yield path


def test_samples_are_known_and_come_out_as_they_went_in(samples: list[dict[str, Any]]) -> None:
    """Apart from null against absent, and the two counts of predicted tokens that OpenAI's Responses usage lacks."""
    extra = "$.response.usage.output_tokens_details."
    ours = {extra + "accepted_prediction_tokens", extra + "rejected_prediction_tokens"}
    for sample in samples:
        event = ev.decode(json.dumps(sample).encode())
        assert not isinstance(event, ev.OtherEvent)
        assert ev.event_type(event) == sample["type"]
        assert set(differences(sample, json.loads(ev.encode(event)))) <= ours


def test_the_sdk_reads_our_samples(
    samples: list[dict[str, Any]], stream_events: TypeAdapter[Any], socket_events: TypeAdapter[Any]
) -> None:
    for sample in samples:
        event = ev.decode(json.dumps(sample))
        adapter = socket_events if isinstance(event, SOCKET_ONLY) else stream_events
        assert adapter.validate_json(ev.encode(event)).type == sample["type"]


def one_of_each() -> list[Any]:
    """The least that each event can be, and a lane."""
    usage = it.Usage(8, it.InputTokensDetails(4, 4), 2, it.OutputTokensDetails(), 10)
    response = it.Response("resp_1", "m", 1.0, output=[it.Message("assistant", [], "msg_1", "completed")], usage=usage)
    values: dict[str, Any] = {
        "response": response,
        "item": it.FunctionCall("call_1", "f", "{}", None, "fc_1", "completed"),
        "part": it.OutputText("x"),
        "error": ev.ErrorBody("m", code="response_not_found"),
        "steer": ev.Steer("resp_1", "steer_1", "be brief"),
        "required_input": [ev.RequiredInput("function_call_output", "call_1", "f")],
        "headers": {"retry-after": "1"},
        "rate_limits": ev.RateLimitWindows(ev.RateLimitWindow(33, 300, 1)),
        "stream_id": "lane",
    }

    def value(field: str, kind: type[msgspec.Struct]) -> Any:
        if field == "part" and "summary" in str(kind.__struct_config__.tag):
            return it.SummaryText("s")
        return values.get(field, 0 if field.endswith(("number", "index")) else "x")

    made = []
    for kind in ev.KNOWN_EVENTS:
        fields = [f for f in msgspec.structs.fields(kind) if f.required or f.name in ("stream_id", "sequence_number")]
        made.append(kind(**{f.name: value(f.name, kind) for f in fields}))
    return made


@pytest.mark.parametrize("event", one_of_each(), ids=ev.event_type)
def test_the_sdk_reads_every_event(
    event: Any, stream_events: TypeAdapter[Any], socket_events: TypeAdapter[Any]
) -> None:
    if isinstance(event, NOT_IN_THE_SDK):
        with pytest.raises(ValueError, match="validation error"):
            socket_events.validate_json(ev.encode(event))
        return
    assert socket_events.validate_json(ev.encode(event)).type == ev.event_type(event)
    if not isinstance(event, SOCKET_ONLY):
        assert stream_events.validate_json(ev.encode(event)).type == ev.event_type(event)


@given(some.known_events)
def test_round_trip(event: ev.Event) -> None:
    data = ev.encode(event)
    assert ev.decode(data) == event
    assert json.loads(data)["type"] == ev.event_type(event)


@given(some.unknown_type, some.objects)
def test_an_unknown_event_passes(kind: str, rest: dict[str, Any]) -> None:
    data = {"type": f"x.{kind}", **rest, "sequence_number": 3}
    event = ev.decode(json.dumps(data))
    assert isinstance(event, ev.OtherEvent)
    assert ev.event_type(event) == data["type"]
    assert event.sequence_number == 3
    assert json.loads(ev.encode(event)) == data
    event.stream_id = "a"
    assert json.loads(ev.encode(event))["stream_id"] == "a"


@given(st.data())
def test_unknown_keys_pass(data: st.DataObject) -> None:
    event = data.draw(some.known_events)
    known = json.loads(ev.encode(event))
    assert ev.decode(json.dumps({**known, "obfuscation": "xyz", "x_new": {"a": []}})) == event


@given(st.binary(max_size=40) | some.mutated([ev.encode(event) for event in one_of_each()]))
def test_hostile_bytes_raise_decode_errors_only(data: bytes) -> None:
    try:
        event = ev.decode(data)
    except (msgspec.DecodeError, UnicodeError):
        return
    assert isinstance(event, ev.Event)
    assert isinstance(json.loads(ev.encode(event)), dict)


def test_optional_keys_are_left_out_and_required_ones_written() -> None:
    delta = ev.TextDelta(5, "msg_1", 0, 0, "Do")
    assert json.loads(ev.encode(delta)) == {
        "type": "response.output_text.delta", "sequence_number": 5, "item_id": "msg_1", "output_index": 0,
        "content_index": 0, "delta": "Do", "logprobs": [],
    }  # fmt: skip
    delta.stream_id = "main"
    assert json.loads(ev.encode(delta))["stream_id"] == "main"


def test_the_flat_error_of_http_streams() -> None:
    flat = {"type": "error", "code": "server_error", "message": "gone", "param": None, "sequence_number": 4}
    event = ev.decode(json.dumps(flat))
    assert isinstance(event, ev.ErrorEvent)
    assert (event.error.code, event.error.message, event.sequence_number) == ("server_error", "gone", 4)


def test_a_known_event_without_its_fields_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="delta"):
        ev.decode(
            b'{"type":"response.output_text.delta","sequence_number":1,"item_id":"a","output_index":0,"content_index":0}'
        )

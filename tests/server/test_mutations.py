"""Mutated frames and bodies on a live server: every one is answered or closed, and a good lane goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2 as httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from websockets.sync.client import ClientConnection, connect

from tests.server.serving import Running, paced, serving

FRAMES: list[dict[str, Any]] = [
    {"type": "response.create", "model": "paced", "input": "hi", "max_output_tokens": 3},
    {"type": "response.create", "model": "paced", "input": [{"role": "user", "content": "hi"}], "stream_id": "b"},
    {"type": "response.steer", "previous_response_id": "resp_1", "input": "brief"},
    {"type": "response.cancel", "response_id": "resp_1"},
    {"type": "response.inject", "response_id": "resp_1", "input": []},
]
BODIES: list[tuple[str, dict[str, Any]]] = [
    ("/responses", {"model": "paced", "input": "hi", "max_output_tokens": 3}),
    ("/chat/completions", {"model": "paced", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}),
    ("/completions", {"model": "paced", "prompt": "hi", "max_tokens": 3}),
    ("/messages", {"model": "paced", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}),
]
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**65), 2**65) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def mutated(draw: st.DrawFn, good: dict[str, Any]) -> bytes:
    """Text of ``good`` with values replaced, keys added or gone, or bytes broken."""
    value = dict(good)
    for name in draw(
        st.lists(st.sampled_from([*good, "tools", "reasoning", "stream_id", "text", "extra"]), max_size=3)
    ):
        if draw(st.booleans()):
            value[name] = draw(values)
        else:
            value.pop(name, None)
    text = bytearray(json.dumps(value).encode())
    for _ in range(draw(st.integers(0, 2))):
        place = draw(st.integers(0, max(0, len(text) - 1)))
        text[place : place + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(text)


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with serving(lambda: paced(5000.0, 0.0)) as found:
        yield found


@pytest.fixture(scope="module")
def line(server: Running) -> Iterator[ClientConnection]:
    with connect(server.ws_url, max_size=None, max_queue=None) as found:
        yield found


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(FRAMES).flatmap(mutated))
def test_a_lane_survives_any_frame_on_another(line: ClientConnection, frame: bytes) -> None:
    line.send(frame, text=True)
    line.send(json.dumps({**FRAMES[0], "stream_id": "good"}))
    while True:
        event = json.loads(line.recv(timeout=10))
        if event["type"] == "error":
            assert isinstance(event["status"], int) and event["error"]["message"]
        elif event.get("stream_id") == "good" and event["type"] in ("response.completed", "response.incomplete"):
            return


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.base_url, timeout=10) as found:
        yield found


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(BODIES).flatmap(lambda pair: st.tuples(st.just(pair[0]), mutated(pair[1]))))
def test_every_body_gets_an_answer(client: httpx.Client, asked: tuple[str, bytes]) -> None:
    path, body = asked
    found = client.post(path, content=body)
    assert found.status_code < 500, (body, found.text)
    if found.status_code >= 400:
        assert found.json()["error"]["message"]

"""WebSockets against a gateway that says what the test wrote down."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import httpx2 as httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.server.scripted import Answer, Batches, ScriptedGateway, endless, hello
from tests.server.serving import KEY, Running, by_key, serving
from tests.server.test_http import gateway_of, wait_for
from vivace.protocol import events as ev
from vivace.protocol.requests import CancelFrame
from vivace.server.call import Call
from vivace.server.lanes import Session
from vivace.server.wire import SocketWire


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with serving(ScriptedGateway) as found:
        yield found


def opened(server: Running, **options: Any) -> ClientConnection:
    return connect(server.ws_url, max_size=None, compression=None, **options)


def create(client: ClientConnection, **fields: Any) -> None:
    client.send(json.dumps({"type": "response.create", "model": "small", "input": "hi", **fields}))


def until(client: ClientConnection, kind: str, seconds: float = 10) -> list[dict[str, Any]]:
    """The events up to the first of a type."""
    found = []
    while True:
        found.append(json.loads(client.recv(timeout=seconds)))
        if found[-1]["type"] == kind:
            return found


def play_by_input(answer: Answer) -> Batches:
    return endless(answer) if answer.request.input == "endless" else hello(answer)


def test_a_response_has_the_events_that_sse_has(server: Running) -> None:
    with opened(server) as client:
        create(client)
        found = until(client, "response.completed")
    text = httpx.post(server.base_url + "/responses", json={"model": "small", "input": "hi", "stream": True}).text
    streamed = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
    assert [_anonymous(event) for event in found] == [_anonymous(event) for event in streamed]


def _anonymous(value: Any) -> Any:
    """Without ids, which differ from response to response."""
    if isinstance(value, dict):
        return {name: "id" if name in ("id", "item_id") else _anonymous(inner) for name, inner in value.items()}
    return [_anonymous(inner) for inner in value] if isinstance(value, list) else value


def test_lanes_run_side_by_side_and_keep_their_names() -> None:
    with serving(lambda: ScriptedGateway(play_by_input)) as server, opened(server) as client:
        create(client, stream_id="slow", input="endless")
        until(client, "response.output_text.delta")
        create(client, stream_id="quick")
        found = until(client, "response.completed")
        assert found[-1]["stream_id"] == "quick"
        running = gateway_of(server).frames[0]
        client.send(json.dumps({"type": "response.cancel", "response_id": "resp_x"}))
        wait_for(lambda: isinstance(gateway_of(server).frames[-1], CancelFrame))
        assert running.stream_id == "slow"
        assert until(client, "response.output_text.delta")[-1]["stream_id"] == "slow", "it still runs"


@pytest.mark.parametrize(
    ("frame", "code", "lane"),
    [
        ("{", "invalid_json", None),
        ("[]", "invalid_type", None),
        ("{}", "missing_required_parameter", None),
        (b"\xff\xfe binary", "invalid_frame", None),
        ('{"type": "response.create", "stream_id": "a", "input": 1, "model": "m"}', "invalid_type", "a"),
        ('{"type": "response.create", "stream_id": "", "model": "m"}', "invalid_stream_id", None),
        ('{"type": "response.create", "stream_id": "b"}', "missing_required_parameter", "b"),
        ('{"type": "response.dance", "stream_id": "c"}', "unknown_event", "c"),
        ('{"type": "response.create", "model": "m", "input": ' + "[" * 100_000, "invalid_json", None),
    ],
)
def test_a_bad_frame_is_answered_on_its_lane_and_harms_nothing(
    server: Running, frame: str | bytes, code: str, lane: str | None
) -> None:
    with opened(server) as client:
        client.send(frame)
        event = json.loads(client.recv(timeout=5))
        assert (event["type"], event["status"], event["error"]["code"]) == ("error", 400, code)
        assert event.get("stream_id") == lane
        create(client)
        assert until(client, "response.completed")[-1]["response"]["status"] == "completed"


def test_text_that_is_not_utf8_is_a_bad_frame(server: Running) -> None:
    with opened(server) as client:
        client.send(b'{"type": "\xff"}', text=True)
        assert json.loads(client.recv(timeout=5))["error"]["code"] == "invalid_json"
        create(client)
        until(client, "response.completed")


def test_fragmented_messages_and_pings(server: Running) -> None:
    with opened(server) as client:
        assert client.ping().wait(5)
        frame = json.dumps({"type": "response.create", "model": "small", "input": "hi"})
        client.send([frame[:10], frame[10:20], frame[20:]])
        until(client, "response.completed")


def test_64_mib_pass_and_more_is_told_before_the_close(server: Running) -> None:
    text = "x" * (64 * 2**20 - 100)
    with opened(server) as client:
        create(client, input=text)
        until(client, "response.completed", 30)
        assert len(gateway_of(server).frames[-1].input) == len(text)
        client.send(json.dumps({"type": "response.create", "model": "small", "input": text + "x" * 2**20}))
        event = json.loads(client.recv(timeout=30))
        assert (event["status"], event["error"]["code"]) == (400, "request_too_large")
        assert "67,108,864 bytes" in event["error"]["message"]
        with pytest.raises(ConnectionClosed) as closed:
            client.recv(timeout=10)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1009


def test_a_client_that_leaves_stops_what_ran_within_100_ms() -> None:
    with serving(lambda: ScriptedGateway(endless)) as server:
        client = opened(server)
        create(client)
        until(client, "response.output_text.delta")
        left = time.monotonic()
        client.socket.shutdown(socket.SHUT_RDWR)  # as Codex CLI does: no close frame
        gateway = gateway_of(server)
        wait_for(lambda: gateway.stopped)
        reason, at = gateway.stopped[0]
        assert reason == "disconnect" and at - left < 0.1
        wait_for(lambda: gateway.lines[0].closed)


def test_a_client_that_takes_nothing_is_cut_off_and_others_go_on() -> None:
    async def wordy(answer: Answer) -> Batches:
        yield answer.begin()
        while True:
            yield [ev.TextDelta(answer.number(), "msg_1", 0, 0, "x" * 100_000)]
            await asyncio.sleep(0.002)

    def play(answer: Answer) -> Batches:
        return wordy(answer) if answer.request.input == "wordy" else hello(answer)

    with serving(lambda: ScriptedGateway(play), stuck_seconds=0.5) as server:
        host, port = server.root.removeprefix("http://").split(":")
        stuck = socket.socket()
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        stuck.connect((host, int(port)))
        stuck.sendall(
            f"GET /v1/responses HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        assert b" 101 " in stuck.recv(4096)
        frame = json.dumps({"type": "response.create", "model": "small", "input": "wordy"}).encode()
        stuck.sendall(bytes((0x81, 0x80 | len(frame), 0, 0, 0, 0)) + frame)
        gateway = gateway_of(server)
        wait_for(lambda: gateway.frames)
        begun = time.monotonic()
        with opened(server) as client:
            while not gateway.stopped:
                asked = time.monotonic()
                create(client)
                until(client, "response.completed")
                assert time.monotonic() - asked < 3
                assert time.monotonic() - begun < 10
        assert gateway.stopped[0][0] == "disconnect"
        stuck.close()


def test_switched_off_an_upgrade_is_answered_with_426() -> None:
    with serving(ScriptedGateway, websockets=False) as server:
        with pytest.raises(InvalidStatus) as refused:
            opened(server)
        assert refused.value.response.status_code == 426
        assert json.loads(refused.value.response.body)["error"]["code"] == "websockets_off"


def test_an_upgrade_needs_a_key_and_the_right_place() -> None:
    with serving(ScriptedGateway, by_key) as server:
        for url, headers, status in (
            (server.ws_url, {}, 401),
            (server.ws_url, {"Authorization": "Bearer no"}, 401),
            (server.ws_url + "/other", {"Authorization": f"Bearer {KEY}"}, 404),
        ):
            with pytest.raises(InvalidStatus) as refused:
                connect(url, additional_headers=headers)
            assert refused.value.response.status_code == status
            assert "error" in json.loads(refused.value.response.body)
        with connect(server.ws_url, additional_headers={"Authorization": f"Bearer {KEY}"}) as client:
            create(client)
            until(client, "response.completed")
        assert gateway_of(server).principals[-1].id == "ann"


def test_pages_of_other_origins_cannot_open_a_socket_without_keys(server: Running) -> None:
    with pytest.raises(InvalidStatus) as refused:
        connect(server.ws_url, origin="http://evil.example")  # type: ignore[arg-type]
    assert refused.value.response.status_code == 403


def test_compression_where_it_is_offered() -> None:
    with serving(ScriptedGateway, compression=True) as server, connect(server.ws_url) as client:
        assert client.protocol.extensions
        create(client)
        assert until(client, "response.completed")[-1]["response"]["output"][0]["content"][0]["text"] == "Hello"


def test_an_old_connection_is_closed_between_responses() -> None:
    async def slow(answer: Answer) -> Batches:
        yield answer.begin()
        await asyncio.sleep(0.6)
        yield [*answer.message(["done"]), *answer.completed()]

    with serving(lambda: ScriptedGateway(slow), connection_seconds=0.3) as server, opened(server) as client:
        create(client)
        assert until(client, "response.completed")[-1]["response"]["status"] == "completed"
        event = json.loads(client.recv(timeout=5))
        assert (event["status"], event["error"]["code"]) == (400, "websocket_connection_limit_reached")
        with pytest.raises(ConnectionClosed):
            client.recv(timeout=5)


def test_connections_are_counted(server: Running) -> None:
    def counted() -> str:
        text = httpx.get(server.root + "/metrics").text
        return next(line for line in text.splitlines() if line.startswith("vivace_websocket_connections "))

    wait_for(lambda: counted().endswith(" 0.0"))
    with opened(server):
        wait_for(lambda: counted().endswith(" 1.0"))
    wait_for(lambda: counted().endswith(" 0.0"))


def test_nothing_of_a_closed_connection_stays(server: Running) -> None:
    for _ in range(20):
        with opened(server) as client:
            create(client)
            until(client, "response.completed")
        httpx.post(server.base_url + "/responses", json={"model": "small", "input": "hi", "stream": True})

    def left() -> int:
        gc.collect()
        return sum(type(found) in (Call, Session, SocketWire) for found in gc.get_objects())

    wait_for(lambda: left() == 0)


def test_names_of_lanes_are_not_kept(server: Running) -> None:
    with opened(server) as client:
        for n in range(300):
            client.send(json.dumps({"type": "response.dance", "stream_id": f"lane{n}"}))
            create(client, stream_id=f"lane{n}")
            until(client, "response.completed")

        def sessions() -> list[Session]:
            return [found for found in gc.get_objects() if type(found) is Session]

        wait_for(lambda: all(not found._watches and not found._asked and found._quiet.is_set() for found in sessions()))
        assert sessions()

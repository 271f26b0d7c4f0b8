"""The HTTP surface against a gateway that says what the test wrote down."""

from __future__ import annotations

import gzip
import json
import socket
import time
import zlib
from collections.abc import Iterator
from typing import Any

import httpx2 as httpx
import pytest
import zstandard

from tests.server.scripted import Answer, Batches, ScriptedGateway, endless, hello, silent
from tests.server.serving import KEY, Running, by_key, serving
from vivace.protocol import events as ev
from vivace.protocol.errors import Refused

ASKING = {"model": "small", "input": "hi"}


def gateway_of(server: Running) -> ScriptedGateway:
    gateway = server.door.gateway
    assert isinstance(gateway, ScriptedGateway)
    return gateway


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with serving(ScriptedGateway) as found:
        yield found


def sse(text: str) -> list[dict[str, Any]]:
    """The events of a body, whose lines must agree."""
    found = []
    for block in text.strip().split("\n\n"):
        name, data = block.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


def wait_for(condition: Any, seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


def test_a_response_as_json_and_as_events(server: Running) -> None:
    whole = httpx.post(server.base_url + "/responses", json=ASKING)
    assert whole.status_code == 200 and whole.json()["status"] == "completed"
    assert whole.json()["output"][0]["content"][0]["text"] == "Hello"
    assert whole.headers["x-request-id"].startswith("req_")
    assert whole.headers["openai-processing-ms"].isdigit()
    assert whole.headers["x-ratelimit-limit-requests"] == "9"
    streamed = httpx.post(server.base_url + "/responses", json={**ASKING, "stream": True})
    assert streamed.headers["content-type"].startswith("text/event-stream")
    assert (streamed.headers["cache-control"], streamed.headers["x-accel-buffering"]) == ("no-cache", "no")
    found = sse(streamed.text)
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    assert (found[0]["type"], found[-1]["type"]) == ("response.created", "response.completed")


def test_stored_responses_can_be_read_paged_cancelled_and_deleted(server: Running) -> None:
    items = [{"role": "user", "content": str(n)} for n in range(5)]
    made = httpx.post(server.base_url + "/responses", json={"model": "small", "input": items}).json()
    at = f"{server.base_url}/responses/{made['id']}"
    assert httpx.get(at).json()["id"] == made["id"]
    resumed = httpx.get(at, params={"stream": "true", "starting_after": "4"})
    assert resumed.headers["x-after"] == "4" and sse(resumed.text)[-1]["type"] == "response.completed"
    page = httpx.get(f"{at}/input_items", params={"limit": 2}).json()
    assert [item["content"] for item in page["data"]] == ["4", "3"] and page["has_more"] is True
    rest = httpx.get(f"{at}/input_items", params={"after": page["last_id"], "limit": 50}).json()
    assert [item["content"] for item in rest["data"]] == ["2", "1", "0"] and rest["has_more"] is False
    oldest = httpx.get(f"{at}/input_items", params={"order": "asc", "limit": 1}).json()
    assert oldest["data"][0]["content"] == "0" and oldest["first_id"] == oldest["last_id"] == oldest["data"][0]["id"]
    for bad, param in (
        ({"limit": 0}, "limit"),
        ({"limit": "x"}, "limit"),
        ({"order": "up"}, "order"),
        ({"after": "no"}, "after"),
    ):
        refused = httpx.get(f"{at}/input_items", params=bad)
        assert refused.status_code == 400 and refused.json()["error"]["param"] == param
    assert httpx.post(f"{at}/cancel").json()["id"] == made["id"]
    assert httpx.delete(at).json() == {"id": made["id"], "object": "response", "deleted": True}
    gone = httpx.get(at)
    assert gone.status_code == 404 and gone.json()["error"]["code"] == "response_not_found"


def test_counting_compacting_and_probing(server: Running) -> None:
    counted = httpx.post(server.base_url + "/responses/input_tokens", json=ASKING).json()
    assert counted == {"object": "response.input_tokens", "input_tokens": 7}
    compacted = httpx.post(server.base_url + "/responses/compact", json=ASKING).json()
    assert compacted["object"] == "response.compaction" and compacted["usage"]["total_tokens"] == 32
    assert compacted["output"][0]["id"] == "msg_kept"
    assert httpx.head(server.base_url + "/responses").status_code == 200
    body = {"model": "small", "messages": [{"role": "user", "content": "hi"}]}
    assert httpx.post(server.base_url + "/messages/count_tokens", json=body).json() == {"input_tokens": 7}


def test_the_translated_protocols_answer_whole_and_streamed(server: Running) -> None:
    chat = {"model": "small", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}
    message = httpx.post(server.base_url + "/chat/completions", json=chat).json()["choices"][0]["message"]
    assert message["content"] == "Hello"
    streamed = httpx.post(server.base_url + "/chat/completions", json={**chat, "stream": True}).text
    assert streamed.endswith("data: [DONE]\n\n") and '"usage"' not in streamed
    raw = {"model": "small", "prompt": "a", "echo": True}
    assert httpx.post(server.base_url + "/completions", json=raw).json()["choices"][0]["text"] == "aHello"
    assert gateway_of(server).requests[-1].prompt == {"raw": "a"}
    answer = httpx.post(server.base_url + "/messages?beta=true", json=chat)
    assert answer.json()["content"] == [{"type": "text", "text": "Hello"}]
    assert answer.headers["request-id"] == answer.headers["x-request-id"]
    assert sse(httpx.post(server.base_url + "/messages", json={**chat, "stream": True}).text)[-1] == {
        "type": "message_stop"
    }


def test_what_headers_tell_reaches_the_gateway(server: Running) -> None:
    told = {"x-session-affinity": "ses_1", "user-agent": "opencode/1", "thread-id": "t1"}
    httpx.post(server.base_url + "/responses", json=ASKING, headers=told)
    gateway = gateway_of(server)
    assert gateway.requests[-1].prompt_cache_key == "ses_1"
    metadata = gateway.principals[-1].metadata
    assert (metadata["user-agent"], metadata["thread-id"], metadata["address"]) == ("opencode/1", "t1", "127.0.0.1")
    assert metadata["request_id"].startswith("req_")


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/v1/nothing", b"", 404, "not_found"),
        ("PUT", "/v1/responses", b"", 405, "method_not_allowed"),
        ("POST", "/v1/responses", b"{", 400, "invalid_json"),
        ("POST", "/v1/responses", b'{"input": 1}', 400, "invalid_type"),
        ("POST", "/v1/responses", b'{"model": "m", "stream_id": "a"}', 400, "invalid_value"),
        ("POST", "/v1/chat/completions", b'{"model": "m"}', 400, "missing_required_parameter"),
        ("POST", "/v1/completions", b'{"model": "m"}', 400, "missing_required_parameter"),
        ("GET", "/v1/models/smal", b"", 404, "model_not_found"),
        ("GET", "/console/../app.py", b"", 404, "not_found"),
        ("GET", "/console/app.py", b"", 404, "not_found"),
    ],
)
def test_refusals_are_json_with_a_code(
    server: Running, method: str, path: str, body: bytes, status: int, code: str
) -> None:
    found = httpx.request(method, server.root + path, content=body)
    assert found.status_code == status and found.json()["error"]["code"] == code
    assert found.json()["error"]["type"] in ("invalid_request_error", "not_found_error")


def test_a_wrong_method_is_told_the_right_ones(server: Running) -> None:
    found = httpx.put(server.base_url + "/responses", content=b"")
    assert found.headers["allow"] == "POST, HEAD, GET"
    assert "use POST, HEAD, GET (with an upgrade to a WebSocket)." in found.json()["error"]["message"]
    found = httpx.put(server.base_url + "/models", content=b"")
    assert found.headers["allow"] == "GET" and "use GET." in found.json()["error"]["message"]
    with serving(websockets=False) as other:
        assert httpx.get(other.base_url + "/responses").headers["allow"] == "POST, HEAD"


def test_anthropic_refusals_have_anthropics_shape(server: Running) -> None:
    found = httpx.post(server.base_url + "/messages", json={"model": "m"})
    body = found.json()
    assert found.status_code == 400 and body["type"] == "error" and body["error"]["type"] == "invalid_request_error"
    assert body["request_id"] == found.headers["x-request-id"]


def test_a_refusal_of_the_gateway_brings_its_headers() -> None:
    refusal = Refused("Too many.", 429, "rate_limit_exceeded", headers={"retry-after": "7", "x-should-retry": "false"})
    with serving(lambda: ScriptedGateway(refusal=refusal)) as server:
        found = httpx.post(server.base_url + "/responses", json=ASKING)
        assert found.status_code == 429 and found.headers["retry-after"] == "7"
        assert found.json()["error"] == {
            "message": "Too many.",
            "type": "rate_limit_error",
            "param": None,
            "code": "rate_limit_exceeded",
        }
        body = {"model": "m", "max_tokens": 1, "messages": []}
        assert httpx.post(server.base_url + "/messages", json=body).json()["error"]["type"] == "rate_limit_error"
        counted = httpx.get(server.root + "/metrics").text
        assert 'vivace_errors_total{code="rate_limit_exceeded",status="429"} 2.0' in counted


def test_a_defect_is_a_500_that_can_be_found_in_the_log() -> None:
    with serving(lambda: ScriptedGateway(refusal=ZeroDivisionError("x"))) as server:
        found = httpx.post(server.base_url + "/responses", json=ASKING)
        assert found.status_code == 500 and found.json()["error"]["code"] == "internal_error"
        assert found.headers["x-request-id"] in found.json()["error"]["message"]
        assert "x" not in found.json()["error"]["message"].split()


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        ("gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("zstd", zstandard.ZstdCompressor().compress),
        ("identity", bytes),
    ],
)
def test_packed_bodies_are_read(server: Running, encoding: str, pack: Any) -> None:
    body = pack(json.dumps(ASKING).encode())
    found = httpx.post(server.base_url + "/responses", content=body, headers={"content-encoding": encoding})
    assert found.status_code == 200


def test_bodies_that_do_not_unpack_or_unpack_to_too_much() -> None:
    with serving(ScriptedGateway, max_message_bytes=100_000) as server:

        def post(content: bytes, encoding: str) -> httpx.Response:
            return httpx.post(server.base_url + "/responses", content=content, headers={"content-encoding": encoding})

        assert post(b"{}", "br").status_code == 415
        for encoding in ("gzip", "deflate", "zstd"):
            found = post(b"{}", encoding)
            assert found.status_code == 400 and found.json()["error"]["code"] == "invalid_body"
        bomb = b" " * 50_000_000
        for encoding, packed in (("gzip", gzip.compress(bomb)), ("zstd", zstandard.ZstdCompressor().compress(bomb))):
            assert len(packed) < 100_000
            found = post(packed, encoding)
            assert found.status_code == 413 and "100,000 bytes" in found.json()["error"]["message"]


def test_the_limit_is_64_mib_and_says_so(server: Running) -> None:
    text = "x" * (64 * 2**20 - 100)
    with httpx.Client(timeout=60) as client:
        fits = json.dumps({"model": "small", "input": text}).encode()
        assert len(fits) <= 64 * 2**20
        assert client.post(server.base_url + "/responses", content=fits).status_code == 200
        for content in (fits + b" " * 2**20, iter([fits, b" " * 2**20])):  # with and without a content-length
            found = client.post(server.base_url + "/responses", content=content)
            assert found.status_code == 413 and "67,108,864 bytes" in found.json()["error"]["message"]
        assert client.get(server.root + "/healthz").status_code == 200


def test_a_failed_response_closes_the_body_at_once() -> None:
    async def play(answer: Answer) -> Batches:
        yield answer.begin()
        yield answer.failed("server_error", "worker lost")

    with serving(lambda: ScriptedGateway(play)) as server:
        begun = time.monotonic()
        found = httpx.post(server.base_url + "/responses", json={**ASKING, "stream": True})
        assert sse(found.text)[-1]["type"] == "response.failed" and time.monotonic() - begun < 1
        whole = httpx.post(server.base_url + "/responses", json=ASKING)
        assert whole.status_code == 500 and whole.json()["error"]["message"] == "worker lost"


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions", "/v1/messages"])
@pytest.mark.parametrize("play", [silent, endless])
@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_stops_its_response_within_100_ms(path: str, play: Any, stream: bool) -> None:
    with serving(lambda: ScriptedGateway(play)) as server:
        gateway = gateway_of(server)
        body = json.dumps(
            {**ASKING, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 9, "stream": stream}
        ).encode()
        host, port = server.root.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as client:
            client.sendall(
                f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
            )
            if stream:
                assert client.recv(4096).startswith(b"HTTP/1.1 200")
            wait_for(lambda: gateway.streams)
            time.sleep(0.05)
            assert not gateway.stopped
            left = time.monotonic()
        wait_for(lambda: gateway.stopped)
        reason, at = gateway.stopped[0]
        assert reason == "disconnect" and at - left < 0.1


def test_a_client_that_takes_nothing_is_cut_off_and_others_go_on() -> None:
    async def wordy(answer: Answer) -> Batches:
        yield answer.begin()
        for _ in range(400):
            yield [ev.TextDelta(answer.number(), "msg_1", 0, 0, "x" * 100_000)]
        yield answer.completed()

    def play(answer: Answer) -> Batches:
        return wordy(answer) if answer.request.input == "wordy" else hello(answer)

    with serving(lambda: ScriptedGateway(play), stuck_seconds=0.5) as server:
        host, port = server.root.removeprefix("http://").split(":")
        body = json.dumps({"model": "small", "input": "wordy", "stream": True}).encode()
        with socket.create_connection((host, int(port))) as client:
            client.sendall(
                f"POST /v1/responses HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
            )
            begun = time.monotonic()
            waits = []
            while time.monotonic() - begun < 1.2:
                asked = time.monotonic()
                assert httpx.post(server.base_url + "/responses", json=ASKING).status_code == 200
                waits.append(time.monotonic() - asked)
            assert max(waits) < 3
            client.settimeout(5)
            received = 0
            try:
                while piece := client.recv(1 << 20):
                    received += len(piece)
            except ConnectionResetError:
                pass
            assert received < 40_000_000, "the connection was cut before everything was sent"


def test_a_background_response_is_not_stopped_by_its_reader() -> None:
    with serving(lambda: ScriptedGateway(endless)) as server:
        gateway = gateway_of(server)
        made = httpx.post(server.base_url + "/responses", json={**ASKING, "background": True})
        assert made.json()["status"] == "in_progress"
        with httpx.stream(
            "POST", server.base_url + "/responses", json={**ASKING, "background": True, "stream": True}
        ) as found:
            next(found.iter_bytes())
        time.sleep(0.1)
        assert not gateway.stopped
        server.call(gateway.close)


def test_keys_open_the_door_by_either_header() -> None:
    with serving(ScriptedGateway, by_key) as server:
        for headers in ({"authorization": f"Bearer {KEY}"}, {"x-api-key": KEY}, {"authorization": f"bearer  {KEY}"}):
            assert httpx.post(server.base_url + "/responses", json=ASKING, headers=headers).status_code == 200
        assert gateway_of(server).principals[-1].id == "ann"
        for headers, code in (
            ({}, "missing_api_key"),
            ({"authorization": "Bearer no"}, "invalid_api_key"),
            ({"authorization": f"Basic {KEY}"}, "missing_api_key"),
            ({"x-api-key": "\xe4"}, "invalid_api_key"),
        ):
            found = httpx.post(server.base_url + "/responses", json=ASKING, headers=httpx.Headers(headers, "latin-1"))
            assert found.status_code == 401 and found.json()["error"]["code"] == code
            assert found.headers["www-authenticate"] == "Bearer"
        for path in ("/metrics", "/console/overview", "/v1/models"):
            assert httpx.get(server.root + path).status_code == 401
        for path in ("/healthz", "/readyz", "/", "/console/console.js"):
            assert httpx.get(server.root + path).status_code == 200


def test_an_open_door_answers_to_its_own_names_and_pages_only(server: Running) -> None:
    port = server.root.rsplit(":", 1)[1]
    for headers, status in (
        ({"host": f"localhost:{port}"}, 200),
        ({"host": "evil.example"}, 403),
        ({"host": "localhost.evil.example"}, 403),
        ({"host": "[::1"}, 403),
        ({"origin": "http://[::1"}, 403),
        ({"origin": server.root}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": f"http://localhost:{port}"}, 403),
    ):
        found = httpx.post(server.base_url + "/responses", json=ASKING, headers=headers)
        assert found.status_code == status, headers
        assert "access-control-allow-origin" not in found.headers
    asking = {"origin": "http://evil.example", "access-control-request-method": "POST"}
    assert httpx.options(server.base_url + "/responses", headers=asking).status_code == 403


def test_allowed_origins_may_read() -> None:
    origin = "https://ide.example.com"
    with serving(ScriptedGateway, by_key, allow_origins=(origin,)) as server:
        asking = {
            "origin": origin,
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization,content-type",
        }
        before = httpx.options(server.base_url + "/responses", headers=asking)
        assert before.status_code == 204 and before.headers["access-control-allow-origin"] == origin
        assert before.headers["access-control-allow-headers"] == "authorization,content-type"
        headers = {"origin": origin, "authorization": f"Bearer {KEY}"}
        found = httpx.post(server.base_url + "/responses", json=ASKING, headers=headers)
        assert found.headers["access-control-allow-origin"] == origin and found.headers["vary"] == "origin"


def test_broken_http_is_answered_in_json(server: Running) -> None:
    host, port = server.root.removeprefix("http://").split(":")
    for junk in (b"\x00\x01\x02\r\n\r\n", b"GET / HTTP/1.1\r\nx: " + b"y" * 100_000 + b"\r\n\r\n"):
        with socket.create_connection((host, int(port))) as client:
            client.sendall(junk)
            assert b"invalid_http" in client.recv(65536)
    assert httpx.get(server.root + "/healthz").json()["status"] == "ok"


def test_counts_for_prometheus(server: Running) -> None:
    httpx.post(server.base_url + "/responses", json={**ASKING, "stream": True})
    text = httpx.get(server.root + "/metrics").text
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    model = '{model_name="small"}'
    assert float(values[f"vllm:generation_tokens_total{model}"]) % 12 == 0
    assert float(values[f"vllm:prefix_cache_hits_total{model}"]) * 20 == 8 * float(
        values[f"vllm:prompt_tokens_total{model}"]
    )
    assert values[f"vllm:num_requests_running{model}"] == "0.0"
    assert float(values[f"vllm:time_to_first_token_seconds_count{model}"]) >= 1
    assert 'vllm:inter_token_latency_seconds_bucket{le="0.0002",model_name="small"}' in values
    genai = 'gen_ai_operation_name="responses",gen_ai_request_model="small"'
    assert float(values[f"gen_ai_server_request_duration_seconds_count{{{genai}}}"]) >= 1
    assert any(name.startswith("gen_ai_client_token_usage_sum{") and 'token_type="output"' in name for name in values)
    assert 'vivace_http_requests_total{method="POST",path="/v1/responses",status="200"}' in values

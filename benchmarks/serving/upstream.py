"""A Chat Completions server that answers at once: ``python -m benchmarks.serving.upstream``.

Its answer is the same 16 words for everybody, made before anybody asks.
"""

from __future__ import annotations

import asyncio
import contextlib
import json

MODEL = "bench"
WORDS = [f"word{number} " for number in range(16)]
_USAGE = {"prompt_tokens": 1000, "completion_tokens": len(WORDS), "total_tokens": 1000 + len(WORDS)}
_HEAD = {"id": "chatcmpl-1", "created": 1_700_000_000, "model": MODEL}


def _answer(status: str, body: bytes, kind: str = "application/json") -> bytes:
    return f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


def _whole() -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": "".join(WORDS)}, "finish_reason": "stop"}
    body = {**_HEAD, "object": "chat.completion", "choices": [choice], "usage": _USAGE}
    return _answer("200 OK", json.dumps(body).encode())


def _stream() -> bytes:
    """A chunk a word, each an HTTP chunk of its own."""
    first = [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]
    words = [[{"index": 0, "delta": {"content": word}, "finish_reason": None}] for word in WORDS]
    last = [{"index": 0, "delta": {}, "finish_reason": "stop"}]
    bodies = [{**_HEAD, "object": "chat.completion.chunk", "choices": choices} for choices in (first, *words, last)]
    usage = {**_HEAD, "object": "chat.completion.chunk", "choices": [], "usage": _USAGE}
    events = [f"data: {json.dumps(body)}\n\n".encode() for body in (*bodies, usage)] + [b"data: [DONE]\n\n"]
    chunks = [f"{len(event):x}\r\n".encode() + event + b"\r\n" for event in events]
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    return head + b"".join(chunks) + b"0\r\n\r\n"


WHOLE, STREAM = _whole(), _stream()
MODELS = _answer(
    "200 OK",
    json.dumps({"object": "list", "data": [{"id": MODEL, "object": "model", "max_model_len": 131_072}]}).encode(),
)
NOTHING = _answer("404 Not Found", b'{"detail":"Not Found"}')


class Upstream(asyncio.Protocol):
    """One connection, which is kept."""

    def __init__(self) -> None:
        self._buffer = b""
        self._transport: asyncio.WriteTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end].lower()
            length = 0
            if (place := head.find(b"content-length:")) >= 0:
                length = int(head[place + 15 :].split(b"\r\n", 1)[0])
            if len(self._buffer) < end + 4 + length:
                return
            body, self._buffer = self._buffer[end + 4 : end + 4 + length], self._buffer[end + 4 + length :]
            self._transport.write(self._answer(head, body))

    def _answer(self, head: bytes, body: bytes) -> bytes:
        if head.startswith(b"get /v1/models "):
            return MODELS
        if head.startswith(b"post /v1/chat/completions "):
            return STREAM if json.loads(body).get("stream") else WHOLE
        return NOTHING


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", 0)
    print(f"serves {MODEL} at http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())

"""A model server that says what a test tells it to: real HTTP on a real socket, in the loop of the test.

It reads requests, keeps them, answers in any pieces and at any pace, breaks off, and notices when the client goes.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

MODEL = "tiny"
ANSWERS = ("/v1/chat/completions", "/v1/responses", "/v1/completions")
"""The routes that a test answers."""


@dataclass
class Seen:
    """A request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


@dataclass
class Reply:
    """What is answered: a whole body, or server-sent ``events`` (a number among them is a pause in seconds)."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    events: list[Any] | None = None
    cut: bool = False
    """Break the connection off instead of ending the stream."""
    hang: bool = False
    """Send nothing more and keep the connection."""
    pieces: Callable[[bytes], list[bytes]] = lambda data: [data]
    """How the stream is cut into network pieces."""


Handler = Callable[[Seen], Reply | Awaitable[Reply]]


class FakeUpstream:
    """Used as ``async with FakeUpstream(handler) as fake``. Other routes than those that answer get 404."""

    def __init__(self, handler: Handler | list[Reply], models: list[dict[str, Any]] | None = None) -> None:
        self.seen: list[Seen] = []
        self.left: list[float] = []
        """When clients went in the middle of an answer, in seconds of ``time.perf_counter()``."""
        self.models = [{"id": MODEL, "owned_by": "vllm", "max_model_len": 32768}] if models is None else models
        self.routes: dict[str, Reply | Handler] = {}
        self.port = 0
        self.connections = 0
        self.stale = False
        """Keep a connection after an answer, and close it without a word when it is used again."""
        self._replies = list(handler) if isinstance(handler, list) else []
        self._handler = None if isinstance(handler, list) else handler
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> FakeUpstream:
        self._server = await asyncio.start_server(self._connection, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def bodies(self) -> list[Any]:
        """The bodies of what was posted to a route of answers."""
        return [seen.body for seen in self.seen if seen.path in ANSWERS]

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            while await self._one(reader, writer):
                if self.stale:
                    await reader.readuntil(b"\r\n\r\n")
                    break
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client went, or the test is over
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
        data = await reader.readexactly(int(headers.get("content-length", 0)))
        seen = Seen(method, path, headers, json.loads(data) if data else None)
        self.seen.append(seen)
        reply = await self._reply(seen)
        if reply.events is None:
            body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
            extra = "".join(f"{name}: {value}\r\n" for name, value in reply.headers.items())
            start = f"HTTP/1.1 {reply.status} X\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
            writer.write(f"{start}{extra}\r\n".encode() + body)
            await writer.drain()
            return True
        return await self._stream(reply, reader, writer)

    async def _reply(self, seen: Seen) -> Reply:
        if (route := self.routes.get(seen.path)) is not None:
            return await _replied(route, seen)
        if seen.path == "/v1/models" and self.models:
            return Reply(body={"object": "list", "data": self.models})
        if seen.method == "POST" and seen.path in ANSWERS:
            if self._handler is not None:
                return await _replied(self._handler, seen)
            return self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]
        return Reply(404, {"detail": "Not Found"})

    async def _stream(self, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        gone = asyncio.ensure_future(reader.read(1))
        sending = asyncio.ensure_future(self._send(reply, writer))
        try:
            await asyncio.wait((gone, sending), return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                self.left.append(time.perf_counter())
                return False
            if reply.cut:
                writer.transport.abort()
                return False
            writer.write(b"0\r\n\r\n")
            await writer.drain()
            return True
        finally:
            gone.cancel()
            sending.cancel()
            await asyncio.gather(gone, sending, return_exceptions=True)

    async def _send(self, reply: Reply, writer: asyncio.StreamWriter) -> None:
        for event in reply.events or ():
            if isinstance(event, int | float):
                await asyncio.sleep(event)
                continue
            text = event if isinstance(event, str) else json.dumps(event)
            for piece in reply.pieces(f"data: {text}\n\n".encode()):
                writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                await writer.drain()
        if reply.hang:
            await asyncio.Event().wait()


async def _replied(handler: Reply | Handler, seen: Seen) -> Reply:
    reply = handler if isinstance(handler, Reply) else handler(seen)
    return reply if isinstance(reply, Reply) else await reply


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    """A chunk of Chat Completions."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": MODEL, "choices": [choice]}


def usage_chunk(prompt: int, output: int, cached: int = 0) -> dict[str, Any]:
    """The last chunk, with the counts."""
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": MODEL,
        "choices": [],
        "usage": usage,
    }


def saying(*texts: str) -> Reply:
    """A whole answer of these pieces."""
    return Reply(
        events=[*(chunk(content=text) for text in texts), chunk("stop"), usage_chunk(7, len(texts), 3), "[DONE]"]
    )


def error(status: int, message: str, code: str | None = None, param: str | None = None, **headers: str) -> Reply:
    """A refusal in OpenAI's shape."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    body = {"error": {"message": message, "type": "some_error", "code": code, "param": param}}
    return Reply(status, body, headers=named)

"""Clients that cost next to nothing: one HTTP connection, one WebSocket.

They hand over what came with the time at which it came, and read it afterwards. OpenAI's client takes about as long for
an event as the server does; beside it on two cores it would be the benchmark.
"""

from __future__ import annotations

import asyncio
import base64
import os
import struct
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec
from msgspec import Struct
from websockets.utils import apply_mask

Sink = Callable[[int, bytes], None]
"""Takes a piece of a body, or a text message, and when it came in nanoseconds of ``time.monotonic_ns()``."""
Made = TypeVar("Made", bound="_Connection")


class Lost(ConnectionError):
    """The server closed the connection, or broke off an answer."""


class Reply(Struct):
    """An HTTP answer, whole. ``pieces`` are those of the body as they came; times are nanoseconds."""

    sent: int
    status: int = 0
    headers: dict[str, str] = {}
    pieces: list[tuple[int, bytes]] = []
    done: int = 0

    @property
    def body(self) -> bytes:
        return b"".join(data for _, data in self.pieces)


class _Connection(asyncio.Protocol):
    """What both kinds share: a transport, and a buffer of what is not read yet."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.bytes_sent = 0
        self.lost = asyncio.get_running_loop().create_future()
        """Done once the connection is gone."""
        self._buffer = bytearray()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(None)

    def write(self, data: bytes) -> None:
        self.bytes_sent += len(data)
        self.transport.write(data)

    def cut(self) -> None:
        """Leave without a word, as Codex CLI does when it is interrupted."""
        self.transport.abort()

    async def close(self) -> None:
        self.transport.close()
        await self.lost


async def _open(kind: Callable[[str], Made], root: str) -> Made:
    host = root.removeprefix("http://")
    name, _, port = host.rpartition(":")
    _, protocol = await asyncio.get_running_loop().create_connection(lambda: kind(host), name, int(port))
    return protocol


class Http(_Connection):
    """One HTTP/1.1 connection that is kept; one request at a time."""

    def __init__(self, host: str) -> None:
        super().__init__(host)
        self._reply: Reply | None = None
        self._sink: Sink | None = None
        self._ended: asyncio.Future[Reply] | None = None
        self._left: int | None = None
        """Bytes to come of a body of known length; None for one in chunks."""

    @classmethod
    async def open(cls, root: str) -> Http:
        """``root`` is ``http://127.0.0.1:8000``."""
        return await _open(cls, root)

    async def ask(
        self,
        path: str,
        body: bytes | None = None,
        *,
        method: str = "",
        headers: Mapping[str, str] = {},
        sink: Sink | None = None,
    ) -> Reply:
        """POST where there is a body, else GET. With ``sink`` the pieces go there and not into the reply.

        Raises :class:`Lost` when the connection ends before the answer does.
        """
        data = body or b""
        method = method or ("GET" if body is None else "POST")
        more = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = (
            f"{method} {path} HTTP/1.1\r\nhost: {self.host}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(data)}\r\n{more}\r\n"
        )
        self._ended = asyncio.get_running_loop().create_future()
        self._sink = sink
        self._reply = Reply(time.monotonic_ns())
        self.write(head.encode() + data)
        return await self._ended

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._ended is not None and not self._ended.done():
            self._ended.set_exception(Lost("the connection ended before the answer did"))

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        self._buffer += data
        reply = self._reply
        if reply is None or (not reply.status and not self._head(reply)):
            return
        while self._ended is not None and not self._ended.done() and self._piece(reply, now):
            pass

    def _head(self, reply: Reply) -> bool:
        """Read the head of an answer; False while it is not whole."""
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return False
        first, *lines = self._buffer[:end].decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        reply.status = int(first.split(" ", 2)[1])
        reply.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = reply.headers.get("content-length", "0")
        self._left = None if reply.headers.get("transfer-encoding") == "chunked" else int(length)
        return True

    def _piece(self, reply: Reply, now: int) -> bool:
        """Read a piece of the body; False while none is whole."""
        buffer = self._buffer
        if self._left is not None:
            piece = bytes(buffer[: self._left])
            del buffer[: len(piece)]
            self._left -= len(piece)
            self._take(reply, now, piece)
            if not self._left:
                self._end(reply, now)
            return False
        end = buffer.find(b"\r\n")
        if end < 0:
            return False
        size = int(buffer[:end], 16)
        if len(buffer) < end + size + 4:
            return False
        piece = bytes(buffer[end + 2 : end + 2 + size])
        del buffer[: end + size + 4]
        if not size:
            self._end(reply, now)
            return False
        self._take(reply, now, piece)
        return True

    def _take(self, reply: Reply, now: int, piece: bytes) -> None:
        if not piece:
            return
        if self._sink is not None:
            self._sink(now, piece)
        else:
            reply.pieces.append((now, piece))

    def _end(self, reply: Reply, now: int) -> None:
        reply.done = now
        if self._ended is not None:
            self._ended.set_result(reply)


class Socket(_Connection):
    """One WebSocket (RFC 6455), without compression, as OpenAI's client offers none.

    Messages of the server are one frame each, which vivace's are.
    """

    def __init__(self, host: str) -> None:
        super().__init__(host)
        self.sink: Sink = lambda now, payload: None
        self.close_code: int | None = None
        self.messages = 0
        self._accepted: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._upgraded = False

    @classmethod
    async def open(cls, root: str, path: str = "/v1/responses") -> Socket:
        """Raises :class:`Lost` when the upgrade is refused."""
        socket = await _open(cls, root)
        key = base64.b64encode(os.urandom(16)).decode()
        socket.write(
            f"GET {path} HTTP/1.1\r\nhost: {socket.host}\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
            f"sec-websocket-key: {key}\r\nsec-websocket-version: 13\r\n\r\n".encode()
        )
        status = await socket._accepted
        if status != 101:
            socket.cut()
            raise Lost(f"the upgrade was answered with {status}")
        return socket

    def send(self, payload: bytes, opcode: int = 1) -> None:
        """A message: text, or 2 for a binary one."""
        mask, size = os.urandom(4), len(payload)
        if size < 126:
            head = struct.pack("!BB", 0x80 | opcode, 0x80 | size)
        elif size < 1 << 16:
            head = struct.pack("!BBH", 0x80 | opcode, 0xFE, size)
        else:
            head = struct.pack("!BBQ", 0x80 | opcode, 0xFF, size)
        self.write(head + mask + apply_mask(payload, mask))

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if not self._accepted.done():
            self._accepted.set_exception(Lost("the connection ended before the upgrade"))

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        self._buffer += data
        if not self._upgraded and not self._upgrade():
            return
        buffer, at = self._buffer, 0
        while len(buffer) - at >= 2:
            size, start = buffer[at + 1], at + 2
            if size == 126:
                size, start = int.from_bytes(buffer[start : start + 2]), start + 2
            elif size == 127:
                size, start = int.from_bytes(buffer[start : start + 8]), start + 8
            if len(buffer) < start + size:
                break
            self._frame(now, buffer[at] & 15, bytes(buffer[start : start + size]))
            at = start + size
        del buffer[:at]

    def _upgrade(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return False
        status = int(self._buffer.split(b" ", 2)[1])
        del self._buffer[: end + 4]
        self._upgraded = status == 101
        if not self._accepted.done():
            self._accepted.set_result(status)
        return self._upgraded

    def _frame(self, now: int, opcode: int, payload: bytes) -> None:
        match opcode:
            case 1:
                self.messages += 1
                self.sink(now, payload)
            case 8:
                self.close_code = int.from_bytes(payload[:2]) if payload else 1005
                self.transport.close()
            case 9:
                self.send(payload, 10)


class Event(Struct):
    """What the benchmarks read of an event."""

    type: str
    sequence_number: int = -1
    stream_id: str | None = None
    delta: str = ""
    item: msgspec.Raw = msgspec.Raw()
    response: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()
    status: int = 0


read_event = msgspec.json.Decoder(Event).decode


def of_stream(pieces: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """The data of server-sent events, each with the time of the piece that made it whole."""
    events: list[tuple[int, bytes]] = []
    rest = b""
    for now, piece in pieces:
        *whole, rest = (rest + piece).split(b"\n\n")
        events += [(now, block[block.index(b"data: ") + 6 :]) for block in whole if b"data: " in block]
    return events

"""The few HTTP/1.1 calls that a client makes beside its WebSocket, over one kept connection.

A whole HTTP library takes longer to import than such a call takes, and the command that waits for it is one that ends
after a single edit. What is understood is what RFC 9112 lets a server send to a client that asks for nothing special:
a body of stated length, in chunks, or up to the end of the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from vivace.client.address import Address
from vivace.errors import VivaceError

CONNECT_TIMEOUT = 10.0
"""Seconds until a connection must stand."""
SILENCE = 600.0
"""Seconds without a byte of an answer, after which the server counts as lost: opening a model may take minutes."""


class Answer(Struct, frozen=True):
    status: int
    body: bytes


class _Error(Struct):
    message: str = ""
    code: str | None = None
    param: str | None = None


class _ErrorBody(Struct):
    error: _Error


class _Head(Struct, frozen=True):
    status: int
    headers: dict[str, str]

    @property
    def lasts(self) -> bool:
        """Whether the connection can be used again when the body has been read."""
        framed = "content-length" in self.headers or "chunked" in self.headers.get("transfer-encoding", "")
        return framed and self.headers.get("connection", "").lower() != "close"


class Http:
    """One connection, opened when it is needed; calls on it come one after the other. All of them may be repeated."""

    def __init__(self, address: Address, headers: Mapping[str, str]) -> None:
        self.address = address
        self._headers = dict(headers)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._busy = asyncio.Lock()

    async def call(self, method: str, path: str, body: bytes = b"") -> Answer:
        """The answer, whatever its status. Raises :class:`VivaceError` ``service_gone`` where none comes."""
        async with self._busy, self._asked(method, path, body) as (head, reader):
            return Answer(head.status, b"".join([part async for part in _parts(head, reader)]))

    async def lines(self, method: str, path: str, body: bytes = b"") -> AsyncGenerator[bytes, None]:
        """The lines of an answer as they come. Raises as :meth:`call`, and for a status that is not 2xx."""
        async with self._busy, self._asked(method, path, body) as (head, reader):
            held = b""
            async for part in _parts(head, reader):
                *whole, held = (held + part).split(b"\n")
                if head.status < 300:
                    for line in whole:
                        yield line
                else:
                    held = b"\n".join([*whole, held])
            if head.status >= 300:
                raise refusal(Answer(head.status, held))

    async def close(self) -> None:
        streams, self._streams = self._streams, None
        if streams is not None:
            streams[1].close()

    @contextlib.asynccontextmanager
    async def _asked(self, method: str, path: str, body: bytes) -> AsyncIterator[tuple[_Head, asyncio.StreamReader]]:
        """Send a request and give the head of its answer; the connection is kept when the body was read to its end."""
        kept = self._streams is not None
        try:
            reader, head = await self._send(method, path, body)
        except (OSError, EOFError, ValueError) as error:
            await self.close()
            if not kept or isinstance(error, ValueError):
                raise gone(self.address, error) from error
            try:  # a server closes what was idle for long
                reader, head = await self._send(method, path, body)
            except (OSError, EOFError, ValueError) as again:
                await self.close()
                raise gone(self.address, again) from again
        whole = False
        try:
            yield head, reader
            whole = True
        except (OSError, EOFError, ValueError) as error:
            raise gone(self.address, error) from error
        finally:
            if not whole or not head.lasts:
                await self.close()

    async def _send(self, method: str, path: str, body: bytes) -> tuple[asyncio.StreamReader, _Head]:
        if self._streams is None:
            self._streams = await connect(self.address)
        reader, writer = self._streams
        lines = [f"{method} {self.address.root}{path} HTTP/1.1", f"host: {self.address.authority}"]
        lines += [f"{name}: {value}" for name, value in self._headers.items()]
        if method == "POST":
            lines += ["content-type: application/json", f"content-length: {len(body)}"]
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        await writer.drain()
        return reader, await _head(reader)


async def connect(address: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to a service. Raises :class:`OSError`."""
    async with asyncio.timeout(CONNECT_TIMEOUT):
        if address.socket:
            return await asyncio.open_unix_connection(address.socket)
        return await asyncio.open_connection(address.host, address.port, ssl=address.tls or None)


def gone(address: Address, error: BaseException) -> VivaceError:
    """No answer came."""
    reason = getattr(error, "strerror", None) or (str(error) if isinstance(error, ValueError) else "")
    if not reason:
        reason = "no answer in time" if isinstance(error, TimeoutError) else "the connection was closed"
    return VivaceError(
        f"The service at {address.shown} cannot be reached: {reason}.",
        hint="Does it run? Start it, or check the address.",
        code="service_gone",
    )


def refusal(answer: Answer) -> VivaceError:
    """What a server said that did not do what it was asked."""
    try:
        told = msgspec.json.decode(answer.body, type=_ErrorBody).error
    except msgspec.DecodeError:
        told = _Error()
    message = told.message or f"The service answered with the HTTP status {answer.status}."
    bad = 400 <= answer.status < 500 and answer.status not in (408, 429)
    return VivaceError(message, code=told.code or "service_error", param=told.param, exit_code=2 if bad else 1)


async def _head(reader: asyncio.StreamReader) -> _Head:
    while True:
        first, *lines = (await _timed(reader.readuntil(b"\r\n\r\n"))).decode("latin-1").split("\r\n")
        version, _, rest = first.partition(" ")
        if not version.startswith("HTTP/1.") or not rest[:3].isdigit():
            raise ValueError("what answers there does not speak HTTP")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if (status := int(rest[:3])) >= 200:
            return _Head(status, headers)


async def _parts(head: _Head, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """The pieces of a body as they come."""
    if head.status in (204, 304):
        return
    if "chunked" in head.headers.get("transfer-encoding", ""):
        while size := int((await _timed(reader.readuntil(b"\r\n"))).split(b";")[0], 16):
            yield await _timed(reader.readexactly(size))
            await _timed(reader.readexactly(2))
        while await _timed(reader.readuntil(b"\r\n")) != b"\r\n":
            pass
    elif "content-length" in head.headers:
        yield await _timed(reader.readexactly(int(head.headers["content-length"])))
    else:
        while part := await _timed(reader.read(1 << 16)):
            yield part


async def _timed(reading: Coroutine[Any, Any, bytes]) -> bytes:
    try:
        return await asyncio.wait_for(reading, SILENCE)
    except asyncio.LimitOverrunError as error:
        raise ValueError("its answer has no end of a line") from error

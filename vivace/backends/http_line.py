"""One HTTP/1.1 connection to a model server: a request written in one piece, its answer parsed in C as it comes.

Whatever lies in the socket is one read for the caller, however many chunks the server made of it.
"""

from __future__ import annotations

import asyncio
from typing import cast

import httptools

from vivace.backends.faults import Fault

HEAD_BYTES = 256 * 1024
"""Longest head of an answer."""
AHEAD = 1024 * 1024
"""Bytes of a body that are held for a reader who is late; the socket waits meanwhile."""


class Line(asyncio.Protocol):
    """A connection, for one request at a time."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        """Names in lower case; of several of one name, the last."""
        self.whole = True
        """The answer has come to its end."""
        self.lasts = True
        """Whether another request may follow."""
        self.heard = False
        """A byte of the answer has come."""
        self.closed = False
        self.idle_since = 0.0
        self.transport: asyncio.Transport
        self._loop = asyncio.get_running_loop()
        self._silence = 0.0
        self._where = ""
        self._parser = httptools.HttpResponseParser(self)
        self._headed = True
        self._head_bytes = self._held = 0
        self._body: list[bytes] = []
        self._paused = False
        self._fault: Fault | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def unheard(self) -> bool:
        """The connection was closed before a byte of the answer."""
        return self.closed and not self.heard

    async def ask(self, request: bytes, where: str, silence: float) -> None:
        """Send a request and wait for the head of its answer.

        ``where`` names the server in errors; ``silence`` is how many seconds may pass without a byte.
        Raises :class:`Fault`, as :meth:`read` does.
        """
        self._where, self._silence = where, silence
        self._parser = httptools.HttpResponseParser(self)
        self.status, self.headers = 0, {}
        self.whole = self.heard = self._headed = False
        self._head_bytes = 0
        self.transport.write(request)
        while not self._headed:
            await self._news()

    async def read(self) -> bytes:
        """What has come of the body; empty at its end."""
        while not self._body:
            if self.whole:
                return b""
            await self._news()
        data = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body = []
        self._held = 0
        if self._paused:
            self._paused = False
            self.transport.resume_reading()
        return data

    def abort(self) -> None:
        """Close at once: the server knows by it that nobody wants the rest."""
        self.lasts = False
        self.transport.abort()

    async def _news(self) -> None:
        if self._fault is not None:
            raise self._fault
        self._waiter = self._loop.create_future()
        timer = self._loop.call_later(self._silence, self._silent)
        try:
            await self._waiter
        finally:
            timer.cancel()
            self._waiter = None

    def _silent(self) -> None:
        self._fail(f"{self._where} was silent for too long ({self._silence:g} s).")

    def _fail(self, message: str) -> None:
        self.lasts = False
        if not self.whole and self._fault is None:
            self._fault = Fault(message, again=True, down=True)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are no subclasses of asyncio's

    def data_received(self, data: bytes) -> None:
        if self.whole:  # nobody asked
            self.abort()
            return
        self.heard = True
        try:
            self._parser.feed_data(data)
            self._head_bytes += 0 if self._headed else len(data)
            if self._head_bytes > HEAD_BYTES and not self._headed:
                raise httptools.HttpParserError(f"its head has more than {HEAD_BYTES} bytes")
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(f"The answer of {self._where} is no HTTP: {error or type(error).__name__}")
            self.abort()
            return
        if self._held > AHEAD and not self._paused and not self.whole:
            self._paused = True
            self.transport.pause_reading()
        if self._headed:
            self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        self.closed, self.lasts = True, False
        if error is None and self._headed and not self._framed:
            self.whole = True  # RFC 9112, section 6.3: the end of the connection is the end of the body
        self._fail(f"The connection to {self._where} was lost: {error or 'the server closed it'}")

    @property
    def _framed(self) -> bool:
        return "content-length" in self.headers or "chunked" in self.headers.get("transfer-encoding", "")

    # What the parser calls.

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self._headed = self.status >= 200

    def on_body(self, data: bytes) -> None:
        self._body.append(data)
        self._held += len(data)

    def on_message_complete(self) -> None:
        if not self._headed:  # 1xx: the answer is still to come
            self.headers = {}
            return
        self.whole = True
        self.lasts = self.lasts and self._parser.should_keep_alive()

"""``/v1/responses`` over a WebSocket: frames in, events out, until the client or the server goes.

One task reads, one writes. The line behind them keeps the lanes apart; nothing here waits for one lane on behalf of
another. While a slow client lets the socket fill up, its events wait in its line; other connections go on.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from starlette.types import Message

from vivace.protocol import events as ev
from vivace.protocol.contracts import Line
from vivace.protocol.errors import BadRequest, error_frame
from vivace.protocol.requests import CreateFrame, decode_frame
from vivace.server.call import Call
from vivace.server.metrics import Watch
from vivace.server.wire import BATCH

UPGRADE_REQUIRED = 426
SERVICE_RESTART = 1012
NORMAL = 1000


async def serve_lanes(call: Call) -> None:
    """GET /v1/responses with an upgrade"""
    door = call.door
    if not door.options.websockets:
        # Codex CLI goes over to HTTP at once, without a word, at this status and no other.
        raise BadRequest("WebSockets are switched off here; use POST.", code="websockets_off", status=UPGRADE_REQUIRED)
    if door.drain.draining:
        raise BadRequest("The server is about to stop.", code="server_shutting_down", status=503)
    line = call.gateway.connect(call.principal)
    door.metrics.sockets.inc()
    try:
        with door.drain.holding(line.close):
            await _accept(call)
            await Session(call, line).run()
    finally:
        door.metrics.sockets.dec()
        await line.close()


async def _accept(call: Call) -> None:
    call.started, call.status = True, 101
    await call.receive()  # websocket.connect
    headers = [(b"x-request-id", call.request_id.encode())]
    await call.send({"type": "websocket.accept", "headers": headers})


class Session:
    """One connection: see the module."""

    def __init__(self, call: Call, line: Line) -> None:
        self._call = call
        self._line = line
        self._batches = BATCH in (call.scope.get("extensions") or {})
        self._asked: Counter[str | None] = Counter()
        """Creates that have begun nothing yet, by lane."""
        self._running: set[str] = set()
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._watches: dict[str | None, Watch] = {}

    async def run(self) -> None:
        tasks = [asyncio.ensure_future(task) for task in (self._read(), self._write(), self._retire())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for watch in self._watches.values():
                watch.close()

    async def _read(self) -> None:
        while (message := await self._call.receive())["type"] == "websocket.receive":
            try:
                frame = decode_frame(_text(message))
            except BadRequest as refusal:
                self._line.refuse(refusal)
                continue
            if isinstance(frame, CreateFrame):
                self._asked[frame.stream_id] += 1
                self._quiet.clear()
            self._line.submit(frame)

    async def _write(self) -> None:
        while events := await self._line.ready():
            self._note(events)
            await self._send([ev.encode(event) for event in events])
            if not self._running and not self._asked:
                self._quiet.set()
        await self._close(SERVICE_RESTART if self._call.door.drain.draining else NORMAL, "")

    async def _retire(self) -> None:
        """Wait for the end of the server, or of the connection's time, and then for a moment between responses."""
        drain = self._call.door.drain
        try:
            async with asyncio.timeout(self._call.door.options.connection_seconds):
                await drain.begun.wait()
        except TimeoutError:
            await self._quiet.wait()
            told = error_frame(
                "This connection has reached its age limit; open a new one.", 400, "websocket_connection_limit_reached"
            )
            await self._send([ev.encode(told)])
            await self._close(NORMAL, "connection age limit")
        else:
            await self._quiet.wait()
            await self._close(SERVICE_RESTART, "the server restarts")

    def _note(self, events: list[ev.Event]) -> None:
        """Know what runs, and count it."""
        lanes: dict[str | None, list[ev.Event]] = {}
        for event in events:
            lanes.setdefault(event.stream_id, []).append(event)
            match event:
                case ev.Created():
                    self._answered(event.stream_id)
                    self._running.add(event.response.id)
                case ev.Completed() | ev.Incomplete() | ev.Failed():
                    self._running.discard(event.response.id)
                case ev.ErrorEvent():
                    self._answered(event.stream_id)
        for lane, of_lane in lanes.items():
            watch = self._watches.pop(lane, None) or self._call.door.metrics.watch("responses")
            watch.see(of_lane)
            if watch.busy:  # a client may name any number of lanes
                self._watches[lane] = watch

    def _answered(self, lane: str | None) -> None:
        """One of the creates on a lane has begun, or was refused."""
        left = self._asked[lane] - 1
        if left > 0:
            self._asked[lane] = left
        else:
            del self._asked[lane]

    async def _send(self, payloads: list[bytes]) -> None:
        if self._batches:
            await self._call.send({"type": BATCH, "payloads": payloads})
            return
        for payload in payloads:
            await self._call.send({"type": "websocket.send", "text": payload.decode()})

    async def _close(self, code: int, reason: str) -> None:
        await self._call.send({"type": "websocket.close", "code": code, "reason": reason})


def _text(message: Message) -> bytes | str:
    """The text of a frame; a binary one is refused. Raises :class:`BadRequest`."""
    text: Any = message.get("data", message.get("text"))
    if text is None:
        raise BadRequest("Send text frames; binary ones are not understood.", code="invalid_frame")
    found: bytes | str = text
    return found

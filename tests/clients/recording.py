"""A gateway that writes down what its clients ask and what they are told, as JSON lines.

Every line has ``at`` (seconds of the monotonic clock) and ``kind``:

- ``connect``, ``close``: a WebSocket, by its number ``line``, with what the caller's headers tell
- ``request``: a request and its ``way`` (``http`` or ``ws``), with ``line`` where it came on a WebSocket
- ``frame``: any other frame of a client
- ``event``: an event that went out, without the pieces of texts
- ``stop``: an HTTP answer whose client went away
"""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import msgspec

from vivace.protocol import events as ev
from vivace.protocol.contracts import Final, Gateway, Line, Principal, StopReason, Stream
from vivace.protocol.errors import BadRequest
from vivace.protocol.requests import ClientFrame, CreateFrame, ResponseRequest

_PIECES = (ev.TextDelta, ev.ReasoningTextDelta, ev.ReasoningSummaryTextDelta, ev.ArgumentsDelta, ev.CustomInputDelta)


class Record:
    """The file that is written to."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    def write(self, kind: str, **what: Any) -> None:
        self._file.write(msgspec.json.encode({"at": time.monotonic(), "kind": kind, **what}) + b"\n")

    def events(self, events: list[ev.Event], way: str, line: int | None = None) -> None:
        for event in events:
            if not isinstance(event, _PIECES):
                self.write("event", way=way, line=line, event=msgspec.Raw(ev.encode(event)))


class RecordedGateway:
    """A :class:`Gateway` around another one."""

    def __init__(self, inner: Gateway, record: Record) -> None:
        self._inner = inner
        self._record = record
        self._numbers = itertools.count(1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def respond(self, request: ResponseRequest, principal: Principal) -> Stream:
        self._record.write("request", way="http", line=None, caller=principal.metadata, request=request)
        try:
            stream = await self._inner.respond(request, principal)
        except BadRequest as error:
            headers = getattr(error, "headers", {})
            self._record.write("refused", way="http", status=error.status, code=error.code, headers=headers)
            raise
        return RecordedStream(stream, self._record)

    def connect(self, principal: Principal) -> Line:
        number = next(self._numbers)
        self._record.write("connect", line=number, caller=principal.metadata)
        return RecordedLine(self._inner.connect(principal), self._record, number, principal)


class RecordedStream:
    """A :class:`Stream` around another one."""

    def __init__(self, inner: Stream, record: Record) -> None:
        self._inner = inner
        self._record = record

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def ready(self) -> list[ev.Event]:
        events = await self._inner.ready()
        self._record.events(events, "http")
        return events

    async def stop(self, reason: StopReason) -> Final:
        self._record.write("stop", way="http", reason=reason)
        return await self._inner.stop(reason)


class RecordedLine:
    """A :class:`Line` around another one."""

    def __init__(self, inner: Line, record: Record, number: int, principal: Principal) -> None:
        self._inner = inner
        self._record = record
        self._number = number
        self._principal = principal

    def submit(self, frame: ClientFrame) -> None:
        if isinstance(frame, CreateFrame):
            self._record.write("request", way="ws", line=self._number, caller=self._principal.metadata, request=frame)
        else:
            self._record.write("frame", line=self._number, frame=frame)
        self._inner.submit(frame)

    def refuse(self, error: BadRequest) -> None:
        self._record.write("refused", way="ws", line=self._number, status=error.status, code=error.code)
        self._inner.refuse(error)

    async def ready(self) -> list[ev.Event]:
        events = await self._inner.ready()
        self._record.events(events, "ws", self._number)
        return events

    async def close(self) -> None:
        self._record.write("close", line=self._number)
        await self._inner.close()

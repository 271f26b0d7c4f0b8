"""One running response of a service far away. It keeps what is still to be read, and nothing of what was."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import msgspec

from vivace.protocol import events as ev
from vivace.protocol.contracts import Final, StopReason
from vivace.protocol.items import IncompleteDetails, Response, ResponseError, encode, new_id
from vivace.protocol.requests import CreateFrame, ResponseRequest
from vivace.protocol.usage import Usage

if TYPE_CHECKING:
    from vivace.client.line import Line


class RemoteGeneration:
    """See :class:`vivace.protocol.contracts.Generation`."""

    def __init__(self, line: Line, request: ResponseRequest) -> None:
        self._line = line
        self._model = request.model
        self._events: asyncio.Queue[ev.Event] = asyncio.Queue()
        self._ended = asyncio.Event()
        self._final = Final("failed", Usage())
        self._response: Response | None = None
        self._next = 0
        self.request: ResponseRequest | None = request
        """Until its first event has come; then it can not be sent again."""
        self.sent = 0
        """How often it was sent."""
        self.stopping = False

    @property
    def response_id(self) -> str:
        """The server's id; empty before the first event."""
        return self._response.id if self._response is not None else ""

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    async def __aiter__(self) -> AsyncIterator[ev.Event]:
        while True:
            event = await self._events.get()
            yield event
            if isinstance(event, ev.Completed | ev.Incomplete | ev.Failed):
                return

    async def stop(self, reason: StopReason) -> Final:
        if not self._ended.is_set() and not self.stopping:
            self.stopping = True
            self._line.stop(self)
        await self._ended.wait()
        return self._final

    def frame(self, lane: str) -> bytes:
        """The frame that asks for it on a lane."""
        request = self.request
        assert request is not None
        values = {name: getattr(request, name) for name in request.__struct_fields__}
        values.update(stream_id=lane, stream=None)
        return encode(CreateFrame(**values))

    def take(self, event: ev.Event) -> None:
        """An event of its lane has come."""
        if self._ended.is_set():
            return
        if isinstance(event, ev.ErrorEvent):
            if self.request is not None:  # later ones are about something else: a cancel that came too late
                self.fail(event.error.message, event.error.code or "service_error")
            return
        event.stream_id = None
        if event.sequence_number is not None:
            self._next = event.sequence_number + 1
        if isinstance(event, ev.Created):
            self._response, self.request = msgspec.structs.replace(event.response), None
        if isinstance(event, ev.Completed | ev.Incomplete | ev.Failed):
            self._settle(event.response)
        self._events.put_nowait(event)

    def fail(self, message: str, code: str) -> None:
        """End it: no more will come from the server."""
        response = self._opened()
        response.status, response.error = "failed", ResponseError(code, message)
        self._end(ev.Failed(sequence_number=self._next, response=response))

    def withdraw(self) -> None:
        """End it before the server has begun it."""
        response = self._opened()
        response.status, response.incomplete_details = "cancelled", IncompleteDetails("stopped")
        self._end(ev.Incomplete(sequence_number=self._next, response=response))

    def _opened(self) -> Response:
        if self._response is None:
            self._response = Response(new_id("resp"), self._model, time.time())
            self._events.put_nowait(
                ev.Created(sequence_number=self._next, response=msgspec.structs.replace(self._response))
            )
            self._next += 1
        return msgspec.structs.replace(self._response)

    def _end(self, event: ev.Incomplete | ev.Failed) -> None:
        if not self._ended.is_set():
            self._settle(event.response)
            self._events.put_nowait(event)

    def _settle(self, response: Response) -> None:
        status = response.status
        ended = status if status in ("completed", "incomplete", "failed", "cancelled") else "failed"
        self._final = Final(ended, response.usage or Usage())
        self.request = None
        self._ended.set()

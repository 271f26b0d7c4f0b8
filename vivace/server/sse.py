"""Server-sent events: one write for everything that is ready, and an end when the client goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from vivace.protocol.contracts import Stream
from vivace.protocol.events import Ending, Event, encode, event_type
from vivace.server.call import Call
from vivace.server.metrics import Watch

HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}

Writer = Callable[[list[Event]], bytes]
"""What a batch of events is in a dialect; empty when there is nothing to say."""


async def stream_events(
    call: Call,
    stream: Stream,
    write: Writer,
    watch: Watch,
    headers: Mapping[str, str] | None = None,
    *,
    detached: bool = False,
) -> None:
    """Answer ``call`` with a stream. It is stopped when the client goes, unless it is ``detached`` (background)."""
    leaving = asyncio.ensure_future(_leave(call, None if detached else stream))
    ended = False
    told = {**HEADERS, **stream.headers, **(headers or {})}
    try:
        with call.door.drain.holding(lambda: stream.stop("cancelled")):
            await call.begin(200, "text/event-stream; charset=utf-8", told, None)
            while not ended and (events := await _unless_left(stream, leaving, detached)):
                watch.see(events)
                # The body ends with the last event: Codex CLI acts on response.failed only then.
                ended = any(isinstance(event, Ending) for event in events)
                if (body := write(events)) or ended:
                    await call.write(body, more=not ended)
            if not ended and not leaving.done():
                await call.write(b"", more=False)
    finally:
        leaving.cancel()
        watch.close()
        if not ended and not detached:
            await stream.stop("disconnect")


async def _leave(call: Call, stream: Stream | None) -> None:
    """Until the client is gone; then end what it no longer reads."""
    while (await call.receive())["type"] != "http.disconnect":
        pass
    if stream is not None:
        await stream.stop("disconnect")


async def _unless_left(stream: Stream, leaving: asyncio.Future[None], detached: bool) -> list[Event]:
    """The next events; none when the client has left. A stream that is stopped ends by itself."""
    if not detached:
        return await stream.ready()
    ready = asyncio.ensure_future(stream.ready())
    try:
        await asyncio.wait((ready, leaving), return_when=asyncio.FIRST_COMPLETED)
        return ready.result() if ready.done() else []
    finally:
        ready.cancel()


async def last_event(call: Call, stream: Stream, watch: Watch) -> Ending | None:
    """Read a stream to its end; None when the client left before."""
    leaving = asyncio.ensure_future(_leave(call, stream))
    try:
        with call.door.drain.holding(lambda: stream.stop("cancelled")):
            while events := await stream.ready():
                watch.see(events)
                for event in events:
                    if isinstance(event, Ending):
                        return None if leaving.done() else event
        return None
    finally:
        leaving.cancel()
        watch.close()


def responses_sse(events: list[Event]) -> bytes:
    """Events of the Responses API, framed."""
    return b"".join([b"event: %b\ndata: %b\n\n" % (event_type(event).encode(), encode(event)) for event in events])

"""One response over either transport, with the times at which a client saw it. Times are milliseconds."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec
from msgspec import Struct, field

from benchmarks.serving.client import Event, Http, Lost, Socket, of_stream, read_event

LAST = frozenset({"response.completed", "response.incomplete", "response.failed", "error"})
ENDS = tuple(f'{{"type":"{kind}"'.encode() for kind in sorted(LAST))
PATIENCE = 120.0


class Usage(Struct):
    """Tokens as the server counted them."""

    input_tokens: int = 0
    output_tokens: int = 0
    input_tokens_details: dict[str, int] = field(default_factory=dict)


class Ended(Struct):
    """What is read of a response object."""

    id: str = ""
    status: str = ""
    usage: Usage | None = None


class Turn(Struct):
    """``first_event`` is ``response.created``; ``ttft`` the first event of an item, ``whole`` the last event."""

    first_event: float
    ttft: float
    whole: float
    bytes_sent: int
    id: str
    usage: Usage
    items: list[dict[str, Any]]
    """As ``output_item.done`` had them: what an agent appends to its history."""


async def http_turn(http: Http, body: bytes) -> Turn:
    before = http.bytes_sent
    reply = await asyncio.wait_for(http.ask("/v1/responses", body), PATIENCE)
    if reply.status != 200:
        raise RuntimeError(f"{reply.status}: {reply.body[:500]!r}")
    return read_turn(reply.sent, of_stream(reply.pieces), http.bytes_sent - before)


async def socket_turn(socket: Socket, frame: bytes) -> Turn:
    got: list[tuple[int, bytes]] = []
    ended = asyncio.get_running_loop().create_future()

    def sink(now: int, payload: bytes) -> None:
        got.append((now, payload))
        if payload.startswith(ENDS) and not ended.done():
            ended.set_result(None)

    socket.sink = sink
    before, sent = socket.bytes_sent, time.monotonic_ns()
    socket.send(frame)
    await asyncio.wait((ended, socket.lost), timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
    if not ended.done():
        raise Lost("the answer did not end")
    return read_turn(sent, got, socket.bytes_sent - before)


def read_turn(sent: int, got: list[tuple[int, bytes]], bytes_sent: int) -> Turn:
    """Raises :class:`RuntimeError` for an answer that did not come to its end."""
    events: list[tuple[int, Event]] = [(now, read_event(data)) for now, data in got]
    last = events[-1][1] if events else Event("nothing")
    if last.type not in ("response.completed", "response.incomplete"):
        raise RuntimeError(f"the answer ended with {got[-1][1][:500] if got else b''!r}")
    response = msgspec.json.decode(last.response, type=Ended)
    output = [now for now, event in events if ".output_item" in event.type or event.type.endswith(".delta")]

    def after(now: int) -> float:
        return (now - sent) / 1e6

    return Turn(
        after(events[0][0]),
        after(output[0]) if output else after(events[-1][0]),
        after(events[-1][0]),
        bytes_sent,
        response.id,
        response.usage or Usage(),
        [msgspec.json.decode(event.item) for _, event in events if event.type == "response.output_item.done"],
    )

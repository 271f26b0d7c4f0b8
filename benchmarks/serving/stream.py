"""Sixteen answers at 1,000 tokens a second: what a token costs the server, and how late it comes.

Each token's text is the time at which it was due, on the clock that both processes share. The processor time is that of
the server's whole process, the paced backend's own share included.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from benchmarks.serving.client import Http, Socket, of_stream, read_event
from benchmarks.serving.conversation import encode
from benchmarks.serving.process import Process, vivace
from benchmarks.serving.turns import ENDS
from vivace.bench.stats import quantile

MODEL = "paced"
STREAMS = 16
RATE = 1_000

Got = list[tuple[int, bytes]]


class Run(Struct):
    """One run of one way: seconds of the server's and the client's processor and of the clock, milliseconds of lag."""

    cpu: float
    client_cpu: float
    seconds: float
    lags: list[float]
    events: int
    bytes: int


def config(tokens: int) -> tuple[str, str]:
    """The configuration, and the script that it names."""
    backend = f'kind = "paced"\ntok_s = {RATE}\nttft_ms = 0\nwindow = 262144\nstamp = true\nscript = "script.toml"\n'
    return f"[backends.{MODEL}]\n{backend}", f"[[rules]]\nsteps = [{{ tokens = {tokens} }}]\n"


def request(number: int) -> dict[str, Any]:
    return {"model": MODEL, "input": f"Speak, {number}.", "store": False, "stream": True}


async def over_sse(server: Process) -> list[Got]:
    """A connection each."""
    lines = [await Http.open(server.root) for _ in range(STREAMS)]
    replies = await asyncio.gather(
        *(line.ask("/v1/responses", encode(request(number))) for number, line in enumerate(lines))
    )
    for line in lines:
        await line.close()
    return [of_stream(reply.pieces) for reply in replies]


async def over_websockets(server: Process) -> list[Got]:
    """A connection each."""
    return await _over_sockets(server, STREAMS)


async def over_lanes(server: Process) -> list[Got]:
    """All of them on one connection, a lane each."""
    return await _over_sockets(server, 1)


async def _over_sockets(server: Process, connections: int) -> list[Got]:
    sockets = [await Socket.open(server.root) for _ in range(connections)]
    each = STREAMS // connections
    ways: list[Got] = []
    waiting = []
    for number, socket in enumerate(sockets):
        got, ended = _collect(socket, each)
        ways.append(got)
        waiting.append(ended)
        for lane in range(each):
            frame = {"type": "response.create", **request(number * each + lane), "stream_id": f"lane-{lane}"}
            socket.send(encode(frame))
    await asyncio.gather(*waiting)
    for socket in sockets:
        await socket.close()
    return ways


def _collect(socket: Socket, streams: int) -> tuple[Got, asyncio.Future[None]]:
    got: Got = []
    ended = asyncio.get_running_loop().create_future()
    left = streams

    def sink(now: int, payload: bytes) -> None:
        nonlocal left
        got.append((now, payload))
        if payload.startswith(ENDS):
            left -= 1
            if not left:
                ended.set_result(None)

    socket.sink = sink
    return got, ended


WAYS: dict[str, Callable[[Process], Awaitable[list[Got]]]] = {
    "sse": over_sse,
    "websocket": over_websockets,
    "lanes": over_lanes,
}


async def measure(seconds: float, repeats: int, command: str) -> dict[str, Any]:
    """The ways in turn, ``repeats`` times each, after a short run that does not count."""
    tokens = round(seconds * RATE)
    text, script = config(tokens)
    runs: dict[str, list[Run]] = {way: [] for way in WAYS}
    with vivace(text, ("--backend", MODEL), command, {"script.toml": script}) as server:
        for repeat in range(repeats + 1):
            for way, run in WAYS.items():
                made = await _run(server, run, tokens)
                if repeat:
                    runs[way].append(made)
        resident = server.resident_bytes()
    return {
        "streams": STREAMS,
        "tokens_per_second": RATE,
        "tokens_per_stream": tokens,
        "runs": repeats,
        "ways": {way: _summary(made, tokens) for way, made in runs.items()},
        "resident_bytes": resident,
    }


async def _run(server: Process, run: Callable[[Process], Awaitable[list[Got]]], tokens: int) -> Run:
    """Raises :class:`RuntimeError` when a token is missing or came twice."""
    began, before, own = time.monotonic(), server.cpu_seconds(), time.process_time()
    got = await run(server)
    made = Run(server.cpu_seconds() - before, time.process_time() - own, time.monotonic() - began, [], 0, 0)
    for pieces in got:
        lags, events = lags_of(pieces)
        made.lags += lags
        made.events += events
        made.bytes += sum(len(data) for _, data in pieces)
    if len(made.lags) != STREAMS * tokens:
        raise RuntimeError(f"{len(made.lags)} tokens came of {STREAMS * tokens}")
    return made


def _summary(runs: list[Run], tokens: int) -> dict[str, Any]:
    each = STREAMS * tokens
    cost = [run.cpu / each * 1e6 for run in runs]
    lags = [lag for run in runs for lag in run.lags]
    return {
        "cpu_us_per_token": quantile(cost, 0.5),
        "cpu_us_per_token_range": [quantile(cost, 0.0), quantile(cost, 1.0)],
        "cpu_share_of_a_core": quantile([run.cpu / run.seconds for run in runs], 0.5),
        "client_cpu_us_per_token": quantile([run.client_cpu / each * 1e6 for run in runs], 0.5),
        "lag_p50_ms": quantile(lags, 0.5),
        "lag_p99_ms": quantile(lags, 0.99),
        "lag_max_ms": quantile(lags, 1.0),
        "tokens_per_event": round(len(lags) / sum(run.events for run in runs), 2),
        "bytes_per_token": round(sum(run.bytes for run in runs) / len(lags)),
    }


def lags_of(got: Got) -> tuple[list[float], int]:
    """How many milliseconds after it was due each token came, and in how many events."""
    lags: list[float] = []
    events = 0
    for now, data in got:
        if b'"response.output_text.delta"' in data[:64]:
            events += 1
            lags += [(now - int(stamp)) / 1e6 for stamp in read_event(data).delta.split()]
    return lags, events

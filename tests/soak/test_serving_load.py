"""200 clients and 32 streams at a time through a real server process, some of them cut and some of them stuck.

Every stream is checked event by event; ``SOAK_SECONDS`` says how long it lasts. Memory is compared between the end of
the warm-up and the end of the run, under the same load.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from statistics import median
from typing import Any

import msgspec
import pytest

from benchmarks.serving.client import Event, Http, Socket, read_event
from benchmarks.serving.process import Process, vivace

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(sys.platform != "linux", reason="reads the server's memory from /proc"),
]

SECONDS = float(os.environ.get("SOAK_SECONDS", "120"))
SOCKETS, STREAMS, BAD = 90, 90, 20
"""Clients, of one or two connections: WebSockets, HTTP with events, and ten of each kind that are cut or stuck."""
ACTIVE = 32
PATIENCE = 30.0
GROWTH = 24 << 20
"""Bytes that the server's memory may grow by between the warm-up's end and the run's."""
TOKENS = {"short": 20, "middle": 200, "long": 1200}
CONFIG = """
[backends.paced]
kind = "paced"
tok_s = 400
ttft_ms = 5
stamp = true
script = "script.toml"
"""
SCRIPT = "".join(
    f'[[rules]]\nwhen = {{ user = "{name}" }}\nsteps = [{{ tokens = {count} }}]\n' for name, count in TOKENS.items()
)


class Checked:
    """One response as its events come: dense numbers, stamps that rise, every token once."""

    def __init__(self, tokens: int, lane: str | None = None) -> None:
        self.tokens = tokens
        self.lane = lane
        self.next = 0
        self.stamps: list[int] = []
        self.text: list[str] = []
        self.id = ""
        self.whole: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done with the last event, or with what is wrong."""
        self._rest = b""

    def sse(self, now: int, piece: bytes) -> None:
        """Takes pieces of a body of server-sent events."""
        *blocks, self._rest = (self._rest + piece).split(b"\n\n")
        for block in blocks:
            self.take(read_event(block[block.index(b"data: ") + 6 :]))

    def take(self, event: Event) -> None:
        try:
            assert not self.whole.done(), f"an event after the last: {event}"
            self._check(event)
        except Exception as error:
            if not self.whole.done():
                self.whole.set_exception(error)

    async def ended(self) -> None:
        await asyncio.wait_for(asyncio.shield(self.whole), PATIENCE)

    def _check(self, event: Event) -> None:
        assert event.sequence_number == self.next, f"event {event.sequence_number} came where {self.next} was due"
        assert event.stream_id == self.lane
        self.next += 1
        if self.next == 1:
            assert event.type == "response.created"
            self.id = msgspec.json.decode(event.response)["id"]
        elif event.type == "response.output_text.delta":
            self.text.append(event.delta)
            self.stamps += map(int, event.delta.split())
        elif event.type in ("response.completed", "response.incomplete", "response.failed", "error"):
            assert event.type == "response.completed", event
            self._check_end(msgspec.json.decode(event.response))
            self.whole.set_result(None)

    def _check_end(self, response: dict[str, Any]) -> None:
        assert len(self.stamps) == self.tokens == response["usage"]["output_tokens"]
        assert all(before < after for before, after in zip(self.stamps, self.stamps[1:], strict=False))
        assert response["id"] == self.id
        assert response["output"][0]["content"][0]["text"] == "".join(self.text)


class Load:
    """What the connections share, and what became of their turns."""

    def __init__(self, server: Process, until: float) -> None:
        self.server = server
        self.until = until
        self.active = asyncio.Semaphore(ACTIVE)
        self._entering = asyncio.Lock()
        self.counts: Counter[str] = Counter()
        self.running = 0
        self.most_running = 0
        self.resident: list[tuple[float, int]] = []

    def goes_on(self) -> bool:
        return time.monotonic() < self.until

    @asynccontextmanager
    async def streams(self, count: int) -> AsyncIterator[None]:
        """Room for so many streams among the active ones."""
        async with self._entering:  # one at a time, so that two that want two do not wait for each other
            for _ in range(count):
                await self.active.acquire()
        self.running += count
        self.most_running = max(self.most_running, self.running)
        try:
            yield
        finally:
            self.running -= count
            for _ in range(count):
                self.active.release()

    async def watch(self) -> None:
        while self.goes_on():
            self.resident.append((time.monotonic(), self.server.resident_bytes()))
            await asyncio.sleep(0.5)


def body(kind: str, **more: Any) -> dict[str, Any]:
    return {"model": "paced", "input": f"Say something {kind}.", "stream": True, "store": True, **more}


def some(chance: random.Random) -> str:
    return chance.choice(list(TOKENS))


async def sse_client(load: Load, chance: random.Random) -> None:
    """Turns on a kept connection."""
    http = await Http.open(load.server.root)
    while load.goes_on():
        kind = some(chance)
        async with load.streams(1):
            if not load.goes_on():
                break
            checked = Checked(TOKENS[kind])
            asking = http.ask("/v1/responses", msgspec.json.encode(body(kind)), sink=checked.sse)
            reply = await asyncio.wait_for(asking, PATIENCE)
        assert reply.status == 200
        await checked.ended()
        await delete(http, checked.id)
        load.counts["sse"] += 1
        await asyncio.sleep(chance.random())
    await http.close()


async def socket_client(load: Load, chance: random.Random) -> None:
    """Chains of four turns, each turn on one or two lanes at a time."""
    line, http = await Socket.open(load.server.root), await Http.open(load.server.root)
    while load.goes_on():
        lanes: list[str | None] = [None] if chance.random() < 0.5 else ["left", "right"]
        previous: dict[str | None, str] = {}
        made: list[str] = []
        for _ in range(4):
            kinds = {lane: some(chance) for lane in lanes}
            async with load.streams(len(lanes)):
                if not load.goes_on():
                    break
                turns = begin(line, kinds, previous)
                await asyncio.gather(*(turn.ended() for turn in turns.values()))
            previous = {lane: turn.id for lane, turn in turns.items()}
            made += previous.values()
            load.counts["websocket"] += len(turns)
            await asyncio.sleep(chance.random())
        for response_id in made:
            await delete(http, response_id)
    await http.close()
    await line.close()


def begin(
    line: Socket, kinds: dict[str | None, str], previous: dict[str | None, str] | None = None
) -> dict[str | None, Checked]:
    """Ask for a response on each lane, all at once."""
    turns = {lane: Checked(TOKENS[kind], lane) for lane, kind in kinds.items()}

    def sink(now: int, payload: bytes) -> None:
        event = read_event(payload)
        turns[event.stream_id].take(event)

    line.sink = sink
    for lane, kind in kinds.items():
        more = {} if lane is None else {"stream_id": lane}
        if previous and lane in previous:
            more["previous_response_id"] = previous[lane]
        line.send(msgspec.json.encode({"type": "response.create", **body(kind, **more)}))
    return turns


async def delete(http: Http, response_id: str) -> None:
    """Have a response forgotten, so that what the server keeps by right does not grow."""
    reply = await asyncio.wait_for(http.ask(f"/v1/responses/{response_id}", method="DELETE"), PATIENCE)
    assert reply.status == 200, reply.body


async def bad_client(load: Load, chance: random.Random, over_http: bool) -> None:
    """Is cut in the middle of a stream, or takes nothing for a while and is then cut or goes on."""
    deleting = await Http.open(load.server.root)
    while load.goes_on():
        async with load.streams(1):
            if not load.goes_on():
                break
            checked = await (bad_http if over_http else bad_socket)(load, chance)
        if checked.id:
            await delete(deleting, checked.id)
        await asyncio.sleep(chance.random())
    await deleting.close()


async def bad_http(load: Load, chance: random.Random) -> Checked:
    http, checked = await Http.open(load.server.root), Checked(TOKENS["long"])
    asking = asyncio.ensure_future(http.ask("/v1/responses", msgspec.json.encode(body("long")), sink=checked.sse))
    load.counts[f"{await misbehave(http.transport, checked, chance)} sse"] += 1
    await asyncio.gather(asking, return_exceptions=True)
    return checked


async def bad_socket(load: Load, chance: random.Random) -> Checked:
    line = await Socket.open(load.server.root)
    checked = begin(line, {None: "long"})[None]
    load.counts[f"{await misbehave(line.transport, checked, chance)} websocket"] += 1
    return checked


async def misbehave(transport: asyncio.Transport, checked: Checked, chance: random.Random) -> str:
    """Read for a moment, and then as a client should not; ends with the connection cut."""
    narrow(transport)
    await asyncio.sleep(chance.random())
    kind = chance.choice(("cut", "stuck", "slow"))
    if kind != "cut":
        transport.pause_reading()
        await asyncio.sleep(2 * chance.random())
    if kind == "slow":
        transport.resume_reading()
        await checked.ended()
    transport.abort()
    if checked.whole.done():
        checked.whole.result()  # what came until then was right
    return kind


def narrow(transport: asyncio.Transport) -> None:
    """Have the system take little for a client that does not read, so that the server feels it."""
    found = transport.get_extra_info("socket")
    assert found is not None
    found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)


async def run(server: Process) -> Load:
    load = Load(server, time.monotonic() + SECONDS)
    chance = random.Random(0)
    half = BAD // 2
    clients = [
        *(sse_client(load, random.Random(chance.random())) for _ in range(STREAMS)),
        *(socket_client(load, random.Random(chance.random())) for _ in range(SOCKETS)),
        *(bad_client(load, random.Random(chance.random()), over_http=True) for _ in range(half)),
        *(bad_client(load, random.Random(chance.random()), over_http=False) for _ in range(half)),
        load.watch(),
    ]
    async with asyncio.TaskGroup() as group:
        for client in clients:
            group.create_task(client)
    return load


async def health(server: Process) -> dict[str, Any]:
    http = await Http.open(server.root)
    reply = await asyncio.wait_for(http.ask("/healthz"), 2)
    running = await asyncio.wait_for(http.ask("/console/overview"), 2)
    await http.close()
    assert reply.status == running.status == 200
    found: dict[str, Any] = msgspec.json.decode(running.body)
    return found


def test_nothing_is_lost_or_doubled_and_memory_stays_flat() -> None:
    with vivace(CONFIG, ("--backend", "paced"), files={"script.toml": SCRIPT}) as server:
        load = asyncio.run(run(server))
        left = asyncio.run(health(server))
        log = server.log()
    begin, end = load.resident[0][0], load.resident[-1][0]
    warm = [size for at, size in load.resident if 0.25 <= (at - begin) / (end - begin) < 0.4]
    last = [size for at, size in load.resident if (at - begin) / (end - begin) >= 0.85]
    print(dict(load.counts), f"most at a time: {load.most_running}")
    print(f"resident MiB: {median(warm) / 2**20:.1f} warm, {median(last) / 2**20:.1f} at the end")
    # Nobody waits for the receipt of a response whose client has gone, so that one may be late is no fault.
    errors = [line for line in log.splitlines() if " ERROR " in line and "has no receipt" not in line]
    assert not errors and "Traceback" not in log, log[-3000:]
    assert load.most_running == ACTIVE
    assert min(load.counts.values()) > SECONDS / 15 and len(load.counts) == 8
    assert load.counts["sse"] > SECONDS and load.counts["websocket"] > SECONDS
    # Nothing runs on for clients that have gone.
    assert left["running"] == []
    assert median(last) - median(warm) < GROWTH

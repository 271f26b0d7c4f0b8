"""Servers to be a client of: the real one over the paced backend, and one that does what a test tells it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from websockets.asyncio.server import ServerConnection, unix_serve

from vivace.backends.paced import Pace, PacedBackend
from vivace.backends.paced_script import script_of
from vivace.client.service import RemoteService
from vivace.composing import compose_gateway
from vivace.protocol import events as ev
from vivace.server.app import build_door
from vivace.server.host import Host, bind
from vivace.server.options import Authenticator, ServerOptions
from vivace.settings import Settings

MODEL = "paced"


class Running:
    """A server in a thread of its own. ``seen`` are the turns that it has ended."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.seen: list[Any] = []
        self.turns: dict[str, Any] = {}
        self.sockets: list[Any] = []

    def close_connections(self) -> None:
        """Break every connection, as a crash does."""
        for transport in [connection.transport for connection in self.host.server_state.connections]:
            self.loop.call_soon_threadsafe(transport.abort)

    host: Host
    loop: asyncio.AbstractEventLoop


@contextmanager
def serving(
    folder: Path,
    *,
    tok_s: float = 2000.0,
    ttft: float = 0.0,
    rules: list[dict[str, Any]] | None = None,
    tcp: bool = False,
    authenticate: Authenticator | None = None,
    **options: Any,
) -> Iterator[Running]:
    """The real server over the paced backend, on a Unix socket in ``folder`` or on a free port."""
    started = threading.Event()
    place = ServerOptions(uds=None if tcp else folder / "s.sock", port=0, drain_seconds=2.0, **options)
    listener = bind(place)
    name = listener.getsockname()
    running = Running(f"http://127.0.0.1:{name[1]}" if tcp else f"unix:{name}")

    async def main() -> None:
        backend = PacedBackend(MODEL, script_of({"rules": rules or []}), Pace(tok_s=tok_s, ttft=ttft))
        settings = Settings(state_dir=folder / "state")
        gateway = compose_gateway(settings, backends={MODEL: backend}, catalogue=False, database=False)
        gateway.observers.append(running.seen.append)
        running.turns, running.loop = gateway.turns, asyncio.get_running_loop()
        running.host = Host(build_door(gateway, authenticate, place))
        started.set()
        await running.host.run_on(listener)
        await gateway.close()

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    assert started.wait(10)
    try:
        yield running
    finally:
        running.host.stop()
        thread.join(10)
        assert not thread.is_alive()


@asynccontextmanager
async def scripted(folder: Path, handle: Callable[[ServerConnection], Awaitable[None]]) -> AsyncIterator[RemoteService]:
    """A service whose WebSocket is answered by ``handle``."""
    path = folder / "scripted.sock"
    async with unix_serve(handle, str(path), max_size=None):
        service = RemoteService(f"unix:{path}")
        try:
            yield service
        finally:
            await service.close()


def told(kind: str, lane: str, number: int, **fields: Any) -> str:
    """An event of a response as a server writes it."""
    response = {"id": f"resp_{lane}", "model": MODEL, "created_at": 1.0, "output": [], **fields.pop("response", {})}
    whole = {"type": kind, "sequence_number": number, "stream_id": lane, **fields}
    return json.dumps(whole if "delta" in fields else {**whole, "response": response})


def delta(lane: str, number: int, text: str) -> str:
    return told("response.output_text.delta", lane, number, item_id="m", output_index=0, content_index=0, delta=text)


def text_of(events: list[ev.Event]) -> str:
    return "".join(event.delta for event in events if isinstance(event, ev.TextDelta))

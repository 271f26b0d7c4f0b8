"""A server in a thread, with the real gateway on a paced backend."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from vivace.backends.paced import Pace, PacedBackend
from vivace.backends.paced_script import Script
from vivace.protocol.contracts import Gateway, Principal
from vivace.server.app import build_door
from vivace.server.call import Door
from vivace.server.host import Host, address, bind
from vivace.server.options import ServerOptions
from vivace.service.gateway import LocalGateway
from vivace.service.registry import Backends
from vivace.service.sealing import Sealer

KEY = "vv_right"


async def by_key(secret: str) -> Principal | None:
    """Knows one key."""
    return Principal("ann", "vv_right", "") if secret == KEY else None


def paced(tok_s: float = 2000.0, ttft: float = 0.01, script: Script | None = None, **pace: Any) -> LocalGateway:
    """A gateway whose one model is called ``paced``."""
    backend = PacedBackend("paced", script, Pace(tok_s=tok_s, ttft=ttft, **pace))
    return LocalGateway(Backends({"paced": backend}), sealer=Sealer(b"k" * 32))


class Running:
    """A running server. ``base_url`` ends in ``/v1``."""

    def __init__(self, door: Door, host: Host, loop: asyncio.AbstractEventLoop, root: str) -> None:
        self.door = door
        self.host = host
        self.loop = loop
        self.root = root
        self.base_url = f"{root}/v1"
        self.ws_url = f"ws{root.removeprefix('http')}/v1/responses"

    def call(self, work: Callable[[], Awaitable[Any]]) -> Any:
        """Run on the server's loop."""

        async def run() -> Any:
            return await work()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(10)


@contextmanager
def serving(
    gateway: Gateway | Callable[[], Gateway] | None = None,
    authenticate: Callable[[str], Awaitable[Principal | None]] | None = None,
    **options: Any,
) -> Iterator[Running]:
    """Serve, on a free port, until the block ends. A callable makes the gateway on the server's loop."""
    chosen = ServerOptions(**{"port": 0, "drain_seconds": 1.0, **options})
    listener = bind(chosen)
    started = threading.Event()
    found: list[Running] = []
    failures: list[BaseException] = []

    async def serve() -> None:
        made = gateway() if callable(gateway) else gateway or paced()
        door = build_door(made, authenticate, chosen)
        host = Host(door)
        found.append(Running(door, host, asyncio.get_running_loop(), address(listener)))
        serving = asyncio.ensure_future(host.run_on(listener))
        while not host.started and not serving.done():
            await asyncio.sleep(0.005)
        started.set()
        await serving
        await made.close()

    def thread() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            failures.append(error)
            started.set()

    worker = threading.Thread(target=thread, daemon=True)
    worker.start()
    assert started.wait(10)
    if failures:
        raise failures[0]
    try:
        yield found[0]
    finally:
        found[0].host.stop()
        worker.join(15)
        assert not worker.is_alive(), "the server did not stop"
        if failures:
            raise failures[0]

"""A running server: its sockets, its life, and its end without a lost response."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
import time
from pathlib import Path
from types import FrameType

import uvicorn

from vivace.errors import VivaceError
from vivace.server.app import build_app
from vivace.server.call import Door
from vivace.server.options import ServerOptions
from vivace.server.wire import WireConfig

BACKLOG = 2048


class Host(uvicorn.Server):
    """Serves a door until it is told to stop; see :meth:`run_on`."""

    def __init__(self, door: Door) -> None:
        super().__init__(WireConfig(build_app(door), door.options))
        self.door = door
        self._last_seen = time.monotonic()

    async def run_on(self, listener: socket.socket) -> None:
        """Serve on a bound socket. Ends by :meth:`stop`, SIGINT or SIGTERM, or after idle time; a second signal ends
        what still runs."""
        await self.serve(sockets=[listener])

    def stop(self) -> None:
        """Begin to end; safe from any thread."""
        self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # uvicorn would raise the signal again at the end; having ended as told is a success.
        if self.should_exit:
            self.force_exit = True
        self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        idle = self.door.options.idle_seconds
        if self.server_state.connections or self.server_state.tasks or self.door.gateway.busy:
            self._last_seen = time.monotonic()
        elif idle is not None and time.monotonic() - self._last_seen >= idle:
            self.should_exit = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no new connections, let what runs end, tell the WebSockets, close."""
        for server in self.servers:
            server.close()
        self.door.drain.begun.set()
        seconds = self.door.options.drain_seconds
        draining = asyncio.gather(self.door.gateway.drain(seconds), self.door.drain.wait(seconds))
        while not draining.done() and not self.force_exit:
            await asyncio.wait((draining,), timeout=0.1)
        if draining.done():
            draining.result()
        else:
            draining.cancel()
        await self.door.drain.end()
        await self.door.drain.wait(1.0)
        await super().shutdown(sockets)


def bind(options: ServerOptions) -> socket.socket:
    """The socket to listen on. Raises :class:`VivaceError` when the place is taken or not ours."""
    return bind_unix(options.uds) if options.uds is not None else _bind_tcp(options.host, options.port)


def bind_unix(path: Path) -> socket.socket:
    """A Unix socket that only this user can open; one that nobody listens on any more is replaced."""
    _clear(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # The mode is set before anybody could connect: the name appears with bind, and connecting needs listen.
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise VivaceError(f"Cannot listen on {path}: {error.strerror or error}", code="cannot_listen") from None
    finally:
        os.umask(before)
    return listener


def remove_unix(path: Path | None) -> None:
    """Remove the file of a closed Unix socket, unless somebody listens there again."""
    if path is None:
        return
    with contextlib.suppress(VivaceError):
        _clear(path)


def address(listener: socket.socket) -> str:
    """Where it listens: ``http://127.0.0.1:8000``, or ``unix:/path``."""
    name = listener.getsockname()
    if listener.family == socket.AF_UNIX:
        return f"unix:{name}"
    host = f"[{name[0]}]" if ":" in name[0] else name[0]
    return f"http://{host}:{name[1]}"


def _bind_tcp(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise VivaceError(f"Cannot listen on {host}: {error.strerror or error}", code="cannot_listen") from None
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(place)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise VivaceError(
            f"Cannot listen on {host} port {port}: {error.strerror or error}",
            hint="Take another with --port; --port 0 takes a free one.",
            code="cannot_listen",
            param="port",
        ) from None
    return listener


def _clear(path: Path) -> None:
    """Make place for a socket at ``path``."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise VivaceError(f"{path} exists and is no socket", code="cannot_listen", param="uds")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
        except OSError:
            pass
    raise VivaceError(f"A server listens on {path} already", code="already_listening", param="uds")

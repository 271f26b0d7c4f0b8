"""The process of the resident service: the gateway behind a door on a Unix socket, until nobody wants it any more.

Started as ``python -m vivace.resident_daemon STEM MINUTES`` by :mod:`vivace.resident`, with its standard error in the
log.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs

import msgspec
from filelock import FileLock, Timeout
from starlette.types import ASGIApp, Receive, Scope, Send

import vivace
from vivace import loops
from vivace.backends.base import Backend
from vivace.client.resident import Opened, Refusal, ResidentService, Stage, Status
from vivace.composing import CatalogueBackend, ComposedGateway, compose_gateway
from vivace.errors import VivaceError
from vivace.models.catalogue import find_model
from vivace.resident import Place
from vivace.server.app import build_door
from vivace.server.host import Host, bind_unix
from vivace.server.options import ServerOptions
from vivace.settings import Settings

log = logging.getLogger("vivace.resident")

LARGEST_LOG = 1 << 20
DRAIN = 5.0
"""Seconds that running responses may still take when it is told to end."""
YOUNG = 60.0
"""Seconds in which a socket that refuses may belong to a process that is about to listen."""
GONE = 3600.0
"""Seconds after which the log and the lock of one that is gone are removed."""
OLD = 7 * 86400.0
"""The same where it failed: somebody was told to read the log."""
_STEM = re.compile(r"\.(log|log\.1|lock|failed)$")


class Loading:
    """Tells everybody who waits what loading does."""

    def __init__(self) -> None:
        self._listeners: set[asyncio.Queue[Stage]] = set()

    def __call__(self, stage: str, share: float) -> None:
        for queue in self._listeners:
            queue.put_nowait(Stage(stage, share))

    @contextlib.contextmanager
    def heard(self, queue: asyncio.Queue[Stage]) -> Iterator[None]:
        self._listeners.add(queue)
        try:
            yield
        finally:
            self._listeners.discard(queue)


class ResidentApp:
    """The paths under ``/resident``; all others are the door's."""

    def __init__(self, host: Host, gateway: ComposedGateway, loading: Loading, settings: Settings) -> None:
        self._app = cast(ASGIApp, host.config.app)
        self._gateway = gateway
        self._loading = loading
        self._settings = settings
        self._host = host
        self._begun = time.monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/resident/"):
            await self._app(scope, receive, send)
            return
        match scope["method"], scope["path"]:
            case "POST", "/resident/open":
                model = parse_qs(scope["query_string"].decode("latin-1")).get("model", [""])[0]
                await _begin(send)
                async for told in self._open(model):
                    await _write(send, msgspec.json.encode(told) + b"\n", more=True)
                await _write(send, b"", more=False)
            case "GET", "/resident/status":
                await _begin(send)
                await _write(send, msgspec.json.encode(self._status()), more=False)
            case "POST", "/resident/stop":
                await _begin(send)
                await _write(send, b"{}", more=False)
                log.info("told to end")
                self._host.stop()
            case _:
                await self._app(scope, receive, send)

    async def _open(self, model: str) -> AsyncIterator[Stage | Opened | Refusal]:
        """Load a model. It goes on when the client that waited for it is gone: the next one wants it too."""
        heard: asyncio.Queue[Stage] = asyncio.Queue()
        with self._loading.heard(heard):
            opening = asyncio.ensure_future(self._opened(model))
            while not opening.done():
                stage = asyncio.ensure_future(heard.get())
                await asyncio.wait((opening, stage), return_when=asyncio.FIRST_COMPLETED)
                if stage.done():
                    yield stage.result()
                else:
                    stage.cancel()
            yield opening.result()

    async def _opened(self, model: str) -> Opened | Refusal:
        try:
            if model not in self._gateway.backends.opened():
                find_model(model, self._settings)  # says what is wrong with the name as every command does
            return Opened(await self._gateway.open(model))
        except VivaceError as error:
            return Refusal.of(error)
        except Exception as error:
            log.exception("cannot open %s", model)
            what = f"The resident service failed to open {model} ({type(error).__name__}: {error})."
            return Refusal(what, "Please report it.", "internal", None, 1)

    def _status(self) -> Status:
        opened = self._gateway.backends.opened().items()
        loaded = [name for name, backend in opened if isinstance(backend, CatalogueBackend) and backend.ready]
        idle = self._host.door.options.idle_seconds or 0.0
        uptime = time.monotonic() - self._begun
        return Status(vivace.__version__, os.getpid(), uptime, idle, loaded, len(self._gateway.turns))


def main(arguments: Sequence[str], backends: Mapping[str, Backend] | None = None) -> None:
    """``backends`` are offered beside the models of the catalogue."""
    stem, minutes = arguments
    place = Place(stem)
    _log_to(place.log)
    try:
        loops.run(serve(place, Settings(), float(minutes), backends))
    except VivaceError as error:
        log.error("%s", error)
        sys.exit(error.exit_code)
    except Exception:
        log.exception("the resident service broke")
        sys.exit(1)


async def serve(
    place: Place, settings: Settings, minutes: float, backends: Mapping[str, Backend] | None = None
) -> None:
    """Serve on the place's socket until idle, told to end, or sent a signal."""
    sweep(place.socket.parent, place)
    loading = Loading()
    # Tiers and plans are what a server sells to others; this one serves its own user alone.
    own = settings.model_copy(update={"tiers_file": None})
    gateway = compose_gateway(own, backends=backends, database=False, watch=loading)
    options = ServerOptions(uds=place.socket, idle_seconds=minutes * 60, drain_seconds=DRAIN)
    host = Host(build_door(gateway, None, options))
    host.config.app = cast(Any, ResidentApp(host, gateway, loading, settings))
    listener = bind_unix(place.socket)
    log.info("version %s serves on %s, process %d", vivace.__version__, place.socket, os.getpid())
    retiring = asyncio.create_task(retire(place))
    loops.settle()
    try:
        await host.run_on(listener)
    finally:
        retiring.cancel()
        _remove(place)
        await gateway.close()
        log.info("ended")


async def retire(place: Place) -> None:
    """End those that nobody will find again, since the code that looked for them is no more."""
    for path in place.outdated:
        service = ResidentService(path)
        with contextlib.suppress(VivaceError, OSError, TimeoutError):
            if path.stat().st_uid == os.getuid():
                async with asyncio.timeout(DRAIN):
                    await service.end()
                log.info("ended the one on %s", path)
        await service.close()


def sweep(folder: Path, own: Place | None = None) -> None:
    """Remove the sockets of processes that are gone, and the old files of those that will not come again."""
    now = time.time()
    for path in folder.glob("resident-*.sock"):
        with contextlib.suppress(OSError):
            if now - path.stat().st_mtime > YOUNG and not _listens(path):
                path.unlink()
    for path in folder.glob("resident-*"):
        place = Place(_STEM.sub("", str(path)))
        if path.suffix == ".sock" or place == own or place.socket.exists():
            continue
        with contextlib.suppress(OSError, Timeout):
            if now - path.stat().st_mtime > (OLD if place.failures.exists() else GONE):
                # Its lock may be held by a command that is about to start it again.
                with FileLock(path, timeout=0) if path == place.lock else contextlib.nullcontext():
                    path.unlink()


def _remove(place: Place) -> None:
    """Remove the socket's file, unless another one is being started there, which does so itself."""
    with contextlib.suppress(Timeout), FileLock(place.lock, timeout=0):
        if not _listens(place.socket):
            place.socket.unlink(missing_ok=True)


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True
        return True


class _Log(RotatingFileHandler):
    """The log, at most two files of a megabyte; what is written to standard error goes on into the newer one."""

    def doRollover(self) -> None:
        super().doRollover()
        if self.stream is not None:
            os.dup2(self.stream.fileno(), 2)


def _log_to(path: Path) -> None:
    handler = _Log(path, maxBytes=LARGEST_LOG, backupCount=1, encoding="utf-8")
    if path.stat().st_size > LARGEST_LOG:  # what was not logged but printed counts too
        handler.doRollover()
    logging.basicConfig(level=logging.INFO, handlers=[handler], format="%(asctime)s %(levelname)s %(name)s %(message)s")


async def _begin(send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})


async def _write(send: Send, body: bytes, more: bool) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})


if __name__ == "__main__":
    main(sys.argv[1:])

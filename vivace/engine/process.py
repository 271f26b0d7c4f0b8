"""The engine process, seen from the process that started it.

:class:`EngineProcess` starts it, restarts it after a crash, and gives each request a stream of progress. A crash is an
error on the running requests, not the end of whoever asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable

import msgspec

from vivace.engine import messages as m
from vivace.errors import VivaceError

Watch = Callable[[str, float], None]


class EngineCrashed(VivaceError):
    """The engine process ended while the request ran. The next request starts it again."""

    def __init__(self, status: int | None) -> None:
        how = f"by signal {-status}" if status is not None and status < 0 else f"with status {status}"
        super().__init__(
            f"The engine process ended {how}.", hint="Try again; it starts anew. Is there enough memory?", code="engine"
        )


class EngineStream:
    """Progress of one request, in order; the last one has a ``finish``. Iterate it once.

    :meth:`abort` may be called at any moment; the engine then ends the request with the reason ``aborted``, unless it
    had ended already.
    """

    def __init__(self, process: EngineProcess, request_id: int) -> None:
        self.id = request_id
        self._process = process
        self._queue: asyncio.Queue[m.Progress | VivaceError] = asyncio.Queue()

    async def __aiter__(self) -> AsyncIterator[m.Progress]:
        while True:
            progress = await self._queue.get()
            if isinstance(progress, VivaceError):
                raise progress
            yield progress
            if progress.finish is not None:
                return

    def abort(self) -> None:
        self._process._send(m.Abort(self.id))

    def put(self, progress: m.Progress | VivaceError) -> None:
        self._queue.put_nowait(progress)


class EngineProcess:
    """One engine process for one model. All methods belong to one event loop."""

    def __init__(self, config: m.EngineConfig) -> None:
        self.config = config
        self.ready: m.Ready | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._streams: dict[int, EngineStream] = {}
        self._reports: list[asyncio.Future[m.Report]] = []
        self._opening = asyncio.Lock()
        self._ids = itertools.count(1)

    async def open(self, watch: Watch = lambda stage, share: None) -> m.Ready:
        """Start the process if it does not run, and wait until it can answer."""
        async with self._opening:
            if self.ready is None:
                await self._launch(watch)
            assert self.ready is not None
            return self.ready

    def start(self, request: m.Start) -> EngineStream:
        """Send a request to the open engine; its ``id`` is set here."""
        if self.ready is None:
            raise VivaceError("The engine is not running.", hint="Open it first.", code="engine")
        stream = EngineStream(self, next(self._ids))
        self._streams[stream.id] = stream
        self._send(msgspec.structs.replace(request, id=stream.id))
        return stream

    async def report(self) -> m.Report:
        await self.open()
        answer: asyncio.Future[m.Report] = asyncio.get_running_loop().create_future()
        self._reports.append(answer)
        self._send(m.Inspect())
        return await answer

    async def close(self) -> None:
        """End the process; running requests fail."""
        self._send(m.Shutdown())
        if self._reading is not None:
            await self._reading
        else:
            await self._drop()

    async def _launch(self, watch: Watch) -> None:
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "vivace.engine.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=_environment(),
            )
        finally:
            theirs.close()
        reader, self._writer = await asyncio.open_connection(sock=ours, limit=1 << 20)
        self._send(m.Open(self.config))
        try:
            while self.ready is None:
                match await _receive(reader):
                    case m.Loading(stage, share):
                        watch(stage, share)
                    case m.Ready() as ready:
                        self.ready = ready
                    case m.Fatal(message, hint, code):
                        raise VivaceError(message, hint=hint, code=code)
                    case _:
                        raise EngineCrashed(await _ended(self._process))
        except BaseException:
            if self._process is not None:  # nobody waits for it any more, and it would first load to the end
                self._process.kill()
            await self._drop()
            raise
        self._reading = asyncio.create_task(self._read(reader))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while (message := await _receive(reader)) is not None:
            if isinstance(message, m.Step):
                for progress in message.progress:
                    ended = progress.finish is not None
                    stream = self._streams.pop(progress.id) if ended else self._streams[progress.id]
                    stream.put(progress)
            elif isinstance(message, m.Report) and self._reports:
                self._reports.pop(0).set_result(message)
        await self._drop()

    async def _drop(self) -> None:
        """The process is gone or must go: fail what runs, so that the next request starts anew."""
        self.ready = None
        process, self._process = self._process, None
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
        error = EngineCrashed(await _ended(process) if process is not None else None)
        for stream in self._streams.values():
            stream.put(error)
        self._streams.clear()
        for answer in self._reports:
            answer.set_exception(error)
        self._reports.clear()

    def _send(self, message: m.Down) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(m.frame(message))


async def _ended(process: subprocess.Popen[bytes]) -> int:
    """The exit status of a process whose line is closed: it ends by itself, or is killed if it does not."""
    try:
        return await asyncio.to_thread(process.wait, 2.0)
    except subprocess.TimeoutExpired:
        process.kill()
        return await asyncio.to_thread(process.wait)


async def _receive(reader: asyncio.StreamReader) -> m.Up | None:
    """The next message, or None when the other side is gone."""
    try:
        (length,) = m.HEADER.unpack(await reader.readexactly(m.HEADER.size))
        return m.decode_up(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def _environment() -> dict[str, str]:
    """The engine's own environment: idle OpenMP threads must sleep rather than spin on cores that others need."""
    return {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "1", **os.environ}

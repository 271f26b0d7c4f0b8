"""One command as a process group of its own, which can be ended whole, at once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from vivace.agent.tools.output import Output
from vivace.errors import VivaceError

GRACE = 0.03
"""Seconds between TERM and KILL when the user waits; the whole of a stop is to take under 0.1."""
PATIENCE = 1.0
"""The same when nobody waits: a server that is killed as a job may write its files."""
DRAIN = 0.25
"""Seconds that the output is waited for after the command itself has ended."""
MARK = "VIVACE_COMMAND"
"""Environment variable that every process of a command inherits: finds those that left its group."""

End = Literal["exited", "timeout", "interrupted"]


class Process:
    """A running command. ``ended`` tells why it ended; ``code`` its exit code, negative for a signal."""

    def __init__(self, process: asyncio.subprocess.Process, pipe: int, output: Output, mark: str) -> None:
        self._process = process
        self._mark = mark
        self._over = asyncio.Event()
        self.output = output
        self.pid = process.pid
        self.started = time.perf_counter()
        self.seconds = 0.0
        self.ended: End | None = None
        self.leftover = False
        """Processes that the command left behind were killed."""
        self._reader = asyncio.create_task(self._read(pipe))
        self._ending = asyncio.create_task(self._end())

    @classmethod
    async def start(cls, argv: Sequence[str], cwd: Path, env: Mapping[str, str], output: Output) -> Process:
        """Start ``argv`` in a session of its own, with no input. Raises :class:`VivaceError` (``cannot_start``)."""
        mark = secrets.token_hex(8)
        # Not asyncio's own pipe: its wait() returns only when the last holder of the pipe is gone.
        reading, writing = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                cwd=cwd,
                env={**env, MARK: mark},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=writing,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
        except BaseException as error:
            os.close(reading)
            if isinstance(error, OSError | ValueError):
                reason = getattr(error, "strerror", None) or str(error)
                raise VivaceError(f"cannot start {argv[0]}: {reason}", code="cannot_start") from None
            raise
        finally:
            os.close(writing)
        return cls(process, reading, output, mark)

    @property
    def code(self) -> int | None:
        return self._process.returncode

    @property
    def running(self) -> bool:
        return not self._over.is_set()

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end, at most ``timeout`` seconds; false when it still runs then."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), timeout)
        return not self.running

    async def stop(self, why: End = "interrupted", grace: float = GRACE) -> None:
        """End the command and everything that it started: TERM, and KILL ``grace`` seconds later. Safe at any time."""
        if self.ended is None:
            self.ended = why
            await asyncio.shield(asyncio.create_task(self._kill(grace)))
        await self._over.wait()

    async def _kill(self, grace: float) -> None:
        self._signal(signal.SIGTERM)
        deadline = time.perf_counter() + grace
        while time.perf_counter() < deadline and (self.code is None or self._group_lives()):
            await asyncio.sleep(0.005)
        self._signal(signal.SIGKILL)
        await self._process.wait()
        await self._gone()
        await self._finish()

    async def _end(self) -> None:
        """The command has ended by itself; whatever it left in the background goes too."""
        await self._process.wait()
        if self.ended is not None:  # a stop is under way, and cleans up
            return
        self.ended = "exited"
        # A process that keeps the pipe open is a leftover; a burst of output that is still on its way is not.
        await asyncio.wait([self._reader], timeout=DRAIN)
        if self._group_lives() or strays(self._mark):
            self.leftover = True
            self._signal(signal.SIGTERM)
            await asyncio.sleep(GRACE)
            self._signal(signal.SIGKILL)
            await self._gone()
        await self._finish()

    async def _gone(self) -> None:
        """KILL is carried out when the kernel gets to it."""
        deadline = time.perf_counter() + GRACE
        while time.perf_counter() < deadline and (self._group_lives() or strays(self._mark)):
            await asyncio.sleep(0.002)

    async def _finish(self) -> None:
        await asyncio.wait([self._reader], timeout=DRAIN)
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        self.output.feed(b"", final=True)
        self.seconds = time.perf_counter() - self.started
        self._over.set()

    async def _read(self, pipe: int) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(pipe, "rb", buffering=0)
        )
        try:
            while data := await reader.read(64 * 1024):
                self.output.feed(data)
        finally:
            transport.close()

    def _signal(self, number: signal.Signals) -> None:
        # The group outlives its leader for as long as it has members, so its id is still ours.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)
        for pid in strays(self._mark):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)

    def _group_lives(self) -> bool:
        try:
            os.killpg(self.pid, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return self.code is not None or not _is_zombie(self.pid)


def strays(mark: str) -> list[int]:
    """Processes of a command, wherever they are: also those that made a session of their own. Linux only."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    with contextlib.suppress(OSError), os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if wanted in Path(entry.path, "environ").read_bytes().split(b"\0"):
                        found.append(int(entry.name))
    return found


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rsplit(b")", 1)[1].split()[0] == b"Z"
    except (OSError, IndexError):
        return False

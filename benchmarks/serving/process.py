"""Servers as processes of their own, and what the kernel says about them (Linux)."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

VIVACE = shlex.join((sys.executable, "-m", "vivace"))
"""The command of the vivace that is measured."""
START = 120.0
"""Seconds until a server must listen."""


class Process(Struct, frozen=True):
    """A running server. ``root`` is ``http://127.0.0.1:PORT``."""

    pid: int
    root: str
    folder: Path
    """Where it keeps its state and its log, ``log.txt``."""

    def cpu_seconds(self) -> float:
        """Processor time of all its threads, user and system, to the nanosecond.

        The clock's number is that of clock_getcpuclockid(3); /proc/PID/stat counts in hundredths of a second.
        """
        return time.clock_gettime((~self.pid << 3) | 2)

    def resident_bytes(self) -> int:
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def log(self) -> str:
        return (self.folder / "log.txt").read_text("utf-8", "replace")


Listens = Callable[[str], str | None]
"""Gives a server's address once it listens; is shown its log."""


def said_at(log: str) -> str | None:
    """Of a server that prints ``serves NAME at http://...``."""
    found = re.search(r"serves .* at (http://\S+)", log)
    return found[1] if found else None


@contextmanager
def running(
    command: Sequence[str], listens: Listens, *, environment: Mapping[str, str] = {}, folder: Path
) -> Iterator[Process]:
    """Run a server until the block ends. Raises :class:`RuntimeError` with the end of its log when it does not come to
    listen."""
    log = folder / "log.txt"
    with log.open("wb") as out:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env={**os.environ, **environment}
        )
    try:
        yield Process(child.pid, _listening(child, log, listens), folder)
    finally:
        _end(child)


@contextmanager
def vivace(
    config: str = "", arguments: Sequence[str] = (), command: str = VIVACE, files: Mapping[str, str] = {}
) -> Iterator[Process]:
    """``vivace serve`` on a free port with a state of its own; ``config`` is the text of its configuration file, which
    may name ``files``.

    Its database is as in use: each response is written down before its client is told of its end.
    """
    with tempfile.TemporaryDirectory(prefix="vivace-serving-") as made:
        place = Path(made)
        for name, text in files.items():
            (place / name).write_text(text, "utf-8")
        if config:
            (place / "vivace.toml").write_text(config, "utf-8")
            arguments = ("--config", str(place / "vivace.toml"), *arguments)
        whole = (*shlex.split(command), "serve", "--port", "0", "--drain-seconds", "1", *arguments)
        environment = {"VIVACE_STATE_DIR": str(place), "PYTHONUNBUFFERED": "1"}
        with running(whole, said_at, environment=environment, folder=place) as process:
            yield process


def _listening(child: subprocess.Popen[bytes], log: Path, listens: Listens) -> str:
    end = time.monotonic() + START
    while time.monotonic() < end and child.poll() is None:
        if (root := listens(log.read_text("utf-8", "replace"))) is not None:
            return root
        time.sleep(0.05)
    told = log.read_text("utf-8", "replace")[-2000:]
    what = "does not listen" if child.poll() is None else f"ended with {child.returncode}"
    raise RuntimeError(f"{child.args!r} {what}:\n{told}")


def _end(child: subprocess.Popen[bytes]) -> None:
    child.send_signal(signal.SIGTERM)
    try:
        child.wait(15)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()

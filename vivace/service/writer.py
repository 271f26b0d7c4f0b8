"""The thread that writes to the database, so that nobody on the event loop waits for a disk.

Rows are taken in batches, one commit for each. What was acknowledged is committed: it outlives this process, however
that ends. With a :class:`vivace.service.journal.Journal` rows are safe from that as soon as they are put, and whoever
only needs this waits for nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from typing import Any

from sqlalchemy import Connection, Engine, Executable
from sqlalchemy.exc import DBAPIError, IntegrityError, InterfaceError, OperationalError

from vivace.errors import VivaceError
from vivace.service.journal import Journal

Row = tuple[Executable, dict[str, Any]]
"""A statement and its parameters. Rows of one batch are grouped by statement, so their order must not matter."""

BATCH = 128
"""Jobs per commit at most: what other servers may see late (:mod:`vivace.service.follow`) has to be bounded."""

CALM = 0.2
"""Seconds that rows in the journal wait for others: a commit takes the interpreter from the loop for a millisecond or
two, whether it is of one row or of a hundred."""

MOST_WAITING = 100_000
"""Jobs that wait for a database that does not answer, before more are refused."""

LONGEST_PAUSE = 5.0
"""Seconds between two tries at most."""

log = logging.getLogger(__name__)


class Ack:
    """What becomes of a job. ``error`` says why its rows were refused; None is no error, or not done yet.

    ``safe``: the end of this process cannot lose it, whether or not it is done.
    """

    __slots__ = ("_lock", "_waiters", "done", "error", "file", "rows", "safe")

    def __init__(self, lock: threading.Lock, rows: tuple[Row, ...]) -> None:
        self.rows = rows
        self.done = False
        self.error: Exception | None = None
        self.safe = False
        self.file: int | None = None
        self._lock = lock
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    async def wait(self, timeout: float | None = None) -> None:
        """Until the rows are committed.

        Raises VivaceError ``database_unavailable`` after ``timeout`` seconds (they may still be written), or
        ``database_refused`` when the database refused them. Rows that are there already are no error: a commit whose
        answer got lost is tried again.
        """
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        with self._lock:
            if not self.done:
                self._waiters.append((loop, future))
        if not self.done:
            await asyncio.wait((future,), timeout=timeout)
        if not self.done:
            raise VivaceError(
                "The database does not answer", hint="See the service's log.", code="database_unavailable"
            )
        if self.error is not None and not isinstance(self.error, IntegrityError):
            raise VivaceError(f"The database refused a row: {self.error}", code="database_refused") from self.error


class Writer:
    """Owns the thread and its connection. :meth:`put` may be called from any thread."""

    def __init__(self, engine: Engine, journal: Journal | None = None) -> None:
        self._engine = engine
        self._journal = journal
        self._names: dict[int, str] = {}
        self._statements: dict[str, Executable] = {}
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._jobs: deque[Ack] = deque()
        self._closing = False
        self.recovered: Ack | None = None
        """The last job of those that :meth:`recover` took over."""
        self._room = 0
        """Jobs that may still join those that are held back for a moment; 0 while none are."""
        self._connection: Connection | None = None
        self._thread = threading.Thread(target=self._run, name="vivace-writer", daemon=True)
        self._thread.start()

    def name(self, name: str, statement: Executable) -> None:
        """Make a statement known to the journal. Rows of unnamed ones are not kept there."""
        self._names[id(statement)] = name
        self._statements[name] = statement

    def recover(self) -> int:
        """Take over what processes that are gone have left in the journal's folder; the number of jobs."""
        count = 0
        if self._journal is None:
            return count
        for path, jobs in self._journal.left_by_others():
            for job in jobs:
                rows = [(self._statements[name], row) for name, row in job if name in self._statements]
                if rows:
                    self.recovered = self.put(*rows)
                    count += 1
            path.unlink(missing_ok=True)  # it is in our own journal now
        if count:
            log.warning("%d responses of a service that was killed are written down now", count)
        return count

    def put(self, *rows: Row) -> Ack:
        """Write these rows together, soon. Returns at once.

        Raises VivaceError ``database_unavailable`` when far too much waits already, or after :meth:`close`.
        """
        with self._wake:
            if self._closing or len(self._jobs) >= MOST_WAITING:
                raise VivaceError("The database takes no more rows", code="database_unavailable")
            ack = Ack(self._lock, rows)
            self._keep(ack)
            self._jobs.append(ack)
            if not self._room or self._disturbed():
                self._wake.notify()
        return ack

    def close(self, timeout: float = 10.0) -> bool:
        """Write what waits and end the thread. Whether all was written."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join(timeout)
        if self._journal is not None:
            self._journal.close()
        return not self._thread.is_alive() and not self._jobs

    def _keep(self, ack: Ack) -> None:
        """Put a job into the journal, if it can be kept there whole."""
        if self._journal is None or not all(id(statement) in self._names for statement, _ in ack.rows):
            return
        try:
            ack.file = self._journal.add([(self._names[id(statement)], row) for statement, row in ack.rows])
            ack.safe = True
        except OSError as error:
            log.error("The journal takes no rows (%s); responses wait for the database", error)

    def _run(self) -> None:
        while batch := self._next():
            if all(ack.safe for ack in batch) and not self._closing:
                # Nobody waits for them: they do not compete with the response whose end they tell of, and more come.
                batch += self._calm(BATCH - len(batch))
            if self._write(batch) is not None:
                # One of them spoils the batch: each on its own.
                for ack in batch:
                    ack.error = self._write([ack])
            self._acknowledge(batch)
        self._disconnect()

    def _next(self) -> list[Ack]:
        with self._wake:
            while not self._jobs and not self._closing:
                self._wake.wait()
            return [self._jobs.popleft() for _ in range(min(BATCH, len(self._jobs)))]

    def _calm(self, most: int) -> list[Ack]:
        """The jobs of the next moment, which ends early for one that somebody waits for."""
        with self._wake:
            self._room = most
            self._wake.wait_for(self._disturbed, CALM)
            self._room = 0
            return [self._jobs.popleft() for _ in range(min(most, len(self._jobs)))]

    def _disturbed(self) -> bool:
        return self._closing or len(self._jobs) >= self._room or any(not ack.safe for ack in self._jobs)

    def _write(self, batch: list[Ack]) -> Exception | None:
        """Commit a batch, however long the database does not answer. What comes back is why it was refused."""
        pause = 0.05
        while True:
            try:
                self._commit(batch)
                return None
            except Exception as error:
                self._disconnect()
                if not _passes(error):
                    if len(batch) == 1 and not isinstance(error, IntegrityError):
                        log.error("The database refused a row: %s", _reason(error))
                    return error
                log.warning("The database does not answer (%s); rows wait", _reason(error))
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _commit(self, batch: list[Ack]) -> None:
        if self._connection is None:
            self._connection = self._engine.connect()
        groups: dict[int, tuple[Executable, list[dict[str, Any]]]] = {}
        for ack in batch:
            for statement, parameters in ack.rows:
                groups.setdefault(id(statement), (statement, []))[1].append(parameters)
        with self._connection.begin():
            for statement, many in groups.values():
                self._connection.execute(statement, many)

    def _acknowledge(self, batch: list[Ack]) -> None:
        loops: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
        with self._lock:
            for ack in batch:
                ack.done = True
                if ack.file is not None and self._journal is not None:
                    self._journal.committed(ack.file)
                for loop, future in ack._waiters:
                    loops.setdefault(loop, []).append(future)
        for loop, futures in loops.items():
            # A loop that was closed has nobody left who waits.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_resolve, futures)

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _resolve(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)


def _passes(error: Exception) -> bool:
    """Whether asking again may help: the server is away, the disk is full, somebody holds a lock."""
    if isinstance(error, OperationalError | InterfaceError):
        return True
    return isinstance(error, DBAPIError) and error.connection_invalidated


def _reason(error: Exception) -> str:
    return str(getattr(error, "orig", None) or error).strip().splitlines()[0]

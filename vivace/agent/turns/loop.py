"""The one loop that runs the turns of a conversation, one after the other, and nothing beside them that may not be.

It is the only consumer of the inbox: a message that comes while a turn unwinds is found when the loop comes round.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

from vivace.agent.turns.inbox import Inbox
from vivace.errors import UsageError


class Runs(Protocol):
    """A turn: runs once, never raises; a cancellation is its way to be stopped."""

    abandoned: bool

    async def run(self) -> None: ...


class Loop:
    """``make`` gives the next turn, told its number and whether it goes on with one that was cut off. ``settle`` is
    waited for after each."""

    def __init__(self, inbox: Inbox, make: Callable[[int, bool], Runs], settle: Callable[[], Awaitable[None]]) -> None:
        self.inbox = inbox
        self.number = 0
        """Of the turn that runs, or ran last."""
        self._make = make
        self._settle = settle
        self._wake = asyncio.Event()
        self._resting = asyncio.Event()
        self._resting.set()
        self._going_on = False
        self._stopping = False
        self._turn: Runs | None = None
        self._work: asyncio.Task[None] | None = None
        self._held = asyncio.Lock()
        """Held by a turn, and by whatever may not happen during one."""
        self._task = asyncio.create_task(self._run())

    @property
    def resting(self) -> bool:
        """No turn runs."""
        return self._resting.is_set()

    @property
    def working(self) -> bool:
        """A turn runs, and may be stopped."""
        return self._work is not None

    @property
    def idle(self) -> bool:
        return self.resting and not self.inbox.waiting

    def wake(self) -> None:
        """There is something in the inbox."""
        self._wake.set()

    def go_on(self) -> None:
        """Run a turn without a message."""
        self._going_on = True
        self._resting.clear()
        self._wake.set()

    async def rested(self) -> None:
        """Return when no turn runs and nothing waits."""
        while not self.idle:
            await self._resting.wait()
            await asyncio.sleep(0)

    async def stop(self) -> None:
        """End the turn that runs; returns when it has unwound."""
        work = self._work
        if work is not None and not work.done():
            if not self._stopping:  # a second cancellation would cut off the clearing up
                self._stopping = True
                work.cancel()
            await asyncio.wait([work])

    @contextlib.asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """No turn runs meanwhile. Raises :class:`UsageError` (``busy``) when one does already."""
        if self._held.locked():
            raise UsageError("A turn is running.", hint="Stop it first, or wait for its end.", code="busy")
        async with self._held:
            yield

    async def close(self) -> None:
        """End the loop; a turn that runs stays unfinished."""
        if self._turn is not None:
            self._turn.abandoned = True
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self.stop()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self.inbox.waiting or self._going_on:
                going_on, self._going_on = self._going_on, False
                async with self._held:
                    await self._one(going_on)
            self._resting.set()

    async def _one(self, going_on: bool) -> None:
        self._resting.clear()
        self._stopping = False
        self.number += 1
        self._turn = self._make(self.number, going_on)
        self._work = asyncio.create_task(self._turn.run())
        try:
            await asyncio.wait([self._work])
        finally:
            if self._work.done():
                self._work = None
        await self._settle()

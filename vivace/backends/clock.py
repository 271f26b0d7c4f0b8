"""One ticker for everything that is due at a time.

A thousand streams that are each due every millisecond would be a thousand timers of the event loop; here they are one
timer and one heap, and whatever is due within a tick wakes together.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import time
from itertools import count


class Clock:
    """Wakes waiters at their time, in seconds of :func:`time.monotonic`; at most once per ``tick`` seconds.

    The loop's own time will not do: uvloop's goes in whole milliseconds, in which what is due now is not due yet.
    """

    def __init__(self, tick: float = 0.001) -> None:
        self.tick = tick
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = count()
        self._handle: asyncio.TimerHandle | None = None
        self._next = 0.0
        self._last = 0.0

    def until(self, due: float) -> asyncio.Future[None]:
        """A future that is done once ``due`` has come. Who no longer wants it sets its result or cancels it."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        heapq.heappush(self._waiting, (due, next(self._order), future))
        if self._handle is None or due < self._next:
            self._arm(loop)
        return future

    def close(self) -> None:
        """Wake everybody now."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        waiting, self._waiting = self._waiting, []
        for _, _, future in waiting:
            if not future.done():
                future.set_result(None)

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        while self._waiting and self._waiting[0][2].done():
            heapq.heappop(self._waiting)
        if self._waiting:
            self._next = self._waiting[0][0]
            delay = max(self._next, self._last + self.tick) - time.monotonic()
            # Timers go in milliseconds: rounded down, the wait would end before its time, again and again.
            self._handle = loop.call_later(math.ceil(max(0.0, delay) * 1000) / 1000, self._wake, loop)

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        self._handle = None
        self._last = now = time.monotonic()
        while self._waiting and self._waiting[0][0] <= now:
            future = heapq.heappop(self._waiting)[2]
            if not future.done():
                future.set_result(None)
        self._arm(loop)

"""The end of a server: what runs may finish, WebSockets are told, and what is left at the deadline is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

Ender = Callable[[], Awaitable[object]]


class Drain:
    """``begun`` is set once; it wakes whoever has to do something about it."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self._open: dict[object, Ender] = {}

    @property
    def draining(self) -> bool:
        return self.begun.is_set()

    @contextmanager
    def holding(self, end: Ender) -> Iterator[None]:
        """Something goes on while this is entered; ``end`` makes it end."""
        mark = object()
        self._open[mark] = end
        try:
            yield
        finally:
            del self._open[mark]

    async def wait(self, seconds: float) -> bool:
        """Until nothing goes on any more; False when that took longer than ``seconds``."""
        until = asyncio.get_running_loop().time() + seconds
        while self._open:
            if asyncio.get_running_loop().time() >= until:
                return False
            await asyncio.sleep(0.02)
        return True

    async def end(self) -> None:
        """End what still goes on."""
        await asyncio.gather(*(end() for end in self._open.values()), return_exceptions=True)

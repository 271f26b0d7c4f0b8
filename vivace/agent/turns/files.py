"""The checkpoints of a conversation without holding up its loop: one operation at a time, in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from vivace.agent.checkpoints import Checkpoint, CheckpointStore
from vivace.agent.sessions import CheckpointRef, Conversation, position_of
from vivace.agent.turns.events import CheckpointTaken, Event

T = TypeVar("T")


class Files:
    """What belongs to the workspace's state. A task that is cancelled lets what was begun come to its end."""

    def __init__(self, store: CheckpointStore, conversation: Conversation, emit: Callable[[Event], None]) -> None:
        self.store = store
        self.conversation = conversation
        self._emit = emit
        self._lock = asyncio.Lock()
        self._running: set[asyncio.Task[Any]] = set()

    async def take(self, label: str, kind: str, touching: Iterable[str | Path] = ()) -> Checkpoint:
        """A checkpoint of the files and of the place in the conversation, which then names it."""

        def work() -> Checkpoint:
            taken = self.store.take(label[:200], kind, position_of(self.conversation), touching)
            self.conversation.append(CheckpointRef(taken.id, taken.label))
            return taken

        taken = await self.do(work)
        self._emit(CheckpointTaken(number=taken.id, label=taken.label))
        return taken

    async def do(self, work: Callable[[], T]) -> T:
        """Anything with the store."""

        async def alone() -> T:
            async with self._lock:
                return await asyncio.to_thread(work)

        task: asyncio.Task[T] = asyncio.create_task(alone())
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def settled(self) -> None:
        """Everything that was begun has ended."""
        while self._running:
            await asyncio.wait(self._running)

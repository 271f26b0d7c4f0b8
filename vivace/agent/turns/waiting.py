"""The messages that nobody has taken yet, on disk, so that a crash loses none and delivers none twice."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from vivace.agent.sessions.journal import sync_folder


class Waiting(Struct, frozen=True):
    """One message. ``verb`` is ``steer`` or ``queue``."""

    text: str
    verb: str
    files: tuple[str, ...] = ()


class _File(Struct, frozen=True):
    """``taking`` are being moved into the conversation, which had ``users`` messages before."""

    waiting: tuple[Waiting, ...] = ()
    taking: tuple[Waiting, ...] = ()
    users: int = 0


class WaitingFile:
    """Beside the conversation's own file. Written whole each time, atomically; absent when nothing waits."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._there = path.exists()

    def save(self, waiting: Sequence[Waiting], taking: Sequence[Waiting] = (), users: int = 0) -> None:
        """``users`` is how many messages of the user the conversation holds before ``taking`` are added to it."""
        if not waiting and not taking:
            if self._there:
                self.path.unlink(missing_ok=True)
                self._there = False
            return
        temporary = self.path.with_suffix(".waiting-new")
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with temporary.open("wb") as file:
            file.write(msgspec.json.encode(_File(tuple(waiting), tuple(taking), users)))
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o600)
        temporary.replace(self.path)
        if not self._there:
            sync_folder(self.path.parent)
        self._there = True

    def load(self, users: int) -> list[Waiting]:
        """What waits. What was being taken counts unless the conversation has it (``users`` messages now)."""
        try:
            found = msgspec.json.decode(self.path.read_bytes(), type=_File)
        except (FileNotFoundError, msgspec.DecodeError):
            return []
        back = found.taking if users <= found.users else ()
        return [*back, *found.waiting]

"""What was measured in a workspace: how long its checks take, and how models do with tools. Kept from day to day."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import msgspec
from msgspec import Struct, field

from vivace.agent.checkpoints.place import folder_for
from vivace.atomic import write_atomic

PATIENCE = 24 * 3600.0
"""Seconds after which a check that took too long is tried again: it may have become faster."""


class Tally(Struct):
    """How often something went well, and how often not."""

    good: int = 0
    bad: int = 0


class Late(Struct):
    """A check did not end within ``limit`` seconds; ``at`` is the time of that, in seconds since 1970."""

    limit: float
    at: float


class Took(Struct):
    """Seconds of a check that ended by itself, smoothed; ``at`` is the time of the last run."""

    seconds: float
    at: float


class _Book(Struct):
    took: dict[str, Took] = field(default_factory=dict)
    late: dict[str, Late] = field(default_factory=dict)
    tools: dict[str, Tally] = field(default_factory=dict)


class Measured:
    """``seconds`` of each check by its name (the last run, smoothed); tool use of each model."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._book = msgspec.json.decode(path.read_bytes(), type=_Book)
        except (OSError, msgspec.DecodeError):
            self._book = _Book()

    @classmethod
    def of(cls, workspace: Path, state_dir: Path) -> Measured:
        return cls(folder_for(workspace, state_dir / "measured") / "measured.json")

    def seconds(self, check: str) -> float | None:
        """How long the check takes; None where it never came to an end."""
        took = self._book.took.get(check)
        return took.seconds if took is not None else None

    def is_old(self, check: str) -> bool:
        """What was measured may not be true any more."""
        took = self._book.took.get(check)
        return took is not None and time.time() - took.at >= PATIENCE

    def took(self, check: str, seconds: float) -> None:
        """It ended by itself."""
        before = self.seconds(check)
        smooth = seconds if before is None or self.is_old(check) else 0.5 * before + 0.5 * seconds
        self._book.took[check] = Took(round(smooth, 3), time.time())
        self._book.late.pop(check, None)
        self._save()

    def gave_up(self, check: str, limit: float) -> None:
        """It did not end within ``limit`` seconds, which says nothing about how long it would have taken."""
        self._book.late[check] = Late(limit, time.time())
        self._save()

    def is_late(self, check: str, limit: float) -> bool:
        """It did not end within as much time as that, and not so long ago that it would be worth another try."""
        late = self._book.late.get(check)
        return late is not None and limit <= late.limit and time.time() - late.at < PATIENCE

    def tool_use(self, model: str, *, well: bool) -> None:
        """A deep turn of this model made real calls, or did not manage to."""
        tally = self._book.tools.setdefault(model, Tally())
        if well:
            tally.good += 1
        else:
            tally.bad += 1
        self._save()

    def fails_with_tools(self, model: str) -> bool:
        """Two turns more failed for want of calls than went well."""
        tally = self._book.tools.get(model, Tally())
        return tally.bad >= tally.good + 2

    def _save(self) -> None:
        # What is lost here is measured again.
        with contextlib.suppress(OSError):
            write_atomic(self.path, msgspec.json.encode(self._book))

"""What was measured in a workspace: how long its checks take, and how models do with tools. Kept from day to day."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec
from msgspec import Struct, field

from vivace.agent.checkpoints.place import folder_for
from vivace.atomic import write_atomic


class Tally(Struct):
    """How often something went well, and how often not."""

    good: int = 0
    bad: int = 0


class _Book(Struct):
    seconds: dict[str, float] = field(default_factory=dict)
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
        """How long the check takes; None where it never ran."""
        return self._book.seconds.get(check)

    def took(self, check: str, seconds: float) -> None:
        before = self._book.seconds.get(check)
        self._book.seconds[check] = round(seconds if before is None else 0.5 * before + 0.5 * seconds, 3)
        self._save()

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

"""Is the model getting anywhere? Rules over its calls, each with a number, each with something to say.

A *nudge* is put before the model's next step. *Escalate* says that the way of editing does not work for this model and
another should be taken. *Stop* ends the turn with the reason.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from vivace.agent.tools.base import ToolResult

Level = Literal["nudge", "escalate", "stop"]
Rule = Literal["unknown tool", "empty", "repeat", "cycle", "reread", "failing edits", "no progress"]


class Notice(Struct, frozen=True):
    """What a rule found. ``text`` is for the model, and for the user when it stops."""

    rule: Rule
    level: Level
    text: str


class Limits(Struct, frozen=True):
    """(nudge, stop) of each rule, counted as its docstring in :class:`Watchdog` says."""

    unknown: tuple[int, int] = (1, 3)
    empty: tuple[int, int] = (1, 3)
    repeat: tuple[int, int] = (3, 5)
    cycle: tuple[int, int] = (3, 5)
    reread: tuple[int, int] = (3, 8)
    edits: tuple[int, int] = (3, 6)
    idle: tuple[int, int] = (15, 30)


class Watchdog:
    """One per turn. Tell it every call with its result, every empty step, every compaction.

    - *unknown tool*: calls in a row of tools that do not exist.
    - *empty*: steps in a row with neither text nor a call.
    - *repeat*: the same call with the same result, nothing changed in between.
    - *cycle*: the last calls are a row of two to four, over and over.
    - *reread*: lines that were shown before, unchanged, since the last compaction.
    - *failing edits*: edits of one file in a row that were refused; escalates instead of a nudge.
    - *no progress*: calls in a row that changed nothing and showed nothing new.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._unknown = 0
        self._empty = 0
        self._idle = 0
        self._reread = 0
        self._same: Counter[str] = Counter()
        self._results: set[str] = set()
        self._failed: Counter[str] = Counter()
        self._recent: deque[str] = deque(maxlen=32)

    def observe(self, name: str, arguments: Mapping[str, Any], result: ToolResult) -> Notice | None:
        """After a call. The gravest notice, if any; a nudge comes once, when its number is reached."""
        self._empty = 0
        code = result.data.get("code") if not result.ok else None
        call = _digest(name, arguments)
        outcome = _digest(call, result.text)
        if result.changed:
            self._same.clear()
            self._recent.clear()
            self._results.clear()
        self._same[outcome] += 1
        self._recent.append(outcome)
        self._idle = 0 if result.changed or (outcome not in self._results and result.ok) else self._idle + 1
        self._results.add(outcome)
        self._unknown = self._unknown + 1 if code == "unknown_tool" else 0
        self._reread += bool(result.data.get("repeated"))
        return self._gravest(
            self._edits(name, str(arguments.get("path", "")), result),
            _level(
                "unknown tool", self._unknown, self.limits.unknown, "There is no such tool. Use one of those listed."
            ),
            _level(
                "repeat",
                self._same[outcome],
                self.limits.repeat,
                f"{name} was called {self._same[outcome]} times with the same result. Do something else.",
            ),
            _level(
                "cycle",
                self._rounds(),
                self.limits.cycle,
                "The same few calls go round in a circle. Change the approach.",
            ),
            _level(
                "reread",
                self._reread if result.data.get("repeated") else 0,
                self.limits.reread,
                "These lines were shown before and have not changed. Work with what you know.",
            ),
            _level(
                "no progress",
                self._idle,
                self.limits.idle,
                f"{self._idle} calls changed nothing and showed nothing new. Say what is in the way, or finish.",
            ),
        )

    def empty(self) -> Notice | None:
        """The model gave neither text nor a call."""
        self._empty += 1
        return _level(
            "empty", self._empty, self.limits.empty, "The answer was empty. Make a call, or say that you are done."
        )

    def compacted(self) -> None:
        """The context was shortened: what was shown may have to be read again."""
        self._reread = 0
        self._same.clear()
        self._results.clear()

    def _edits(self, name: str, path: str, result: ToolResult) -> Notice | None:
        if name not in ("edit", "write"):
            return None
        if result.ok:
            self._failed.pop(path, None)
            return None
        self._failed[path] += 1
        text = f"{self._failed[path]} edits of {path} in a row were refused."
        notice = _level("failing edits", self._failed[path], self.limits.edits, text)
        return Notice(notice.rule, "escalate", text) if notice is not None and notice.level == "nudge" else notice

    def _rounds(self) -> int:
        """How often the last row of two to four different calls came, one after the other."""
        recent = list(self._recent)
        best = 0
        for length in (2, 3, 4):
            row = recent[-length:]
            if len(row) < length or len(set(row)) == 1:
                continue
            rounds = 0
            while recent[len(recent) - length * (rounds + 1) : len(recent) - length * rounds] == row:
                rounds += 1
            best = max(best, rounds)
        return best

    @staticmethod
    def _gravest(*notices: Notice | None) -> Notice | None:
        order: dict[Level, int] = {"nudge": 0, "escalate": 1, "stop": 2}
        found = [notice for notice in notices if notice is not None]
        return max(found, key=lambda notice: order[notice.level], default=None)


def _level(rule: Rule, count: int, limits: tuple[int, int], text: str) -> Notice | None:
    nudge, stop = limits
    if count >= stop:
        return Notice(rule, "stop", text)
    return Notice(rule, "nudge", text) if count == nudge else None


def _digest(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()

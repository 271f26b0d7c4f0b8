"""The last line: what is going on, mode and model, where, and the keys that matter now."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import ClassVar

from textual.reactive import reactive
from textual.timer import Timer
from textual.widgets import Static

from vivace.ui.app.wrapping import shortened

FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
SPIN = 0.25
"""Seconds: each turn of it costs a frame beside those of the transcript."""
KEYS = {
    "asks": ("Esc stop", "Shift+Up to the question"),
    "busy": ("Esc stop", "Enter steer", "Alt+Enter queue"),
    "idle": ("F1 help", "Shift+Tab mode", "Ctrl+P all"),
}
"""The most important first: the last is left out where there is no room."""


class StatusBar(Static):
    """Turns while something works."""

    HELP: ClassVar[str] = """\
## The last line

Whether something works and for how long, the mode and the model, the approvals where they are not `auto`, the folder,
and the keys that count now. Shift+Tab
changes the mode, Ctrl+P opens the palette with everything that can be done.
"""
    DEFAULT_CSS = """
    StatusBar { height: 1; padding: 0 2; background: $panel; color: $foreground; }
    """
    busy: reactive[bool] = reactive(False)
    asks: reactive[bool] = reactive(False)
    mode: reactive[str] = reactive("auto")
    model: reactive[str] = reactive("")
    chosen: reactive[str] = reactive("")
    """What the running turn does, where that is not the mode."""
    approvals: reactive[str] = reactive("auto")
    """Said where they are not what they are without a word."""
    hint: reactive[str] = reactive("")
    """Said instead of the keys, for a moment."""

    def __init__(self, folder: str, id: str | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__("", id=id, markup=False)
        self.clock = clock
        self._folder = folder
        self._since = self._asked = 0.0
        self._frame = 0
        self._turning: Timer | None = None

    def on_mount(self) -> None:
        self._turning = self.set_interval(SPIN, self._turn, pause=True)
        self._show()

    def watch_busy(self, busy: bool) -> None:
        self._since = self.clock()
        if self._turning is not None:
            (self._turning.resume if busy else self._turning.pause)()
        self._show()

    def watch_asks(self, asks: bool) -> None:
        if asks:
            self._asked = self.clock()
        else:
            self._since += self.clock() - self._asked
        self._show()

    def watch_mode(self) -> None:
        self._show()

    def watch_model(self) -> None:
        self._show()

    def watch_chosen(self) -> None:
        self._show()

    def watch_approvals(self) -> None:
        self._show()

    def watch_hint(self) -> None:
        self._show()

    def on_resize(self) -> None:
        self._show()

    def _turn(self) -> None:
        self._frame += 1
        self._show()

    def _show(self) -> None:
        if not self.is_mounted:
            return
        still = self.app.animation_level == "none"
        sign = "?" if self.asks else "•" if self.busy and still else FRAMES[self._frame % 10] if self.busy else " "
        mode = f"{self.mode} → {self.chosen}" if self.busy and self.chosen not in ("", self.mode) else self.mode
        left = f"{sign} {mode} · {self.model}" if self.model else f"{sign} {mode}"
        if self.approvals != "auto":
            left += f" · {self.approvals}"
        # The time that the user takes to answer is not the turn's.
        if self.busy and (gone := int((self._asked if self.asks else self.clock()) - self._since)) >= 1:
            left += f" · {gone // 60}:{gone % 60:02}" if gone >= 60 else f" · {gone} s"
        width = self.size.width - 4
        keys = self.hint or _fitting(KEYS["asks" if self.asks else "busy" if self.busy else "idle"], width - len(left))
        room = width - len(left) - len(keys) - 4
        middle = shortened(self._folder, room) if room > 8 else ""
        right = shortened(keys, max(width - len(left) - 2, 0))
        gap = width - len(left) - len(right) - len(middle)
        self.update(left + " " * (gap // 2) + middle + " " * (gap - gap // 2) + right, layout=False)


def _fitting(keys: tuple[str, ...], room: int) -> str:
    """As many of ``keys`` as fit."""
    told = keys[0]
    for key in keys[1:]:
        if len(told) + len(key) + 5 <= room:
            told += " · " + key
    return told

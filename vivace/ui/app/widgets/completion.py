"""What fits the word that is typed: files after ``@``, commands after ``/``."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.widgets import Static

from vivace.ui.app.wrapping import printable, shortened

Entry = tuple[str, str]
"""What is put in, and what is said about it."""


class Completion(Static):
    """Hidden while nothing fits. It never has the focus: the input's keys move it."""

    HELP: ClassVar[str] = """\
## Completion

`@` names files, `/` at the beginning names commands; letters may be left out. Tab or Enter takes the marked one, Up and
Down move, Esc closes.
"""
    DEFAULT_CSS = """
    Completion { height: auto; max-height: 8; padding: 0 2; background: $panel; color: $foreground; display: none; }
    """

    def __init__(self, id: str | None = None) -> None:
        super().__init__("", id=id, markup=False)
        self._entries: list[Entry] = []
        self._at = 0
        self._word = ""

    @property
    def open(self) -> bool:
        return bool(self._entries)

    @property
    def chosen(self) -> str:
        return self._entries[self._at][0] if self._entries else ""

    def offer(self, entries: list[Entry], word: str = "") -> None:
        """Show what fits ``word``."""
        self._word = word
        if entries != self._entries:
            self._entries, self._at = entries[:8], 0
        self._show()

    def choose(self, word: str) -> str:
        """What is put in the place of ``word``: the marked one, or where more was typed since it was offered, the
        first that still fits; "" when none does."""
        if word == self._word:
            return self.chosen
        return next((name for name, _ in self._entries if name.startswith(word)), "")

    def move(self, step: int) -> None:
        self._at = (self._at + step) % len(self._entries)
        self._show()

    def _show(self) -> None:
        self.display = bool(self._entries)
        text = Text()
        width = max((len(name) for name, _ in self._entries), default=0)
        for n, (name, brief) in enumerate(self._entries):
            mark = "▸ " if n == self._at else "  "
            line = shortened(printable(f"{mark}{name.ljust(width)}  {brief}".rstrip()), max(self.app.size.width - 4, 8))
            text.append(("\n" if n else "") + line, style="bold" if n == self._at else "")
        self.update(text)

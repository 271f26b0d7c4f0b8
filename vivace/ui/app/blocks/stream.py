"""Text that grows at its end."""

from __future__ import annotations

from rich.style import Style

from vivace.ui.app.blocks.base import INDENT, Block
from vivace.ui.app.wrapping import Growing, printable


class Stream(Block):
    """Plain rows. A piece costs what it is long, not what the text is long."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[str] = []
        self._growing = Growing(1)
        self._has_rest = False

    @property
    def style(self) -> Style:
        assert self.look is not None
        return self.look.base

    @property
    def settled(self) -> int:
        """Rows at the top that :meth:`feed` will leave as they are."""
        return max(len(self.rows) - 1, 0)

    def feed(self, text: str) -> None:
        self.pieces.append(text)
        if self.look is not None:
            self.grow(text)

    def plain(self) -> str:
        return "".join(self.pieces)

    def fill(self) -> None:
        self.start()
        self.grow(self.plain())

    def start(self) -> None:
        """What comes next begins a row of its own."""
        self._growing = Growing(self.width - INDENT)
        self._has_rest = False

    def grow(self, text: str) -> None:
        """Add rows for ``text``; only the last row is made anew."""
        if self._has_rest:
            self.rows.pop()
        for row in self._growing.feed(printable(text)):
            self._put(row)
        self._has_rest = bool(self._growing.rest)
        if self._has_rest:
            self._put(self._growing.rest)

    def _put(self, row: str) -> None:
        style = self.style
        self.add((" " * INDENT, style), (row.rstrip(), style))

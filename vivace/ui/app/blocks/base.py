"""A block of the transcript."""

from __future__ import annotations

from rich.style import Style
from textual.strip import Strip

from vivace.ui.app.look import Look
from vivace.ui.app.wrapping import printable, wrap

INDENT = 2
"""Cells before the text of a block."""


class Block:
    """Rows of one width and look. What changes a block changes ``rows`` too; the transcript asks for their number.

    ``gap``: an empty row stands before it.
    """

    gap = True
    foldable = False

    def __init__(self) -> None:
        self.rows: list[Strip] = []
        self.width = 0
        self.look: Look | None = None
        self.folded = True

    def lay(self, width: int, look: Look) -> None:
        """Lay out everything, for a new width or look."""
        self.width, self.look = width, look
        self.rows = []
        self.fill()

    def fill(self) -> None:
        """Make ``rows`` from what the block holds."""
        raise NotImplementedError

    def again(self) -> None:
        """Lay out everything again, once there was a first time."""
        if self.look is not None:
            self.lay(self.width, self.look)

    def plain(self) -> str:
        """What the block says, for the clipboard."""
        raise NotImplementedError

    def toggle(self) -> None:
        """Fold or unfold."""
        self.folded = not self.folded
        self.again()

    def add(self, *parts: tuple[str, Style]) -> None:
        """Add a row."""
        if self.look is not None:
            self.rows.append(self.look.row(self.width, *parts))

    def add_text(self, text: str, style: Style, mark: str = "", mark_style: Style | None = None) -> None:
        """Add ``text``, wrapped and indented; ``mark`` stands before its first row."""
        indent = max(INDENT, len(mark))
        for line in printable(text).split("\n"):
            for row in wrap(line, max(self.width - indent, 1)):
                self.add((mark.ljust(indent), mark_style or style), (row.rstrip(), style))
                mark = ""

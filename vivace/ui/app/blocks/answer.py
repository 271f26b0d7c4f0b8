"""What the model says: plain while a block of Markdown is open, rendered once it has closed."""

from __future__ import annotations

from rich.segment import Segment
from textual.strip import Strip

from vivace.ui.app.blocks.base import INDENT
from vivace.ui.app.blocks.markdown import Splitter, rows_of
from vivace.ui.app.blocks.stream import Stream

LONG = 250
"""Lines of one block that are rendered; a longer one stays plain, or closing it would be felt as a pause."""


class Answer(Stream):
    """Nothing is parsed twice: a closed block is rendered once for each width."""

    def __init__(self) -> None:
        super().__init__()
        self._splitter = Splitter()
        self._open: list[str] = []
        self._line: list[str] = []
        self._closed = 0
        self._done = False

    @property
    def settled(self) -> int:
        return min(self._closed, max(len(self.rows) - 1, 0))

    def fill(self) -> None:
        self._splitter, self._open, self._line, self._closed = Splitter(), [], [], 0
        super().fill()
        if self._done:
            self._close()

    def grow(self, text: str) -> None:
        *whole, rest = text.split("\n")
        for line in whole:
            self._line.append(line)
            self._take("".join(self._line), line + "\n")
            self._line = []
        if rest:
            self._line.append(rest)
            self._show(rest)

    def finish(self) -> None:
        """Nothing more comes."""
        self._done = True
        if self.look is not None:
            self._close()

    def _take(self, line: str, news: str) -> None:
        """``line`` is whole now; ``news`` is the part of it that was not shown yet, with its end."""
        verdict = self._splitter.line(line)
        if verdict == "before":
            # The line belongs to what comes next: render the rest, then show the line again.
            self._open = ["".join(self._open)[: len(news) - len(line) - 1 or None]]
            self._close()
            self._show(line + "\n")
        else:
            self._show(news)
            if verdict == "after":
                self._close()

    def _show(self, text: str) -> None:
        self._open.append(text)
        if len(self.rows) == self._closed and not self._has_rest:
            if not text.strip("\n"):
                return
            if self.rows:
                self.add()
        super().grow(text)

    def _close(self) -> None:
        """Render what is open."""
        assert self.look is not None
        text = "".join(self._open)
        self._open = []
        long = text.count("\n") > LONG
        if not long:
            del self.rows[self._closed :]
        if text.strip() and not long:
            if self.rows:
                self.add()
            for row in rows_of(text, self.width - INDENT, self.look):
                strip = Strip([Segment(" " * INDENT, self.look.base), *row])
                self.rows.append(strip.adjust_cell_length(self.width, self.look.base))
        self._closed = len(self.rows)
        self.start()

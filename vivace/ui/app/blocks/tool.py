"""A tool at work: its name and what it is about, the end of its output, how it ended."""

from __future__ import annotations

from vivace.ui.app.blocks.base import INDENT, Block
from vivace.ui.app.wrapping import Growing, printable, shortened

RUNNING, ENDED, FAILED, KEPT = 6, 3, 10, 2000
"""Lines of output that are shown while it runs, when it ended, when it failed, and unfolded at most."""
WATCHED = 100
"""The same, unfolded while it runs."""


class ToolCall(Block):
    """Output is kept as rows; those before the last ``KEPT`` are let go, and counted."""

    foldable = True

    def __init__(self, name: str, brief: str) -> None:
        super().__init__()
        self.name, self.brief = name, brief
        self.ok: bool | None = None
        self.seconds = 0.0
        self.changed: tuple[str, ...] = ()
        self._lines: list[str] = []
        self._gone = 0
        self._rest = ""

    def feed(self, text: str) -> None:
        """More output."""
        first, *more = text.split("\n")
        self._rest += first
        for line in more:
            self._lines.append(self._rest)
            self._rest = line
        if (over := len(self._lines) - KEPT) > KEPT // 4:
            del self._lines[:over]
            self._gone += over
        self.again()

    def end(self, ok: bool, text: str, seconds: float, changed: tuple[str, ...]) -> None:
        self.ok, self.seconds, self.changed = ok, seconds, changed
        if not self._lines and not self._rest:
            self.feed(text)
        self.again()

    def plain(self) -> str:
        return "\n".join([f"{self.name} {self.brief}".strip(), *self._output()])

    def fill(self) -> None:
        assert self.look is not None
        look = self.look
        sign, style = {None: ("◦ ", look.accent), True: ("✓ ", look.good), False: ("✗ ", look.bad)}[self.ok]
        after = "" if self.ok is None else f"  {self.seconds:.1f} s"
        if self.changed:
            after += f"  changed {', '.join(self.changed)}"
        room = self.width - INDENT - len(self.name) - 1
        after = shortened(printable(after), max(room - 8, 0))
        brief = shortened(printable(self.brief).replace("\n", " ⏎ "), room - len(after))
        self.add((sign, style), (self.name + " ", look.name), (brief, look.base), (after, look.dim))
        output = self._output()
        folded, unfolded = {None: (RUNNING, WATCHED), True: (ENDED, KEPT), False: (FAILED, KEPT)}[self.ok]
        limit = folded if self.folded else unfolded
        hidden = max(len(output) - limit, 0)
        if hidden or (self._gone and not self.folded):
            self.add(("  │ ", look.dim), (f"… {hidden + self._gone:,} more lines", look.dim))
        for line in output[hidden:]:
            growing = Growing(self.width - 4)
            rows = [*growing.feed(printable(line)), growing.rest]
            for row in rows if not self.folded else rows[:2]:
                self.add(("  │ ", look.dim), (row.rstrip(), look.dim))

    def _output(self) -> list[str]:
        return [*self._lines, self._rest] if self._rest else self._lines

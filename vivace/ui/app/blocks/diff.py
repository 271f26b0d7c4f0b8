"""A change of files: line by line while it is made, then the smallest diff with the numbers of its lines."""

from __future__ import annotations

import re

from rich.style import Style
from textual.strip import Strip

from vivace.ui.app.blocks.base import Block
from vivace.ui.app.wrapping import printable, wrap

SHOWN = 120
"""Rows of a diff that are shown folded."""

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@(.*)")


class LiveEdit(Block):
    """One file while it is rewritten: what changes, and one line before each change."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path
        self.lines = 0
        self.changed = 0
        self._shown: list[str] = []
        self._context = ""

    def restart(self) -> None:
        """The file is written once more, from its beginning."""
        self.lines = self.changed = 0
        self._shown, self._context = [], ""
        self.again()

    def feed(self, lines: tuple[str, ...]) -> None:
        """Marked lines: a blank, ``-`` or ``+`` and the text."""
        for line in lines:
            self.lines += line[:1] != "-"
            if line[:1] == " ":
                self._context = line
                continue
            self.changed += 1
            for shown in (self._context, line) if self._context else (line,):
                self._shown.append(shown)
                self._put(shown)
            self._context = ""
        if self.rows:
            self.rows[0] = self._head()

    def plain(self) -> str:
        return "\n".join(self._shown)

    def fill(self) -> None:
        self.rows = [self._head()]
        for line in self._shown:
            self._put(line)

    def _head(self) -> Strip:
        assert self.look is not None
        told = f"  {self.lines:,} lines, {self.changed:,} changed"
        return self.look.row(
            self.width, ("◦ ", self.look.accent), (printable(self.path), self.look.strong), (told, self.look.dim)
        )

    def _put(self, line: str) -> None:
        if self.look is not None:
            put_line(self, line)


class Proposal(Block):
    """``diff`` is a unified diff. ``state`` says what became of it."""

    foldable = True

    def __init__(self, diff: str, added: int, removed: int, verified: str) -> None:
        super().__init__()
        self.diff, self.added, self.removed, self.verified = diff, added, removed, verified
        self.state = ""

    def become(self, state: str) -> None:
        self.state = state
        self.again()

    def plain(self) -> str:
        return self.diff

    def fill(self) -> None:
        assert self.look is not None
        look = self.look
        lines = self.diff.removesuffix("\n").split("\n")
        few = 0 if self.state == "replaced" else SHOWN
        shown = lines if not self.folded or len(lines) <= few else lines[:few]
        old = new = left = right = 0
        for n, line in enumerate(shown):
            inside = left > 0 or right > 0
            if inside and line[:1] in (" ", "-", "+", ""):
                put_line(self, line or " ", f"{old if line[:1] == '-' else new:>5} ")
                old, left = (old + 1, left - 1) if line[:1] != "+" else (old, left)
                new, right = (new + 1, right - 1) if line[:1] != "-" else (new, right)
            elif (hunk := _HUNK.match(line)) is not None:
                old, new = int(hunk[1]), int(hunk[3])
                left, right = int(hunk[2] or 1), int(hunk[4] or 1)
                if n > 2:
                    self.add(("     ⋮ ", look.dim), (printable(hunk[5]), look.dim))
            elif line.startswith("+++ ") and n and lines[n - 1].startswith("--- "):
                self.add(("  ", look.base), (printable(_path(lines[n - 1], line)), look.strong))
            elif not line.startswith("--- "):
                self.add(("  ", look.base), (printable(line), look.dim))
        if len(shown) < len(lines):
            self.add(("  ", look.base), (f"… {len(lines) - len(shown):,} more lines of the diff", look.dim))
        told = [f"+{self.added} -{self.removed}"] + [part for part in (self.verified, self.state) if part]
        warned = ("declined", "replaced", "not applied")
        style = look.good if self.state == "applied" else look.warn if self.state in warned else look.dim
        self.add_text(" · ".join(told), style)


def put_line(block: Block, line: str, number: str = "") -> None:
    """Add one marked line of a diff to ``block``."""
    look = block.look
    assert look is not None
    style: Style = {"+": look.added, "-": look.removed}.get(line[:1], look.dim)
    margin = "  " + number
    for row in wrap(printable(line[1:].rstrip("\r")), max(block.width - len(margin) - 2, 1)):
        text = f"{line[:1]} {row.rstrip()}"
        if line[:1] != " ":
            text = text.ljust(block.width - len(margin))
        block.add((margin, look.dim), (text, style))
        margin = " " * len(margin)


def _path(old: str, new: str) -> str:
    """The path of a file, from the two lines before its hunks."""
    name, was = new[4:].split("\t")[0].removeprefix("b/"), old[4:].split("\t")[0].removeprefix("a/")
    if name == "/dev/null":
        return f"{was} (removed)"
    return f"{name} (new)" if was == "/dev/null" else name

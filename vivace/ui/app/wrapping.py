"""Text into rows of a screen. Text that grows costs the same for each new character, however much there is of it."""

from __future__ import annotations

import re

from rich.cells import cell_len, get_character_cell_size

from vivace.ui.plain import visible

TAB = "    "
_CODES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[@-Z\\-_]|[━╸╺█▏▎▍▌▋▊▉]+")


def printable(text: str) -> str:
    """``text`` with tabs as blanks and control characters as pictures."""
    return visible(text).replace("\t", TAB)


def last_line(text: str) -> str:
    """The last line of what a program wrote to a terminal, without codes and bars; "" when there is none."""
    lines = (" ".join(line.split()) for line in re.split(r"[\r\n]", _CODES.sub("", text)))
    return visible(next((line for line in reversed(list(lines)) if line), ""))


def wrap(line: str, width: int) -> list[str]:
    """``line`` in rows of at most ``width`` cells, broken at blanks where there are some; at least one row."""
    rows = []
    plain = line.isascii()
    while (len(line) if plain else cell_len(line)) > width:
        cut = width if plain else _fitting(line, width)
        # A blank right behind the row is a place to break, too; it is kept at the row's end, out of sight.
        blank = line.rfind(" ", cut // 3, cut + 1)
        if blank > 0:
            cut = blank + 1
        rows.append(line[:cut])
        line = line[cut:]
    rows.append(line)
    return rows


def shortened(text: str, width: int) -> str:
    """``text`` in at most ``width`` cells, with an ellipsis where something is missing."""
    if cell_len(text) <= width:
        return text
    if width <= 0:
        return ""
    head = text[: _fitting(text, width - 1)]
    return head + "…" if cell_len(head) < width else "…"


def _fitting(line: str, width: int) -> int:
    """How many characters of ``line`` fit; at least one, so that the work ends."""
    cells = 0
    for n, character in enumerate(line):
        cells += get_character_cell_size(character)
        if cells > width:
            return max(n, 1)
    return len(line)


class Growing:
    """Rows of a text that arrives in pieces. Rows that were given are never looked at again; ``rest`` is the last."""

    def __init__(self, width: int) -> None:
        self.width = max(width, 1)
        self.rest = ""

    def feed(self, text: str) -> list[str]:
        """The rows that are whole now; ``text`` is printable."""
        first, *more = text.split("\n")
        rows = wrap(self.rest + first, self.width)
        for line in more:
            rows += wrap(line, self.width)
        self.rest = rows.pop()
        return rows

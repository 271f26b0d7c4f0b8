"""The reply of a model, parsed line by line as it arrives: one code fence, to its closing mark.

A fence is three or more backticks or tildes (CommonMark, "Fenced code blocks"). The prompt asks for a fence that is
longer than any in the file; when the model opens a shorter one all the same, a fence inside the file looks like the
end, so only a closing fence at the very end of the reply counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

_OPENING = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*([^`]*)$")
_RUN = re.compile(r"^[ \t]*(`{3,})", re.MULTILINE)

ReplyState = Literal["closed", "cut", "none"]


def fence_for(text: str) -> str:
    """A fence that no line of ``text`` can be taken for."""
    longest = max((len(run) for run in _RUN.findall(text)), default=2)
    return "`" * max(3, longest + 1)


@dataclass(frozen=True)
class Reply:
    """``closed``: the code is whole. ``cut``: a fence was opened and never closed. ``none``: there was no fence."""

    state: ReplyState
    code: str


class ReplyParser:
    """Feed it the text as it comes; it hands out the code lines that are certain.

    ``fence`` is the one that the prompt asked for.
    """

    def __init__(self, fence: str = "```") -> None:
        self._asked = len(fence)
        self._mark = ""
        self._ambiguous = False
        self._tail = ""
        self._held: list[str] = []
        self._code: list[str] = []
        self.closed = False
        """The closing fence was seen and nothing that follows can matter."""

    def feed(self, delta: str) -> list[str]:
        """Take more text; return the code lines (without ends) that it completed."""
        if self.closed:
            return []
        *complete, self._tail = (self._tail + delta).split("\n")
        before = len(self._code)
        for line in complete:
            if self._line(line.removesuffix("\r")):
                break
        return self._code[before:]

    def finish(self, *, complete: bool = True) -> Reply:
        """The reply has ended; ``complete`` tells that the model ended it, and not a limit or a lost connection."""
        if not self.closed and self._tail and complete:
            self._line(self._tail.removesuffix("\r"))
        self._tail = ""
        if not self._mark:
            return Reply("none", "")
        if not self.closed and self._held and complete:
            # Ambiguous fence: the last closing line is the end if nothing but blank lines follows it.
            last = max(n for n, line in enumerate(self._held) if self._closes(line))
            if not any(line.strip() for line in self._held[last + 1 :]):
                self._code += self._held[:last]
                self._held = []
                self.closed = True
        return Reply("closed" if self.closed else "cut", "".join(line + "\n" for line in self._code))

    def _line(self, line: str) -> bool:
        """Take one whole line; return whether the fence is closed for good."""
        if not self._mark:
            if opening := _OPENING.match(line):
                self._mark = opening[1]
                self._ambiguous = self._mark[0] == "`" and len(self._mark) < self._asked
        elif not self._closes(line):
            if self._held and line.strip():
                self._code += self._held
                self._held = []
            (self._held if self._held else self._code).append(line)
        elif self._ambiguous:
            self._code += self._held
            self._held = [line]
        else:
            self.closed = True
        return self.closed

    def _closes(self, line: str) -> bool:
        bare = line.strip(" \t\r")
        indent = len(line) - len(line.lstrip(" "))
        return indent <= 3 and len(bare) >= len(self._mark) and not bare.strip(self._mark[0])

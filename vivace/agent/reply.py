"""The reply of a model, parsed line by line as it arrives: one code fence, to its closing mark.

A fence is three or more backticks or tildes (CommonMark, "Fenced code blocks"). The prompt asks for a fence that is
longer than any in the file; when the model opens a shorter one all the same, a fence inside the file looks like the
end, so only a closing fence at the very end of the reply counts, or one that no block inside is open for and that
nothing but talk follows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, Protocol

_OPENING = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*([^`]*)$")
_RUN = re.compile(r"^[ \t]*(`{3,})", re.MULTILINE)

ReplyState = Literal["closed", "cut", "none"]


def fence_for(text: str) -> str:
    """A fence that no line of ``text`` can be taken for."""
    longest = max((len(run) for run in _RUN.findall(text)), default=2)
    return "`" * max(3, longest + 1)


@dataclass(frozen=True)
class Reply:
    """``closed``: the code is whole. ``cut``: a fence or hunk was opened and never closed. ``none``: there was none."""

    state: ReplyState
    code: str


class AnswerParser(Protocol):
    """Reads an answer while it arrives."""

    @property
    def closed(self) -> bool:
        """The answer is whole, and nothing that follows can matter."""
        ...

    def feed(self, delta: str) -> list[str]:
        """Take more text; return the code lines (without ends) that are certain now."""
        ...

    def finish(self, *, complete: bool = True) -> Reply:
        """The answer has ended; ``complete`` tells that the model ended it, and not a limit or a lost connection."""
        ...


class ReplyParser:
    """Feed it the text as it comes; it hands out the code lines that are certain.

    ``fence`` is the one that the prompt asked for, ``shown`` the code that it showed: no talk repeats a line of it.
    """

    def __init__(self, fence: str = "```", shown: str = "") -> None:
        self._asked = len(fence)
        self._shown = shown
        self._mark = ""
        self._ambiguous = False
        self._tail = ""
        self._held: list[str] = []
        """From the last line on that may be the closing fence."""
        self._inside = self._ends = False
        """A block inside the code is open; and none was when ``_held`` began."""
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
            known = {line.strip() for line in self._shown.split("\n")} if self._ends else set()
            talk = [line.strip() for line in self._held[1:] if line.strip()]
            self.closed = not talk or (self._ends and known.isdisjoint(talk))
        return Reply("closed" if self.closed else "cut", "".join(line + "\n" for line in self._code))

    def _line(self, line: str) -> bool:
        """Take one whole line; return whether the fence is closed for good."""
        if not self._mark:
            if opening := _OPENING.match(line):
                self._mark = opening[1]
                self._ambiguous = self._mark[0] == "`" and len(self._mark) < self._asked
        elif not self._closes(line):
            opens = self._ambiguous and not self._inside and _OPENING.match(line) is not None
            if self._held and (opens or (line.strip() and not self._ends)):
                self._code += self._held
                self._held = []
            self._inside = self._inside or opens
            (self._held if self._held else self._code).append(line)
        elif self._ambiguous:
            self._code += self._held
            self._held, self._ends, self._inside = [line], not self._inside, not self._inside
        else:
            self.closed = True
        return self.closed

    def _closes(self, line: str) -> bool:
        bare = line.strip(" \t\r")
        indent = len(line) - len(line.lstrip(" "))
        return indent <= 3 and len(bare) >= len(self._mark) and not bare.strip(self._mark[0])

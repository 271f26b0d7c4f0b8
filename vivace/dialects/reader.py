"""Text that comes in pieces, for parsers written as generators: they yield where they need more.

A parser reads on with ``yield from reader.more()`` and never sees where a piece ended, so any split of a text parses
the same. What it reads stays in reach until it says :meth:`Reader.accept`, so that it can take back what it read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from functools import cache
from typing import TypeVar

T = TypeVar("T")
Parse = Generator[None, None, T]
"""A parser that returns T."""

Emit = Callable[[str], None]

_BLANKS = re.compile(r"\s*")
_QUOTE = re.compile(r'["\\]')
_STRUCTURE = re.compile(r'["{}\[\]]')
_SCALAR = re.compile(r"[^\s,}\]]*")


class Reader:
    """The text so far, from the last accepted place on."""

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self.ended = False

    def put(self, text: str) -> None:
        self.text += text

    def more(self) -> Parse[bool]:
        """Wait for more text; False when there is none."""
        if self.ended:
            return False
        length = len(self.text)
        while len(self.text) == length and not self.ended:
            yield
        return len(self.text) > length

    def accept(self) -> None:
        """What was read so far is settled."""
        self.text = self.text[self.at :]
        self.at = 0

    def take_back(self) -> str:
        """What was read since the last accepted place, which then counts as settled."""
        taken = self.text[: self.at]
        self.accept()
        return taken

    def until(self, marks: tuple[str, ...], emit: Emit) -> Parse[str]:
        """Emit and settle what comes before the first of ``marks``, then read that mark; "" at the end of the text.

        Only what may be the beginning of a mark is held back.
        """
        pattern = _any(marks)
        while True:
            found = pattern.search(self.text, self.at)
            if found:
                self._give(found.start(), emit)
                self.at = found.end() - found.start()
                return found.group()
            self._give(len(self.text) - _beginning(self.text, self.at, marks), emit)
            if not (yield from self.more()):
                self._give(len(self.text), emit)
                return ""

    def blanks(self) -> Parse[None]:
        """Read white space."""
        while True:
            found = _BLANKS.match(self.text, self.at)
            self.at = found.end() if found else self.at
            if self.at < len(self.text) or not (yield from self.more()):
                return

    def peek(self) -> Parse[str]:
        """The next character, not read; "" at the end."""
        if self.at >= len(self.text) and not (yield from self.more()):
            return ""
        return self.text[self.at]

    def take(self, *wanted: str) -> Parse[str]:
        """Read the first of ``wanted`` that comes next; "" and nothing read where none does."""
        while True:
            for one in wanted:
                if self.text.startswith(one, self.at):
                    self.at += len(one)
                    return one
            rest = self.text[self.at :]
            if not any(one.startswith(rest) for one in wanted) or not (yield from self.more()):
                return ""

    def matching(self, pattern: re.Pattern[str], longest: int = 256) -> Parse[str]:
        """Read the characters that ``pattern``, a class of one character, takes; at most ``longest``."""
        start = self.at
        while True:
            while self.at < len(self.text) and self.at - start < longest and pattern.match(self.text, self.at):
                self.at += 1
            if self.at < len(self.text) or self.at - start >= longest or not (yield from self.more()):
                return self.text[start : self.at]

    def string(self) -> Parse[str | None]:
        """Read a JSON string; its raw text with the quotes. None, and all of it read, when it breaks off."""
        start = self.at
        self.at += 1
        while True:
            found = _QUOTE.search(self.text, self.at)
            if found is None:
                self.at = len(self.text)
            elif found.group() == '"':
                self.at = found.end()
                return self.text[start : self.at]
            elif found.end() < len(self.text):
                self.at = found.end() + 1
                continue
            else:  # A backslash whose letter is still to come.
                self.at = found.start()
            if not (yield from self.more()):
                self.at = len(self.text)
                return None

    def value(self, emit: Emit) -> Parse[bool]:
        """Emit and settle one JSON value, its text unchanged; False when the text ends before it does.

        Brackets are counted, strings are left out of the count; nothing else is checked.
        """
        first = yield from self.peek()
        if first not in ('"', "{", "["):
            return (yield from self._scalar(emit))
        depth = 0
        quoted = False
        while True:
            found = (_QUOTE if quoted else _STRUCTURE).search(self.text, self.at)
            if found is None:
                self.at = len(self.text)
            elif found.group() == "\\":
                if found.end() < len(self.text):
                    self.at = found.end() + 1
                    continue
                self.at = found.start()
            else:
                self.at = found.end()
                if found.group() == '"':
                    quoted = not quoted
                else:
                    depth += 1 if found.group() in "{[" else -1
                if depth <= 0 and not quoted:
                    self._give(self.at, emit)
                    return True
                continue
            self._give(self.at, emit)
            if not (yield from self.more()):
                self._give(len(self.text), emit)
                return False

    def _scalar(self, emit: Emit) -> Parse[bool]:
        while True:
            found = _SCALAR.match(self.text, self.at)
            self.at = found.end() if found else self.at
            ended = self.at < len(self.text)
            self._give(self.at, emit)
            if ended or not (yield from self.more()):
                return ended

    def _give(self, end: int, emit: Emit) -> None:
        text, self.text, self.at = self.text[:end], self.text[end:], 0
        if text:
            emit(text)


@cache
def _any(marks: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, sorted(marks, key=len, reverse=True))))


def _beginning(text: str, at: int, marks: tuple[str, ...]) -> int:
    """How many characters at the end of ``text`` may be the beginning of a mark."""
    longest = min(max(map(len, marks)) - 1, len(text) - at)
    return next((n for n in range(longest, 0, -1) if any(mark.startswith(text[-n:]) for mark in marks)), 0)

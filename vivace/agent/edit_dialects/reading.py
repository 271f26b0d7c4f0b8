"""Answers that are made of hunks, read line by line as they arrive. A hunk counts when its closing mark has come."""

from __future__ import annotations

from typing import Protocol

from vivace.agent.edit_dialects.hunks import Hunk, Preview
from vivace.agent.reply import Reply
from vivace.errors import UsageError


class Reader(Protocol):
    """Reads the hunks of one answer."""

    hunks: list[Hunk]
    open: bool
    """In the middle of a hunk."""
    over: bool
    """What follows cannot matter."""
    problem: str
    """Why the answer cannot be read; lines after it are ignored."""

    def line(self, line: str) -> None:
        """Take one whole line, without its end."""
        ...


class HunkParser:
    """As :class:`vivace.agent.reply.ReplyParser`. ``code`` of its reply is the answer as it came."""

    def __init__(self, reader: Reader, preview: Preview) -> None:
        self._reader = reader
        self._preview = preview
        self._text: list[str] = []
        self._tail = ""

    @property
    def closed(self) -> bool:
        return self._reader.over

    def feed(self, delta: str) -> list[str]:
        """Take more text; return the lines of the file, as it will be, that are certain now."""
        *complete, self._tail = (self._tail + delta).split("\n")
        shown: list[str] = []
        for line in complete:
            before = len(self._reader.hunks)
            self._line(line)
            for hunk in self._reader.hunks[before:]:
                shown += self._preview.feed(hunk)
        return shown

    def finish(self, *, complete: bool = True) -> Reply:
        """The answer has ended; ``complete`` tells that the model ended it, and not a limit or a lost connection."""
        if self._tail and complete:
            self._line(self._tail)
        self._tail = ""
        reader, text = self._reader, "".join(line + "\n" for line in self._text)
        if reader.over or (complete and (reader.problem or (reader.hunks and not reader.open))):
            return Reply("closed", text)
        begun = reader.open or reader.hunks or reader.problem
        return Reply("cut", text) if begun else Reply("none", "")

    def _line(self, line: str) -> None:
        if not self._reader.over:
            line = line.removesuffix("\r")
            self._text.append(line)
            if not self._reader.problem:
                self._reader.line(line)


def read(reader: Reader, text: str, form: str) -> list[Hunk]:
    """The hunks of a whole answer. Raises :class:`UsageError` (``unreadable``), whose hint tells the ``form``."""
    for line in text.split("\n")[:-1]:
        reader.line(line)
        if reader.problem or reader.over:
            break
    if reader.problem:
        raise UsageError(f"the answer cannot be read: {reader.problem}", hint=form, code="unreadable")
    return reader.hunks

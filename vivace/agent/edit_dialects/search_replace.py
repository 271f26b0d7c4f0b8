"""Search and replace blocks: the lines to look for, and those to put in their place."""

from __future__ import annotations

import re

from vivace.agent.edit_dialects.hunks import Hunk
from vivace.agent.edit_dialects.real_lines import one_of_its_kind
from vivace.agent.workspace import SourceFile

SYSTEM = "You are an expert programmer. You change a file by search and replace blocks. Change only what is asked for."
PARTS = True
USUAL = 7
"""Characters of a mark, where no line of the file looks like one."""
MOST = 24
"""Blocks of one answer, where a grammar bounds them."""

_MARK = re.compile(r"^(?:(<{5,})[ \t]*SEARCH|(={5,})[ \t]*$|(>{5,})[ \t]*REPLACE)", re.MULTILINE)


def size_of_marks(source: SourceFile) -> int:
    """The usual one, or longer than anything in the file that looks like a mark."""
    return max(USUAL, _longest_mark(source) + 2)


def _longest_mark(source: SourceFile) -> int:
    return max((len(run) for found in _MARK.finditer(source.text) for run in found.groups() if run), default=0)


def shown(source: SourceFile) -> tuple[str, str]:
    """The heading of the file and its text."""
    return f"{source.name}:", source.text


def rules(source: SourceFile) -> str:
    """The form of the answer, in the model's words."""
    search, middle, replace = _marks(source)
    return (
        "Reply with nothing but one such block for each place to change:\n\n"
        f"{search}\nlines copied from the file, enough of them to stand in one place only\n{middle}\n"
        f"the lines to put in their place\n{replace}\n\n"
        "To add lines, copy the line beside them into both parts."
    )


def grammar(source: SourceFile) -> str:
    """Blocks whose first part is made of consecutive lines of the file that stand in one place; empty if too long."""
    lines = one_of_its_kind(source.lines)
    if not lines:
        return ""
    search, middle, replace = _marks(source)
    return (
        f"start: block{{1,{MOST}}}\n"
        f'block: "{search}\\n" SEARCH "{middle}\\n" rest\n'
        f"SEARCH: {lines}\n"
        f"rest[lazy]: /([^\\n]*\\n)*{replace}\\n/\n"
    )


class BlockReader:
    """See :class:`vivace.agent.edit_dialects.reading.Reader`. What stands outside of blocks is talk."""

    def __init__(self, source: SourceFile) -> None:
        # Models miscount; that is put up with where nothing in the file can be taken for a mark.
        span = f"{{{size_of_marks(source)}}}" if _longest_mark(source) else "{5,9}"
        self._search = re.compile(rf"<{span}\s*SEARCH\s*$")
        self._middle = re.compile(rf"={span}\s*$")
        self._replace = re.compile(rf">{span}\s*REPLACE\s*$")
        self.hunks: list[Hunk] = []
        self.open = self.over = False
        self.problem = ""
        self._old: list[str] = []
        self._new: list[str] | None = None

    def line(self, line: str) -> None:
        if self._search.match(line):
            if self.open:
                self.problem = "a block begins inside another"
            self.open, self._old, self._new = True, [], None
        elif not self.open:
            if self._replace.match(line):
                self.problem = "a block ends that never began"
        elif self._new is None:
            if self._middle.match(line):
                self._new = []
            elif self._replace.match(line):
                self.problem = "a block has no second part"
            else:
                self._old.append(line)
        elif self._replace.match(line):
            self.hunks.append(Hunk(tuple(self._old), tuple(self._new)))
            self.open = False
        else:
            self._new.append(line)


def reader(source: SourceFile) -> BlockReader:
    return BlockReader(source)


def _marks(source: SourceFile) -> tuple[str, str, str]:
    size = size_of_marks(source)
    return f"{'<' * size} SEARCH", "=" * size, f"{'>' * size} REPLACE"

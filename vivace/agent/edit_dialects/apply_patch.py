"""OpenAI's patch format (V4A), in which its own models were trained to edit: one file's update out of it.

https://developers.openai.com/api/docs/guides/tools-apply-patch describes the form: an envelope, sections by file, hunks
behind ``@@`` with lines of context, and no line numbers.
"""

from __future__ import annotations

import re

from vivace.agent.edit_dialects.hunks import Hunk
from vivace.agent.workspace import SourceFile

SYSTEM = "You are an expert programmer. You change a file by a patch. Change only what is asked for."
PARTS = False
BEGIN, END = "*** Begin Patch", "*** End Patch"
_NUMBERS = re.compile(r"^\s*-\d+(,\d+)?\s+\+\d+(,\d+)?\s+@@")
"""Of a unified diff; models miscount them, and the form has none."""


def shown(source: SourceFile) -> tuple[str, str]:
    """The heading of the file and its text."""
    return f"{source.name}:", source.text


def rules(source: SourceFile) -> str:
    """The form of the answer, in the model's words."""
    return (
        "Reply with nothing but one patch in the apply_patch format:\n\n"
        f"{BEGIN}\n*** Update File: {source.name}\n@@ the line of the class or function that it is in\n"
        " a line of context, as it stands in the file\n-a line to remove\n+a line to add\n"
        f" a line of context\n{END}\n\n"
        "Three lines of context before and after each change, one @@ for each place."
    )


def grammar(source: SourceFile) -> str:
    """None: context lines are looked for by their text, and what is written stays the model's own."""
    return ""


class PatchReader:
    """See :class:`vivace.agent.edit_dialects.reading.Reader`. What stands outside of the envelope is talk."""

    def __init__(self, source: SourceFile) -> None:
        self._names = {source.name, source.name.rsplit("/", 1)[-1], f"./{source.name}"}
        self.hunks: list[Hunk] = []
        self.open = self.over = False
        self.problem = ""
        self._in_file = False
        self._heads: list[str] = []
        self._old: list[str] = []
        self._new: list[str] = []
        self._end = False

    def line(self, line: str) -> None:
        if not self.open:
            self.open = line.strip() == BEGIN
        elif line.rstrip() == END:
            self._close()
            self.open, self.over = False, True
        elif line.startswith("*** "):
            self._section(line.rstrip())
        elif not self._in_file:
            if line.strip():
                self.problem = "the patch does not say which file it updates"
        elif line.startswith("@@"):
            if self._old or self._new:
                self._close()
            if head := _NUMBERS.sub("", line[2:]).removesuffix("@@").strip():
                self._heads.append(head)
        else:
            self._body(line)

    def _section(self, line: str) -> None:
        what, _, name = line[4:].partition(": ")
        if what == "Update File":
            self._close()
            self._in_file = True
            if name.strip() not in self._names:
                self.problem = f"the patch is for another file ({name.strip()[:80]!r})"
        elif what == "End of File":
            self._end = True
        elif what in ("Add File", "Delete File", "Move to"):
            self.problem = f"the patch does more than to update the file ({what}: {name.strip()[:80]!r})"
        else:
            self.problem = f"the patch holds a line that is none of the form ({line[:80]!r})"

    def _body(self, line: str) -> None:
        mark, rest = line[:1], line[1:]
        if self._end and line.strip():
            self.problem = "lines follow the end of the file"
        elif mark in ("", " "):  # models leave the space of a blank line out
            self._old.append(rest)
            self._new.append(rest)
        elif mark == "-":
            self._old.append(rest)
        elif mark == "+":
            self._new.append(rest)
        else:
            self.problem = f"a line of the patch begins with none of space, minus and plus ({line[:80]!r})"

    def _close(self) -> None:
        """A hunk has ended."""
        old, new = self._old, self._new
        while not self._end and old and new and not old[-1].strip() and not new[-1].strip() and old[-1] == new[-1]:
            # Blank lines before the next mark are as often layout of the patch as context; they tell no place.
            old, new = old[:-1], new[:-1]
        if old or new:
            self.hunks.append(Hunk(tuple(old), tuple(new), tuple(self._heads), end=self._end))
        self._heads, self._old, self._new, self._end = [], [], [], False


def reader(source: SourceFile) -> PatchReader:
    return PatchReader(source)

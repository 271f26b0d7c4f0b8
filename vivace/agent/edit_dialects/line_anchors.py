"""Commands on lines that are named by short hashes of what they say.

An anchor that the model makes up, or takes from a text that is not there any more, names no line and is refused. The
commands are few and end with a mark; longer forms of this idea, with line numbers or JSON, are the worst of all for
small models.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence

from vivace.agent.edit_dialects.hunks import Hunk
from vivace.agent.workspace import SourceFile

SYSTEM = "You are an expert programmer. You change a file by commands on its lines. Change only what is asked for."
PARTS = False
LETTERS = "bcdfghjklmnpqrstvwxz"
"""No vowels: an anchor is no word that the model could take for code."""
SHORT = 1500
"""Lines up to which three letters are enough."""
MOST = 24
"""Commands of one answer, where a grammar bounds them."""
LONGEST = 200_000
"""Characters of a grammar."""


def anchors(lines: Sequence[str]) -> list[str]:
    """One anchor for each line, by its text; of equal lines, by which of them it is."""
    size = 3 if len(lines) <= SHORT else 4
    times: Counter[str] = Counter()
    taken: set[str] = set()
    made = []
    for line in lines:
        times[line] += 1
        salt = 0
        while (anchor := _hash(f"{line}\n{times[line]}\n{salt}", size)) in taken:
            salt += 1
        taken.add(anchor)
        made.append(anchor)
    return made


def _hash(text: str, size: int) -> str:
    number = int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8])
    letters = []
    for _ in range(size):
        number, digit = divmod(number, len(LETTERS))
        letters.append(LETTERS[digit])
    return "".join(letters)


def mark(source: SourceFile) -> str:
    """Begins a command; longer than what begins any line of the file."""
    made = "@@"
    while any(line.startswith(made + " ") for line in source.lines):
        made += "@"
    return made


def shown(source: SourceFile) -> tuple[str, str]:
    """The heading of the file, and its lines behind their anchors."""
    lines = source.lines
    text = "".join(f"{anchor}|{line}\n" for anchor, line in zip(anchors(lines), lines, strict=True))
    return f"{source.name}, each line behind its anchor:", text


def rules(source: SourceFile) -> str:
    """The form of the answer, in the model's words."""
    made = mark(source)
    return (  # With anchors of the file in place of capitals, small models copy the examples.
        "Reply with nothing but one command for each place to change. FIRST, LAST and LINE stand for anchors:\n\n"
        f"{made} replace FIRST to LAST\nthe lines that take the place of these, without anchors\n{made} end\n\n"
        f"{made} insert after LINE\nthe lines to add\n{made} end\n\n"
        f"{made} delete FIRST to LAST"
    )


def grammar(source: SourceFile) -> str:
    """Commands on anchors that the file has; empty if too long."""
    made = mark(source)
    text = (
        f"start: command{{1,{MOST}}}\n"
        "command: replace | insert | delete\n"
        f'replace: "{made} replace " ANCHOR " to " ANCHOR "\\n" rest\n'
        f'insert: "{made} insert " WHERE ANCHOR "\\n" rest\n'
        f'delete: "{made} delete " ANCHOR " to " ANCHOR "\\n"\n'
        'WHERE: "after " | "before "\n'
        f"ANCHOR: /{'|'.join(anchors(source.lines))}/\n"
        f"rest[lazy]: /([^\\n]*\\n)*{made} end\\n/\n"
    )
    return text if len(text) <= LONGEST else ""


class CommandReader:
    """See :class:`vivace.agent.edit_dialects.reading.Reader`. What stands outside of commands is talk."""

    def __init__(self, source: SourceFile) -> None:
        made = re.escape(mark(source))
        self._range = re.compile(rf"{made} (replace|delete) (\w+)(?: *(?:to|-|\.\.) *(\w+))?:?\s*$")
        self._insert = re.compile(rf"{made} insert (after|before) (\w+):?\s*$")
        self._end = re.compile(rf"{made} end\s*$")
        self._any = re.compile(rf"{made} ")
        self._lines = source.lines
        self._where = {anchor: n for n, anchor in enumerate(anchors(source.lines))}
        self.hunks: list[Hunk] = []
        self.open = self.over = False
        self.problem = ""
        self._at = (0, 0)
        self._body: list[str] = []

    def line(self, line: str) -> None:
        if self._end.match(line):
            self._close()
        elif found := self._range.match(line):
            self._close()
            first = self._line_of(found[2])
            last = self._line_of(found[3] or found[2])
            if first is not None and last is not None:
                self._begin(first, last + 1, body=found[1] == "replace")
        elif found := self._insert.match(line):
            self._close()
            at = self._line_of(found[2])
            if at is not None:
                at += found[1] == "after"
                self._begin(at, at, body=True)
        elif self.open:
            self._body.append(line)
        elif self._any.match(line):
            self.problem = f"there is no command {line[:80]!r}"

    def _begin(self, first: int, last: int, *, body: bool) -> None:
        if first > last:
            self.problem = f"a range ends (line {last}) before it begins (line {first + 1})"
            return
        self._at, self._body, self.open = (first, last), [], True
        if not body:
            self._close()

    def _close(self) -> None:
        if self.open:
            first, last = self._at
            self.hunks.append(Hunk(tuple(self._lines[first:last]), tuple(self._bare()), at=self._at))
        self.open = False

    def _bare(self) -> list[str]:
        """The new lines without the anchors that the model may have copied, if it has all through."""
        split = [line.split("|", 1) for line in self._body if line.strip()]
        if split and all(len(parts) == 2 and parts[0] in self._where for parts in split):
            return [line.split("|", 1)[-1] for line in self._body]
        return self._body

    def _line_of(self, anchor: str) -> int | None:
        found = self._where.get(anchor)
        if found is None and not self.problem:
            near = _near(anchor, self._where)
            told = "; ".join(
                f"{name} is line {self._where[name] + 1}, {self._lines[self._where[name]]!r:.80}" for name in near
            )
            self.problem = f"no line has the anchor {anchor!r} ({told or 'the file has none like it'})"
        return found


def reader(source: SourceFile) -> CommandReader:
    return CommandReader(source)


def _near(anchor: str, known: dict[str, int]) -> list[str]:
    from rapidfuzz import process

    return [name for name, *_ in process.extract(anchor, list(known), limit=3, score_cutoff=60)]

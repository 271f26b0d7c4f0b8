"""``.gitignore`` files as git reads them (gitignore(5)), for folders that git does not know or where git is absent."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

ALWAYS = frozenset(
    {
        ".git",
        ".hg",
        ".svn",
        "node_modules",
        "__pycache__",
        ".venv",
        "venv",
        ".tox",
        ".nox",
        ".mypy_cache",
        ".ruff_cache",
        ".pytest_cache",
        ".hypothesis",
        ".gradle",
        ".terraform",
        ".next",
    }
)
"""Folders that no one edits by hand; left out where there is no git to ask."""


class Pattern(Struct, frozen=True):
    """One line of a ``.gitignore``. ``regex`` matches a path relative to the folder of that file."""

    regex: re.Pattern[str]
    negated: bool
    folders_only: bool


class Ignore:
    """The patterns of one folder and of those above it, the deepest deciding."""

    def __init__(self, layers: tuple[tuple[str, tuple[Pattern, ...]], ...] = ()) -> None:
        self._layers = layers

    def entering(self, folder: Path, relative: str) -> Ignore:
        """With the ``.gitignore`` of ``folder``, which the walk calls ``relative`` (empty at the top)."""
        try:
            text = (folder / ".gitignore").read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            return self
        return Ignore((*self._layers, (f"{relative}/" if relative else "", parse(text.split("\n")))))

    def __call__(self, path: str, *, folder: bool) -> bool:
        """Whether ``path`` (relative to the top, POSIX) is ignored; those above it are taken not to be."""
        for prefix, patterns in reversed(self._layers):
            inner = _bytes(path.removeprefix(prefix))
            for pattern in reversed(patterns):
                if (folder or not pattern.folders_only) and pattern.regex.fullmatch(inner):
                    return not pattern.negated
        return False


def _bytes(text: str) -> str:
    """One character for each byte: git's ``?`` stands for a byte."""
    return os.fsencode(text).decode("latin-1")


def parse(lines: Iterable[str]) -> tuple[Pattern, ...]:
    """The patterns of a file; blank lines and comments are none."""
    found = []
    for raw in lines:
        line = _bytes(_without_trailing_blanks(raw.removesuffix("\r")))
        if not line or line.startswith("#"):
            continue
        negated = line.startswith("!")
        line = line[1:] if negated else line
        folders_only = line.endswith("/")
        line = line.rstrip("/") if folders_only else line
        anchored = "/" in line
        try:
            regex = re.compile(("" if anchored else "(?:.*/)?") + _translate(line.removeprefix("/")), re.DOTALL)
        except re.error:  # a bracket that git takes for nothing either
            continue
        if line:
            found.append(Pattern(regex, negated, folders_only))
    return tuple(found)


def _without_trailing_blanks(line: str) -> str:
    bare = line.rstrip(" ")
    escaped = len(bare) - len(bare.rstrip("\\"))
    return bare + " " if escaped % 2 and bare != line else bare


def _translate(glob: str) -> str:
    out = []
    at = 0
    while at < len(glob):
        character = glob[at]
        if glob.startswith("**/", at) and (at == 0 or glob[at - 1] == "/"):
            out.append("(?:.*/)?")
            at += 3
        elif glob[at:] == "**" and (at == 0 or glob[at - 1] == "/"):
            out.append(".+")
            at += 2
        elif character == "*":
            out.append("[^/]*")
            while at < len(glob) and glob[at] == "*":
                at += 1
        elif character == "?":
            out.append("[^/]")
            at += 1
        elif character == "[" and (end := _bracket_end(glob, at)) > 0:
            out.append(_bracket(glob[at + 1 : end]))
            at = end + 1
        elif character == "\\" and at + 1 < len(glob):
            out.append(re.escape(glob[at + 1]))
            at += 2
        else:
            out.append(re.escape(character))
            at += 1
    return "".join(out)


def _bracket_end(glob: str, start: int) -> int:
    at = start + 1
    if at < len(glob) and glob[at] in "!^":
        at += 1
    if at < len(glob) and glob[at] == "]":
        at += 1
    return glob.find("]", at)


def _bracket(inside: str) -> str:
    negated = inside[:1] in ("!", "^")
    body = inside[1:] if negated else inside
    body = re.sub(r"\[:(\w+):\]", lambda found: _CLASSES.get(found[1], ""), body.replace("\\", "\\\\"))
    body = body.replace("[", "\\[").replace("]", "\\]").replace("&&", "&\\&").replace("~~", "~\\~")
    return f"(?!/)[{'^' if negated else ''}{body}]"


_CLASSES = {"alnum": "0-9A-Za-z", "alpha": "A-Za-z", "digit": "0-9", "lower": "a-z", "upper": "A-Z", "space": "\\s"}

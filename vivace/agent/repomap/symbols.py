"""The names that a file defines and the names that it mentions."""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from vivace.agent.languages import parse_tree, python_tree
from vivace.agent.repomap.queries import DEFINITIONS, REFERENCES

if TYPE_CHECKING:
    from tree_sitter import Query, Tree

SIGNATURE = 120
"""Characters of a definition's first line that are kept."""
SHORTEST = 3
"""Shorter names say nothing."""


class Symbol(Struct, frozen=True):
    """A definition. ``line`` counts from 0; ``depth`` is the number of definitions that it stands in."""

    name: str
    line: int
    depth: int
    signature: str


class Symbols(Struct, frozen=True):
    """Definitions in order of their lines; mentions with their number, the definitions' own names not counted."""

    definitions: tuple[Symbol, ...] = ()
    references: dict[str, int] = {}


def symbols_of(language: str, text: str) -> Symbols:
    """The symbols of a text; none for a language without a grammar. A broken file gives what can be read of it."""
    if language == "python":
        return _python(text)
    if language not in DEFINITIONS:
        return Symbols()
    tree = parse_tree(language, text)
    return _by_tree(language, text, tree) if tree is not None else Symbols()


_PYTHON_WORDS = re.compile(
    r"(?:\"\"\"(?:[^\\]|\\.)*?\"\"\"|'''(?:[^\\]|\\.)*?'''|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|#[^\n]*)"
    r"|([A-Za-z_]\w{2,})",
    re.DOTALL,
)
"""Names outside of texts and comments. Walking the tree finds the same and takes three times as long."""
_PYTHON_DEFINITION = re.compile(r"^([ \t]*)(?:async[ \t]+)?(?:def|class)[ \t]+(\w+)", re.MULTILINE)


def _python(text: str) -> Symbols:
    lines = text.split("\n")
    tree = python_tree(text)
    found = list(_below(tree, lines, 0)) if tree is not None else list(_by_line(text, lines))
    words = Counter(word for word in _PYTHON_WORDS.findall(text) if word)
    return Symbols(tuple(found), _mentions(words, found))


def _below(node: ast.AST, lines: list[str], depth: int) -> Iterator[Symbol]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield Symbol(child.name, child.lineno - 1, depth, _signature(lines, child.lineno - 1))
            yield from _below(child, lines, depth + 1)
        elif isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield from _below(child, lines, depth)


def _by_line(text: str, lines: list[str]) -> Iterator[Symbol]:
    """For Python that this Python cannot parse, such as an older one or one being written."""
    for found in _PYTHON_DEFINITION.finditer(text):
        line = text.count("\n", 0, found.start())
        yield Symbol(found[2], line, min(3, len(found[1].expandtabs(4)) // 4), _signature(lines, line))


def _by_tree(language: str, text: str, tree: Tree) -> Symbols:
    from tree_sitter import QueryCursor

    lines = text.split("\n")
    definitions, references = _queries(language, tree)
    spans: list[tuple[int, int, str, int]] = []
    for _, captures in QueryCursor(definitions).matches(tree.root_node):
        (node, *_), (name, *_) = captures["def"], captures["name"]
        if name.text is not None:
            # Of a::b::c the last part is what others write.
            parts = re.split(r"::|\.|<", name.text.decode("utf-8", "replace"))
            word = parts[-1] if parts[-1].isidentifier() else parts[0]
            spans.append((node.start_byte, -node.end_byte, word, name.start_point[0]))
    found: list[Symbol] = []
    open_until: list[int] = []
    for start, end, word, row in sorted(spans):
        while open_until and open_until[-1] <= start:
            open_until.pop()
        if not (found and found[-1].line == row and found[-1].name == word):
            found.append(Symbol(word, row, len(open_until), _signature(lines, row)))
        open_until.append(-end)
    words: Counter[str] = Counter()
    for node in QueryCursor(references).captures(tree.root_node).get("ref", []):
        if node.end_byte - node.start_byte >= SHORTEST and node.text is not None:
            words[node.text.decode("utf-8", "replace")] += 1
    return Symbols(tuple(found), _mentions(words, found))


@functools.cache
def _compiled(language: str) -> dict[str, tuple[Query, Query]]:
    return {}


def _queries(language: str, tree: Tree) -> tuple[Query, Query]:
    from tree_sitter import Query

    cached = _compiled(language)
    if language not in cached:
        cached[language] = (Query(tree.language, DEFINITIONS[language]), Query(tree.language, REFERENCES[language]))
    return cached[language]


def _mentions(words: Counter[str], found: list[Symbol]) -> dict[str, int]:
    for symbol in found:
        words[symbol.name] -= 1
    return {word: number for word, number in words.items() if number > 0}


def _signature(lines: list[str], row: int) -> str:
    line = " ".join(lines[row].split()) if row < len(lines) else ""
    return line if len(line) <= SIGNATURE else line[: SIGNATURE - 3] + "..."

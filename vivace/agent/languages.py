"""Which language a file is in, and the parsers for it; grammars are loaded when first needed."""

from __future__ import annotations

import ast
import functools
import importlib
import warnings
from collections.abc import Iterator
from pathlib import PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Tree

BY_SUFFIX = {
    ".py": "python",
    ".pyi": "python",
    ".pyw": "python",
    ".js": "javascript",
    ".jsx": "javascript",
    ".mjs": "javascript",
    ".cjs": "javascript",
    ".ts": "typescript",
    ".mts": "typescript",
    ".cts": "typescript",
    ".tsx": "tsx",
    ".go": "go",
    ".rs": "rust",
    ".java": "java",
    ".c": "c",
    ".h": "c",
    ".cc": "cpp",
    ".cpp": "cpp",
    ".cxx": "cpp",
    ".hh": "cpp",
    ".hpp": "cpp",
    ".json": "json",
    ".sh": "bash",
    ".bash": "bash",
    ".toml": "toml",
    ".md": "markdown",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".html": "html",
    ".css": "css",
    ".sql": "sql",
    ".rb": "ruby",
    ".php": "php",
}
"""Suffix -> the word that opens a code fence."""

_GRAMMARS = {
    "javascript": ("tree_sitter_javascript", "language"),
    "typescript": ("tree_sitter_typescript", "language_typescript"),
    "tsx": ("tree_sitter_typescript", "language_tsx"),
    "go": ("tree_sitter_go", "language"),
    "rust": ("tree_sitter_rust", "language"),
    "java": ("tree_sitter_java", "language"),
    "c": ("tree_sitter_c", "language"),
    "cpp": ("tree_sitter_cpp", "language"),
    "json": ("tree_sitter_json", "language"),
    "bash": ("tree_sitter_bash", "language"),
}


def language_of(name: str, text: str = "") -> str:
    """The language by suffix, else by the ``#!`` line; empty when unknown."""
    path = PurePath(name)
    if path.suffix:
        return BY_SUFFIX.get(path.suffix.lower(), "")
    first = text.split("\n", 1)[0] if text.startswith("#!") else ""
    if "python" in first:
        return "python"
    return "bash" if first.rstrip().endswith("sh") else ""


HASH_COMMENTS = {"python", "bash", "toml", "yaml", "ruby", "php"}
SLASH_COMMENTS = {"javascript", "typescript", "tsx", "go", "rust", "java", "c", "cpp", "php"}
STAR_COMMENTS = SLASH_COMMENTS | {"css", "sql"}
ANGLE_COMMENTS = {"html", "markdown"}
"""Languages by how their comments begin: ``#``, ``//``, ``/*`` and ``<!--``. SQL also has ``--``."""


@functools.lru_cache(maxsize=4)
def python_tree(text: str) -> ast.Module | None:
    """The module, or ``None`` when this Python cannot parse it. Warnings about the code stay silent.

    The last few are kept, since many ask for the same one in a row: nobody may change a tree.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def statements(tree: ast.AST) -> Iterator[ast.stmt]:
    """Every statement in a tree, in no order: a fraction of what :func:`ast.walk` visits, which enters expressions."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            for child in getattr(node, field, ()):
                if isinstance(child, ast.stmt):
                    yield child
                waiting.append(child)


def imports_of(tree: ast.Module) -> list[ast.Import | ast.ImportFrom]:
    """Every import in a module, whatever its scope."""
    return [node for node in statements(tree) if isinstance(node, ast.Import | ast.ImportFrom)]


def parse_tree(language: str, text: str) -> Tree | None:
    """The syntax tree, or ``None`` when no grammar for the language is installed."""
    try:
        module, function = _GRAMMARS[language]
        return _parse(module, function, text)
    except (KeyError, ImportError):
        return None


def _parse(module: str, function: str, text: str) -> Tree:
    from tree_sitter import Parser

    # Characters are given as they are: a lone surrogate cannot be there, the file was decoded as UTF-8.
    return Parser(_grammar(module, function)).parse(text.encode("utf-8"))


@functools.cache
def _grammar(module: str, function: str):  # type: ignore[no-untyped-def]
    from tree_sitter import Language

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # grammars built for an older binding pass an int
        return Language(getattr(importlib.import_module(module), function)())

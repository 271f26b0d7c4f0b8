"""Part of a file for the model to rewrite: which function or class, how it is shown, and how it is put back."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from vivace.agent.definitions import Definition, definitions
from vivace.agent.languages import language_of
from vivace.agent.workspace import SourceFile

LONG_FILE = 100
"""Lines from which a file counts as long: then an instruction that names one definition gets only that one."""

_WORD = re.compile(r"[A-Za-z]+")
_IMPORT = re.compile(r"^(import|from)\s+[\w.]")


def named(source: SourceFile, instruction: str) -> Definition | None:
    """The one definition that the instruction names, or ``None`` when it names none or several.

    Dotted names count first, then names in backticks. Elsewhere a name that could be an English word counts only beside
    "function", "method", "class", "def" or an opening parenthesis. A method counts before the class that holds it.
    """
    found = definitions(language_of(source.name, source.text), source.text) or []
    quoted = {part for span in re.findall(r"`([^`\n]+)`", instruction) for part in re.findall(r"[\w.:~]+", span)}
    dotted = quoted | set(re.findall(r"\w+(?:\.\w+)+", instruction))
    hits = (
        [d for d in found if d.scope and d.qualname in dotted]
        or [d for d in found if d.name in quoted]
        or [d for d in found if _mentions(instruction, d.name)]
    )
    inner = [d for d in hits if not any(e is not d and _holds(d, e) for e in hits)]
    return inner[0] if len(inner) == 1 else None


def ranked(source: SourceFile, instruction: str) -> list[Definition]:
    """Definitions that share words with the instruction, likeliest first; a name weighs more than a body."""
    words = {word for word in _words(instruction) if len(word) > 2}
    scored = []
    for d in definitions(language_of(source.name, source.text), source.text) or []:
        name = len(words & _words(d.qualname))
        body = len(words & _words("\n".join(source.lines[d.start : d.end])))
        if name or body >= 3:
            scored.append((-(4 * name + body), d.end - d.start, d.start, d))
    return [d for *_, d in sorted(scored, key=lambda entry: entry[:3])]


def cut_out(source: SourceFile, region: Definition) -> str:
    """The region as the model sees it: without the indentation that all of its lines share with the first."""
    lines = source.lines[region.start : region.end]
    indent = _indent(lines[0])
    if all(line.startswith(indent) or not line.strip() for line in lines):
        lines = [line[len(indent) :] if line.startswith(indent) else line for line in lines]
    return "".join(line + "\n" for line in lines)


def put_back(source: SourceFile, region: Definition, code: str, *, unused: bool = False) -> str:
    """The whole text with ``code`` in the region's place, indented as the region was.

    Imports that a Python reply puts before the definition go to the file's own imports, unless they are there already,
    or the definition makes no use of them and ``unused`` ones are not wanted.
    """
    lines = code.split("\n")[:-1]
    imports: list[str] = []
    if language_of(source.name, source.text) == "python":
        imports, lines = _without_imports(source, lines, unused)
    while lines and not lines[0].strip():
        lines = lines[1:]
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    old = source.lines[region.start : region.end]
    indent = _indent(old[0])
    shown_flush = all(line.startswith(indent) or not line.strip() for line in old)
    if lines and shown_flush and not _indent(lines[0]):
        lines = [indent + line if line.strip() else line for line in lines]
    whole = [*source.lines[: region.start], *lines, *source.lines[region.end :]]
    if imports:
        at = _import_line(source.text)
        whole[at:at] = imports
    return "\n".join(whole) + ("\n" if source.final_newline else "")


def surroundings(source: SourceFile, region: Definition) -> list[str]:
    """Lines of the file that the region leans on: imports, the head of its class, heads of what it mentions."""
    text = "\n".join(source.lines[region.start : region.end])
    used = set(re.findall(r"\w+", text))
    language = language_of(source.name, source.text)
    heads = []
    if language == "python":
        heads = [ast.unparse(node) for node in _imports(source.text) if used & _bound(node)]
    outer = []
    for d in definitions(language, source.text) or []:
        if _holds(d, region) or (d.name in used and not d.scope and d != region):
            head = next((line for line in source.lines[d.start : d.end] if d.name in line and line[:1] not in "@"), "")
            outer.append(head.strip().rstrip(":{").strip())
    return [line for line in heads[:12] + outer[:8] if line and "`" not in line]


def _mentions(instruction: str, name: str) -> bool:
    escaped = re.escape(name)
    if re.search(r"[_\d]|[a-z][A-Z]", name):
        return re.search(rf"(?<![\w]){escaped}(?!\w)", instruction) is not None
    kinds = "functions?|methods?|class|struct|def"
    return re.search(rf"\b(?:{kinds})\s+{escaped}\b|\b{escaped}(?:\(|\s+(?:{kinds})\b)", instruction) is not None


def _holds(outer: Definition, inner: Definition) -> bool:
    return outer != inner and outer.start <= inner.start and inner.end <= outer.end


def _words(text: str) -> set[str]:
    split = re.sub(r"([a-z])([A-Z])", r"\1 \2", text)
    return {word.lower() for word in _WORD.findall(split)}


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _without_imports(source: SourceFile, lines: Sequence[str], unused: bool) -> tuple[list[str], list[str]]:
    rest = list(lines)
    found = []
    while rest and (not rest[0].strip() or (_IMPORT.match(rest[0]) and "(" not in rest[0])):
        line = rest.pop(0).strip()
        if line:
            found.append(line)
    there = set().union(*(_bound(node) for node in _imports(source.text)))
    used = set(re.findall(r"\w+", "\n".join(rest)))
    fresh = []
    for line in found:
        try:
            names = set().union(*(_bound(node) for node in _imports(line)))
        except SyntaxError:
            return [], list(lines)
        if not names <= there and (unused or "*" in names or names & used):
            fresh.append(line)
    return fresh, rest


def _imports(text: str) -> list[ast.Import | ast.ImportFrom]:
    return [node for node in ast.parse(text).body if isinstance(node, ast.Import | ast.ImportFrom)]


def _bound(node: ast.Import | ast.ImportFrom) -> set[str]:
    return {alias.asname or alias.name.split(".")[0] for alias in node.names}


def _import_line(text: str) -> int:
    """Where another import goes: after the first run of imports, else after the module's docstring."""
    body = ast.parse(text).body
    at = 0
    for n, node in enumerate(body):
        if isinstance(node, ast.Import | ast.ImportFrom):
            at = node.end_lineno or 0
        elif at or n or not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            break
        else:
            at = node.end_lineno or 0
            if not any(isinstance(later, ast.Import | ast.ImportFrom) for later in body[1:2]):
                break
    return at

"""What the instruction speaks of, and what an answer brings along that no instruction asks for.

Small models repeat the heading and the fence of the question inside their answer: left out, and told. They import
everything of a module, or the module that they write from itself: refused, since the second fails when it is run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from pathlib import Path, PurePath

from vivace.agent.languages import imports_of, language_of, python_tree
from vivace.agent.workspace import SourceFile, split_lines

_REMOVING = r"(?:delet|remov|drop|eliminat|strip|shorten|simplif|reduc|renam|chang|touch|los|break)\w*"
_CODE = re.compile(
    r"`[^`]*`|(?<![\w$])[\w$]*(?:_[\w$]*|[.$][\w$]+|[a-z][A-Z][\w$]*)+(?:\(\))?|(?<![\w$])[\w$]+\(|--[\w-]+"
)
_NEGATED = re.compile(
    rf"\b(?:(?:do|does|must|should|may|can|will|shall|is|are)(?:\s+not|n't|nt|n’t)|cannot|never|without|nothing|not)\s+"
    rf"(?:(?:be|being|to|is|shall|may|any\w*)\s+)*{_REMOVING}",
    re.IGNORECASE,
)
_ABOUT_HEADING = re.compile(
    r"\bfile ?name|\bfile's name|name of the file|\bpath\b|header|heading|title|banner|comment|first line|\btop\b",
    re.IGNORECASE,
)
_OPENING = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*[\w+#.-]*\s*")
_MARKS = "#/*<!->;% \t\"'`"
_ALL_OF = re.compile(
    r"\bimport[^.\n]{0,20}\*|\bstar\b|wildcard|\b(?:everything|all (?:\w+ )?(?:names|symbols|members))\b|re-?export",
    re.IGNORECASE,
)
_TAKES_IN = {
    **dict.fromkeys(
        ("javascript", "typescript", "tsx"),
        re.compile(r"^\s*(?:import\b|export\b.*\bfrom\b|.*\brequire\().*?['\"]\.(?P<path>/[^'\"]+)['\"]"),
    ),
    **dict.fromkeys(("c", "cpp"), re.compile(r"^\s*#\s*include\s+\"(?P<path>[^\"]+)\"")),
    "bash": re.compile(r"^\s*(?:source|\.)\s+[\"']?(?:\$\{?\w+\}?|\.)?/?(?P<path>[\w.-]+)[\"']?\s*$"),
    "ruby": re.compile(r"^\s*require_relative\s+['\"](?P<path>[^'\"]+)['\"]"),
    "php": re.compile(r"^\s*(?:require|include)(?:_once)?\b[^'\"]*['\"](?P<path>[^'\"]+)['\"]"),
    "css": re.compile(r"^\s*@import\b[^'\"]*['\"](?P<path>[^'\"]+)['\"]"),
}
"""By language: a line that takes in another file of the same folder."""


_LEAVES_THE_REST = re.compile(
    r"\b(?:leav|keep)\w*\s+(?:(?:every|all|any|the)\w*\s+){0,3}(?:other|others|rest|else)\b"
    r"|\b(?:chang|touch|modif|edit|alter)\w*\s+(?:nothing|no(?:ne of the)?)\s+(?:else|other)\b"
    r"|(?:\bnot|n't|n’t|\bnever|\bwithout)\s+(?:chang|touch|modif|edit|alter)\w*"
    r"\s+(?:any ?thing else|(?:any|the) other|the rest)"
    r"|\bnothing else\s+(?:chang|is|may|should|must)",
    re.IGNORECASE,
)


def leaves_the_rest(instruction: str) -> bool:
    """Whether it says that nothing but what it names may change."""
    return _LEAVES_THE_REST.search(instruction) is not None


def prose(instruction: str) -> str:
    """The plain words of an instruction, without names of code and without what it says not to do.

    ``remove_duplicates`` removes nothing, and "do not remove anything" asks for the contrary.
    """
    return _NEGATED.sub(" ", _CODE.sub(" ", instruction))


def without_echo(name: str, shown: str, code: str, instruction: str) -> tuple[str, str]:
    """``code`` without the file's name and the fence that it repeats from the question, and a note of that.

    ``shown`` is the code as the question gave it.
    """
    old, new = split_lines(shown), split_lines(code)
    there = {line.strip() for line in old}
    markdown = language_of(name, shown) == "markdown"
    start, mark = 0, ""
    for n, line in enumerate(new[:5]):
        if not line.strip():
            continue
        opening = _OPENING.fullmatch(line)
        if line.strip() in there and not (opening and start and line not in old[:1]):
            break
        if opening and not mark and (start or not markdown):
            mark = opening[1]
        elif start or not _is_heading(name, line, instruction):
            break
        start = n + 1
    if not start:
        return code, ""
    rest = new[start:]
    last = next((n for n in range(len(rest) - 1, -1, -1) if rest[n].strip()), -1)
    closes = mark and last >= 0 and rest[last].strip() == mark and sum(map(_fences, rest)) % 2 == 1
    if closes:
        rest = rest[:last]
    left = "".join(line + "\n" for line in rest)
    what = "the question's heading" if start and not mark else "the question's heading and fence"
    return left, f"left out {what}, which the answer repeats ({new[0].strip()[:60]!r})"


def _is_heading(name: str, line: str, instruction: str) -> bool:
    """The file's name as the question gives it, or as a comment that nobody asked for."""
    bare = re.sub(r"^(?:file ?name|file|path)\s*:\s*", "", line.strip(_MARKS), flags=re.IGNORECASE).strip(_MARKS)
    comment = line.strip()[:1] in set("#/*<;%-")
    if comment and _ABOUT_HEADING.search(instruction):
        return False
    names = (name, PurePath(name).name)
    return bare.rstrip(": ") in names or bare.endswith(tuple(f"` of {one}:" for one in names))


def _fences(line: str) -> int:
    return int(bool(re.match(r" {0,3}(?:`{3,}|~{3,})", line)))


def bad_import(source: SourceFile, after: str, instruction: str) -> str:
    """A new import of the module by itself, or of everything: nobody asks for the one, and few for the other."""
    name, before = source.name, source.text
    language = language_of(name, before)
    if language == "python":
        return _bad_python_import(source, after, instruction)
    takes_in = _TAKES_IN.get(language)
    if takes_in is None:
        return ""
    known = {line.strip() for line in split_lines(before)}
    own = {PurePath(name).name, PurePath(name).stem}
    for line in split_lines(after):
        found = takes_in.match(line) if line.strip() not in known else None
        if found and found["path"].lstrip("./") in own and found["path"].count("/") <= 1:
            return f"the file would take itself in ({line.strip()[:80]})"
    return ""


def _bad_python_import(source: SourceFile, after: str, instruction: str) -> str:
    old, new = python_tree(source.text), python_tree(after)
    if old is None or new is None:
        return ""
    had, has = imports_of(old), imports_of(new)
    known = {ast.dump(node) for node in had}
    fresh = [node for node in has if ast.dump(node) not in known]
    own = _module(source)
    for node in fresh:
        if own and _imports(node, own) and ast.unparse(node) not in instruction:
            return f"the file would import itself ({ast.unparse(node)})"
    everything = [node for node in fresh if _takes_all(node)]
    more = sum(map(_takes_all, has)) > sum(map(_takes_all, had))
    if everything and more and not _ALL_OF.search(instruction) and PurePath(source.name).stem != "__init__":
        return f"the answer imports everything of a module ({ast.unparse(everything[0])}), which nobody asked for"
    return ""


def _module(source: SourceFile) -> Sequence[str]:
    """The dotted name by which the file can be imported, in parts; none for a package's own file."""
    if source.path.stem in ("__init__", "__main__"):
        return ()
    parts, folder = [PurePath(source.name).stem], Path(source.path).parent
    while (folder / "__init__.py").exists() and folder.parent != folder:
        parts.insert(0, folder.name)
        folder = folder.parent
    return parts


def _imports(node: ast.Import | ast.ImportFrom, own: Sequence[str]) -> bool:
    whole, outer = ".".join(own), ".".join(own[:-1])
    if isinstance(node, ast.Import):
        return any(alias.name == whole for alias in node.names)
    aliases = {alias.name for alias in node.names}
    if node.level == 1:
        return node.module == own[-1] or (node.module is None and own[-1] in aliases)
    return node.level == 0 and (node.module == whole or (node.module == outer and own[-1] in aliases))


def _takes_all(node: ast.Import | ast.ImportFrom) -> bool:
    return isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names)

"""What a reply leaves out and the file keeps all the same: the comments at its top, and docstrings.

Small models drop these, greedily and again when sampled, while the edit itself is right. Putting them back is exact:
they stand at a place of their own, and no code depends on them. It is done only where the reply wrote nothing in their
place and the instruction does not speak of changing them, and it is always told.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator

from vivace.agent.languages import (
    ANGLE_COMMENTS,
    HASH_COMMENTS,
    SLASH_COMMENTS,
    STAR_COMMENTS,
    language_of,
    python_tree,
)
from vivace.agent.workspace import split_lines

_ABOUT = re.compile(
    r"comment|doc ?strings?\b|documentation|\bdocs?\b|header|licen[cs]e|copyright|shebang|banner|first line|top of",
    re.IGNORECASE,
)
_CHANGES = re.compile(
    r"remov|delet|drop|strip|clean|replac|rewrit|chang|updat|shorten|translat|convert|\bmov|edit\b|fix|correct|only"
    r"|without|instead|renam|simplif|get rid|eliminat",
    re.IGNORECASE,
)

_Definition = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def put_back_kept(name: str, before: str, after: str, instruction: str) -> tuple[str, str]:
    """``after`` with what it lost by oversight, and a note that says so (empty when nothing was put back)."""
    if not after.strip() or (_ABOUT.search(instruction) and _CHANGES.search(instruction)):
        return after, ""
    language = language_of(name, before)
    text, kept = _with_docstrings(before, after) if language == "python" else (after, [])
    headed = _with_head(language, before, text)
    if headed != text:
        kept.append("the comments at the top of the file")
    if not kept:
        return after, ""
    told = ", ".join(kept[:3]) + (" and more" if len(kept) > 3 else "")
    return headed, f"kept {told}, which the answer left out"


def _with_head(language: str, before: str, after: str) -> str:
    """The leading comments of ``before``, when ``after`` has lost some of them and written none of its own."""
    old, new = split_lines(before), split_lines(after)
    old_end, new_end = _head_end(language, old), _head_end(language, new)
    first = old[old_end] if old_end < len(old) else None
    if old_end and old[old_end - 1].strip() and [first] != new[new_end : new_end + 1]:
        # Lines right above the first code speak of that code, and stay or go with it; a "#!" line does not.
        old_end = next((n for n in range(old_end, 0, -1) if not old[n - 1].strip()), int(old[0].startswith("#!")))
    had = [line.rstrip() for line in old[:old_end] if line.strip()]
    has = [line.rstrip() for line in new[:new_end] if line.strip()]
    elsewhere = {line.strip() for line in new[new_end:]}
    lost = [line for line in had if line not in has]
    if not lost or any(line not in had for line in has) or any(line.strip() in elsewhere for line in lost):
        return after
    return "".join(line + "\n" for line in [*old[:old_end], *new[new_end:]])


def _head_end(language: str, lines: list[str]) -> int:
    """How many lines stand before the first code: comments and blank ones."""
    closing = ""
    mark = "//" if language in SLASH_COMMENTS else "--" if language == "sql" else ""
    for n, line in enumerate(lines):
        bare = line.strip()
        if closing:
            if closing in bare:
                closing = ""
        elif not bare or (bare.startswith("#!") and n == 0) or (bare.startswith("#") and language in HASH_COMMENTS):
            continue
        elif language in STAR_COMMENTS and bare.startswith("/*"):
            closing = "" if "*/" in bare[2:] else "*/"
            if not closing and not bare.endswith("*/"):
                return n
        elif language in ANGLE_COMMENTS and bare.startswith("<!--"):
            closing = "" if "-->" in bare else "-->"
        elif not (mark and bare.startswith(mark)):
            return n
    return 0 if closing else len(lines)


def _with_docstrings(before: str, after: str) -> tuple[str, list[str]]:
    """``after`` with the docstrings that its definitions had in ``before`` and have no more, and what was put back."""
    old, new = _definitions(before), _definitions(after)
    old_lines, lines = split_lines(before), split_lines(after)
    found: list[tuple[int, list[str], str]] = []
    renamed = _renamed(old, new)
    for name, node in old.items():
        docstring, other = _docstring(node), new.get(renamed.get(name, name))
        if docstring is None or other is None or not other.body or _docstring(other):
            continue
        if docstring.col_offset != other.body[0].col_offset:
            continue
        shown, place = _lines_of(docstring, old_lines), _place(other, lines)
        if shown and place is not None:
            found.append((place, shown, name))
    for place, shown, _ in sorted(found, key=lambda entry: entry[0], reverse=True):
        doubled = place < len(lines) and not lines[place].strip()
        lines[place:place] = _without_last_blanks(shown) if doubled else shown
    if not found:
        return after, []
    text = "".join(line + "\n" for line in lines)
    mended = _definitions(text)
    for *_, name in found:
        now = mended.get(renamed.get(name, name))
        if now is None or _value(now) != _value(old[name]):
            return after, []
    return text, [f"the docstring of {name or 'the module'}" for *_, name in found]


def _renamed(old: dict[str, _Definition], new: dict[str, _Definition]) -> dict[str, str]:
    """Old names -> new ones, where a scope lost as many functions or classes as it gained: taken in their order."""
    gone: dict[tuple[str, bool], list[str]] = defaultdict(list)
    come: dict[tuple[str, bool], list[str]] = defaultdict(list)
    for these, others, into in ((old, new, gone), (new, old, come)):
        for name, node in these.items():
            if name not in others:
                into[name.rpartition(".")[0], isinstance(node, ast.ClassDef)].append(name)
    pairs: dict[str, str] = {}
    for slot, names in gone.items():
        if len(names) == len(come[slot]):
            pairs |= zip(names, come[slot], strict=True)
    return pairs


def _definitions(text: str) -> dict[str, _Definition]:
    """By dotted name, the module under an empty one. Names that are defined twice are left out; so is broken code."""
    tree = python_tree(text)
    if tree is None:
        return {}
    found = list(_walk(tree, ""))
    times = Counter(name for name, _ in found)
    return {name: node for name, node in found if times[name] == 1}


def _walk(node: _Definition, scope: str) -> Iterator[tuple[str, _Definition]]:
    yield scope, node
    for child in node.body:
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _walk(child, f"{scope}.{child.name}" if scope else child.name)


def _docstring(node: _Definition) -> ast.Expr | None:
    first = node.body[0] if node.body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        return first
    return None


def _value(node: _Definition) -> object:
    docstring = _docstring(node)
    return docstring.value.value if docstring and isinstance(docstring.value, ast.Constant) else None


def _lines_of(docstring: ast.Expr, lines: list[str]) -> list[str]:
    """The lines of the docstring and the blank ones after it; nothing when it shares a line with code."""
    start, end = docstring.lineno - 1, docstring.end_lineno or docstring.lineno
    # Columns are counted in UTF-8 bytes.
    if lines[start][: docstring.col_offset].strip() or lines[end - 1].encode()[docstring.end_col_offset or 0 :].strip():
        return []
    while end < len(lines) and not lines[end].strip():
        end += 1
    return lines[start:end]


def _without_last_blanks(lines: list[str]) -> list[str]:
    end = len(lines)
    while end and not lines[end - 1].strip():
        end -= 1
    return lines[:end]


def _place(node: _Definition, lines: list[str]) -> int | None:
    """The line where a docstring of ``node`` belongs; ``None`` where its body shares the line of its head."""
    first = node.body[0]
    place = first.lineno - 1
    if isinstance(first, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        place = min([first.lineno, *(decorator.lineno for decorator in first.decorator_list)]) - 1
    if lines[place][: first.col_offset].strip():
        return None
    if isinstance(node, ast.Module):
        return _head_end("python", lines)
    while place > node.lineno and (not lines[place - 1].strip() or lines[place - 1].lstrip().startswith("#")):
        place -= 1
    return place

"""Lost code: what a model drops although nobody asked. Each guard answers with a reason, or nothing.

A whole-file reply replaces everything, so what it leaves out is deleted. Small models leave things out in three ways: a
comment that stands for code, a definition that is not there any more, and a file that ends early or repeats itself.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator

from vivace.agent.applier import Patch
from vivace.agent.asked import prose
from vivace.agent.definitions import Definition, definitions
from vivace.agent.languages import imports_of, language_of, python_tree

_REMOVES = re.compile(
    r"\b(delet|remov|drop|eliminat|get(ting)? rid|only keep|keep only|shorten|clean|reduc"
    r"|strip\w*\s+(\w+\s+){0,3}(comment|doc ?string|log|print|debug|test|type|annotation|hint))",
    re.IGNORECASE,
)
"""Code goes."""
_RESTRUCTURES = re.compile(
    r"\b(merg|inlin|combin|refactor|rewrit|restructur|simplif|mov(e|es|ed|ing)\b|unif(y|ies|ied)|collaps|deduplicat)",
    re.IGNORECASE,
)
"""Code goes, and whole definitions with it."""
_CONVERTS = re.compile(r"\b(replac|convert|turn\w* .*\b(in)?to\b|instead of|without|split)", re.IGNORECASE)
"""One thing gives way to another."""
_PARTS = re.compile(
    r"\b(functions?|methods?|class(es)?|helpers?|defs?|definitions?|code|unused|dead|wrappers?|everything|all but"
    r"|others?|rest|duplicat\w*|redundan\w*|tests?|structs?|interfaces?|traits?|enums?|types?|properties|property|getters?"
    r"|setters?|handlers?|endpoints?|routes?|hooks?|callbacks?|components?|modules?|implementations?|constructors?"
    r"|aliases|alias|overloads?|variants?|operators?|half)\b",
    re.IGNORECASE,
)
"""What a definition may be called where it is to go."""
_NAMES = re.compile(r"\b(names?|named|call(ed)? it|renam\w*|replac\w*|convert\w*)\b", re.IGNORECASE)
_COMMENT = re.compile(r"^\s*(?:#|//|/\*+|\*|--|;|<!--|%|\"\"\")\s*(.*?)\s*(?:\*/|-->|\"\"\")?\s*$")
_ELISION = re.compile(
    r"^(?:\.\.\.|…)+$"
    r"|(?:\.\.\.|…).*\b(rest|existing|unchanged|omitted|previous|remaining|other|same|code|here)\b"
    r"|\b(rest|remainder) of (the |your |this )?(\w+ )?"
    r"(code|file|class|function|method|module|implementation|program|script)"
    r"|\b(existing|previous|original|remaining|other) (\w+ )?"
    r"(code|functions?|methods?|class(es)?|implementation|definitions?)"
    r"\b.*(\.\.\.|…|\bhere\b|\bunchanged\b|\bomitted\b|\b(remains?|stays?)\b|\bgoes\b|\bas before\b)"
    r"|\b(code|functions?|methods?|everything|implementation) (\w+ )?(remains?|stays?|is|are) "
    r"(the same|unchanged|as is)\b"
    r"|^(unchanged|same as before|no changes?( needed)?|omitted( for brevity)?)\.?$"
    r"|\bomitted for brevity\b"
    r"|\b(your|actual) (code|implementation|logic) (goes )?here\b"
    r"|\bimplementation goes here\b",
    re.IGNORECASE,
)
WIDE = 80
"""Characters that stand for a line where a file has few long ones."""
_BARE = re.compile(r"^\s*(\.\.\.|…)\s*$")


def lost_code(patch: Patch, instruction: str) -> str:
    """Why this patch must not be applied; empty when nothing seems to be lost."""
    return (
        elided(patch) or shrunk_or_grown(patch, instruction) or vanished(patch, instruction) or import_still_used(patch)
    )


def elided(patch: Patch) -> str:
    """A new line that stands for code that is not there."""
    known = {line.strip() for line in patch.old}
    for block in patch.blocks:
        removed = sum(bool(line.strip()) for line in patch.old[block.i1 : block.i2])
        for line in patch.new[block.j1 : block.j2]:
            comment = _COMMENT.match(line)
            stands_in = comment is not None and _ELISION.search(comment[1])
            # A bare ellipsis is a body in Python; in place of several lines it is an omission.
            if line.strip() not in known and (stands_in or (_BARE.match(line) and removed >= 2)):
                return f"the reply leaves code out ({line.strip()!r} stands for it)"
    return ""


def shrunk_or_grown(patch: Patch, instruction: str) -> str:
    """A size that no such instruction explains, or one line over and over."""
    old = [line.strip() for line in patch.old if line.strip()]
    new = [line.strip() for line in patch.new if line.strip()]
    if old and not new:
        return "the reply is empty"
    words = prose(instruction)
    share = 0.85 if _REMOVES.search(words) or _RESTRUCTURES.search(words) else 0.4
    if len(old) - len(new) > max(15, share * len(old)):
        return f"the file would shrink from {len(old)} to {len(new)} lines of code"
    if len(new) - len(old) > max(150, len(old)):
        return f"the file would grow from {len(old)} to {len(new)} lines of code"
    had, has = (sum(map(len, lines)) for lines in (old, new))  # a minified file is one line
    if had - has > max(15 * WIDE, share * had):
        return f"the file would shrink from {had:,} to {has:,} characters of code"
    if has - had > max(150 * WIDE, had):
        return f"the file would grow from {had:,} to {has:,} characters of code"
    more = Counter(line for line in new if len(line) >= 8)
    more.subtract(line for line in old if len(line) >= 8)
    for line, times in more.most_common(1):
        if times > 20 and times > 0.3 * max(1, len(new) - len(old)):
            return f"the reply repeats a line {times} times ({line[:60]!r})"
    return ""


def vanished(patch: Patch, instruction: str) -> str:
    """Functions and classes that are gone although the instruction does not speak of it.

    A name may go when the instruction names it, or when it turns up in another scope (a move). It may give way to
    another of its kind in the same scope (a rename) when the instruction speaks of names, of the new one, or of changes
    that bring new ones: callers elsewhere break by a rename that nobody asked for. A new class that the instruction
    names may swallow as many as it defines. An instruction that removes definitions, merges or rewrites may lose up to
    half of them; one that replaces or converts as many as are new. Its plain words count, not those in names of code
    (see :func:`vivace.agent.asked.prose`).
    """
    before_text, after_text = patch.source.text, patch.text
    language = language_of(patch.source.name, before_text)
    before = definitions(language, before_text)
    if not before:
        return ""
    after = definitions(language, after_text)
    if after is None:  # not parseable: the syntax check decides
        return ""
    known, found = {d.qualname for d in before}, {d.qualname for d in after}
    lost = list(_outermost([d for d in before if d.qualname not in found]))
    if not lost:
        return ""
    new = [d for d in after if d.qualname not in known]
    words = prose(instruction)
    removes, restructures = _REMOVES.search(words), _RESTRUCTURES.search(words)
    renames = removes or restructures or _CONVERTS.search(words) or _NAMES.search(words)
    room = Counter((d.scope, d.kind) for d in new if renames or _names(instruction, d.name))
    moved = {d.name for d in new}
    asked = [d for d in new if d.kind == "class" and _names(instruction, d.name)]
    swallowed = sum(d.scope == c.qualname or d is c for d in new for c in asked)
    spare = len(new)
    unexplained = []
    for definition in lost:
        slot = (definition.scope, definition.kind)
        if room[slot] > 0:
            room[slot] -= 1
            spare -= 1
        elif definition.name not in moved and not _names(instruction, definition.name):
            unexplained.append(definition)
    allowed = swallowed
    if restructures or (removes and _PARTS.search(words)):
        allowed = max(allowed, len(before) // 2)
    elif _CONVERTS.search(words):
        allowed = max(allowed, spare)
    if len(unexplained) <= allowed:
        return ""
    names = ", ".join(d.qualname for d in unexplained[:3]) + (" and more" if len(unexplained) > 3 else "")
    return f"{names} would be lost"


def import_still_used(patch: Patch) -> str:
    """A Python import that is gone while its name is still used and bound nowhere else."""
    if language_of(patch.source.name, patch.source.text) != "python":
        return ""
    old, new = python_tree(patch.source.text), python_tree(patch.text)
    if old is None or new is None:
        return ""
    gone = _imported(old) - _imported(new)
    if not gone:
        return ""
    used = {node.id for node in ast.walk(new) if isinstance(node, ast.Name)}
    lost = sorted((gone & used) - _bound(new))
    return f"the import of {lost[0]} would be lost, and it is still used" if lost else ""


def _imported(tree: ast.Module) -> set[str]:
    return {alias.asname or alias.name.split(".")[0] for node in imports_of(tree) for alias in node.names}


def _bound(tree: ast.Module) -> set[str]:
    """Every name that is bound anywhere, whatever its scope."""
    found = _imported(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.ExceptHandler):
            found.add(node.name or "")
    return found


def _names(instruction: str, name: str) -> bool:
    return re.search(rf"\b{re.escape(name)}\b", instruction) is not None


def _outermost(lost: list[Definition]) -> Iterator[Definition]:
    gone: set[str] = set()
    for definition in lost:
        if definition.scope not in gone:
            yield definition
        gone.add(definition.qualname)

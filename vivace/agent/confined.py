"""Asked to describe one definition, a small model describes its neighbours, too: what it did to them is put back.

A docstring, a comment or type hints for one function need no change elsewhere but an import at the top of the file, so
nothing that was asked for can be lost by it. Where more than one place is meant, nothing is put back.
"""

from __future__ import annotations

import re

from vivace.agent.extras import describes
from vivace.agent.linediff import diff
from vivace.agent.regions import named
from vivace.agent.workspace import SourceFile, split_lines

_MORE = re.compile(
    r"\b(?:all|each|every|both|everywhere|throughout|file|module|functions|methods|classes|and)\b", re.IGNORECASE
)
_IMPORTS = re.compile(r"\s*(?:from\s+\S+\s+)?import\b|\s*$")


def put_back_neighbours(source: SourceFile, after: str, instruction: str) -> tuple[str, str]:
    """``after`` without what it does outside of the definition that is to be described, and a note of that."""
    if not describes(instruction) or _MORE.search(instruction):
        return after, ""
    region = named(source, instruction)
    if region is None:
        return after, ""
    old, new = split_lines(source.text), split_lines(after)
    out: list[str] = []
    at = taken = 0
    for block in diff(old, new):
        out += old[at : block.i1]
        at = block.i2
        inside = block.i1 >= region.start - _comments_above(old, region.start) and block.i2 <= region.end
        lines = new[block.j1 : block.j2]
        if inside or (block.i1 == block.i2 and all(_IMPORTS.match(line) for line in lines)):
            out += lines
        else:
            out += old[block.i1 : block.i2]
            taken += block.lines
    if not taken:
        return after, ""
    out += old[at:]
    lines_of = f"{taken} line{'' if taken == 1 else 's'}"
    return "\n".join(out) + ("\n" if after.endswith("\n") else ""), f"put back {lines_of} outside of {region.qualname}"


def _comments_above(lines: list[str], start: int) -> int:
    """Lines directly above a definition where a comment about it may come."""
    count = 1 if start else 0
    while start - count > 0 and lines[start - count - 1].lstrip().startswith(("#", "//", "*", "/*")):
        count += 1
    return count

"""Old file and new text -> the smallest patch, with the original bytes of every line that was not edited."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vivace.agent.linediff import Block, blocks, diff
from vivace.agent.workspace import SourceFile, split_lines

CONTEXT = 3


@dataclass(frozen=True)
class Patch:
    """A change that is ready to be written. ``blocks`` count in ``old`` and ``new``: raw lines with their ends."""

    source: SourceFile
    data: bytes
    old: Sequence[str]
    new: Sequence[str]
    blocks: Sequence[Block]

    @property
    def lines_changed(self) -> int:
        """Added and removed lines; a replaced line counts once."""
        return sum(block.lines for block in self.blocks)

    @property
    def diff(self) -> str:
        """Unified diff that ``git apply`` and ``patch`` take; empty when nothing changes."""
        return unified(self.source.name, self.old, self.new, self.blocks)

    @property
    def text(self) -> str:
        """The new content as a model would see it."""
        return SourceFile(self.source.path, self.source.name, self.data).text


def make_patch(source: SourceFile, text: str, *, keep_trailing_space: bool = False) -> Patch:
    """Map ``text`` (LF, no BOM) onto the bytes of ``source``.

    Lines that the diff leaves alone keep their bytes, line end included; new lines get the file's prevailing line end.
    The BOM, and a final newline or its absence, stay as they were; an empty file gets a final newline.
    ``keep_trailing_space`` leaves a line alone that differs in nothing but trailing blanks, which models drop.
    """
    key = _trimmed if keep_trailing_space else str
    lines = split_lines(text)
    changed = diff([key(line) for line in source.lines], [key(line) for line in lines])
    origin = _origins(changed, len(source.lines), len(lines))
    new = [
        line + source.newline if at is None else _ended(source.raw_lines[at], source.newline)
        for line, at in zip(lines, origin, strict=True)
    ]
    if new and source.raw_lines and not source.final_newline:
        new[-1] = new[-1].removesuffix("\n")
        if new[-1].endswith("\r") and not lines[-1].endswith("\r"):
            new[-1] = new[-1][:-1]
        if not new[-1]:
            new.pop()
    old = list(source.raw_lines)
    if source.bom:
        old[:1] = [source.bom + line for line in old[:1]]
        new[:1] = [source.bom + line for line in new[:1]]
    data = ("".join(new) or source.bom).encode("utf-8")
    # The diff is told in raw lines: a last line that gains or loses its end has changed.
    pairs = [(at, j) for j, at in enumerate(origin) if at is not None and j < len(new) and old[at] == new[j]]
    return Patch(source, data, old, new, blocks(pairs, len(old), len(new)))


def unified(name: str, old: Sequence[str], new: Sequence[str], changed: Sequence[Block]) -> str:
    """A unified diff of raw lines with three lines of context."""
    if not changed:
        return ""
    out = [f"--- a/{name}\n", f"+++ b/{name}\n"]
    for group in _grouped(changed):
        i1, j1 = max(0, group[0].i1 - CONTEXT), max(0, group[0].j1 - CONTEXT)
        i2, j2 = min(len(old), group[-1].i2 + CONTEXT), min(len(new), group[-1].j2 + CONTEXT)
        # Context is common to both sides, so both are cut by the same amount.
        cut = min(group[0].i1 - i1, group[0].j1 - j1)
        i1, j1 = group[0].i1 - cut, group[0].j1 - cut
        cut = min(i2 - group[-1].i2, j2 - group[-1].j2)
        i2, j2 = group[-1].i2 + cut, group[-1].j2 + cut
        out.append(f"@@ -{_span(i1, i2)} +{_span(j1, j2)} @@\n")
        at = i1
        for block in group:
            out += [_shown(" ", line) for line in old[at : block.i1]]
            out += [_shown("-", line) for line in old[block.i1 : block.i2]]
            out += [_shown("+", line) for line in new[block.j1 : block.j2]]
            at = block.i2
        out += [_shown(" ", line) for line in old[at:i2]]
    return "".join(out)


def _trimmed(line: str) -> str:
    bare = line.rstrip(" \t\r")
    # A blank after a line continuation is an error that somebody may want to mend.
    return line if bare.endswith("\\") else bare


def _ended(raw: str, newline: str) -> str:
    return raw if raw.endswith("\n") else raw + newline


def _origins(changed: Sequence[Block], old_length: int, new_length: int) -> list[int | None]:
    """For each new line the old line that it is, or ``None``."""
    origin: list[int | None] = []
    at = 0
    for i1, i2, j1, j2 in (*changed, Block(old_length, old_length, new_length, new_length)):
        origin += range(at, i1)
        origin += [None] * (j2 - j1)
        at = i2
    return origin


def _grouped(changed: Sequence[Block]) -> list[list[Block]]:
    groups: list[list[Block]] = []
    for block in changed:
        if groups and block.i1 - groups[-1][-1].i2 <= 2 * CONTEXT:
            groups[-1].append(block)
        else:
            groups.append([block])
    return groups


def _span(start: int, end: int) -> str:
    length = end - start
    return f"{start + 1 if length else start}" + ("" if length == 1 else f",{length}")


def _shown(mark: str, line: str) -> str:
    return mark + line if line.endswith("\n") else f"{mark}{line}\n\\ No newline at end of file\n"

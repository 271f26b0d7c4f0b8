"""Write a new file. For one that exists the answer is the edit call that makes the same of it.

A model that writes whole files to change a few lines loses what it does not repeat. An error that holds the right call
turns it to editing (the idea is little-coder's, which measured it on small models).
"""

from __future__ import annotations

import json
from typing import Annotated

from msgspec import Meta, Struct

from vivace.agent.applier import Patch, make_patch
from vivace.agent.approvals.actions import Action, WriteFile
from vivace.agent.syntax import compare
from vivace.agent.tools.base import Context, Tool, ToolResult
from vivace.agent.tools.damage import damage, lost_comments
from vivace.agent.tools.files import create, diff_of_new, diff_text, source_of, stale, write
from vivace.agent.tools.paths import inside, shown
from vivace.agent.workspace import SourceFile, split_lines
from vivace.errors import UsageError, VivaceError

MOSTLY = 0.6
"""Share of the lines changed beyond which a whole replacement is the better advice."""


class WriteArguments(Struct, forbid_unknown_fields=True):
    path: Annotated[str, Meta(description="New file, relative to the workspace.")]
    content: Annotated[str, Meta(description="All of its text.")]
    replace: Annotated[bool, Meta(description="Replace a file that exists, as a whole.")] = False


class Write(Tool[WriteArguments]):
    """Makes folders as needed. ``replace`` takes the place of a file that the model has seen as it is now."""

    name = "write"
    description = "Create a new file. To change a file that exists use edit."
    arguments = WriteArguments
    changes = True

    def action(self, arguments: WriteArguments, context: Context) -> Action:
        return WriteFile(shown(context.root, inside(context.root, arguments.path)))

    async def run(self, arguments: WriteArguments, context: Context) -> ToolResult:
        path = inside(context.root, arguments.path)
        name = shown(context.root, path)
        content = arguments.content.replace("\r\n", "\n")
        if path.exists():
            return self._replace(arguments, content, context, source_of(context, name))
        text = content if content.endswith("\n") or not content else content + "\n"
        fault = compare(name, "", text).fault
        create(context, path, text.encode("utf-8"))
        lines = len(split_lines(text))
        note = f"; it does not parse ({fault})" if fault else ""
        data = {"path": name, "diff": diff_of_new(name, text), "new": True, "before": "", "after": text}
        return ToolResult(f"{name}: created, {lines} lines{note}", data=data, changed=(name,))

    def _replace(self, arguments: WriteArguments, content: str, context: Context, source: SourceFile) -> ToolResult:
        patch = make_patch(source, content)
        if not patch.blocks:
            raise UsageError(f"{source.name}: has this very text already", code="no_change", param="content")
        if not arguments.replace:
            raise _use_edit(source, patch, context)
        if why := stale(context, source):
            raise UsageError(f"{source.name}: {why}", hint="Read it first.", code="stale", param="path")
        if reason := damage(patch):
            raise VivaceError(f"{source.name}: {reason}", hint="Nothing was written.", code="refused")
        write(context, patch)
        lost = lost_comments(patch)
        notes = [f"comment removed: {comment[:100]}" for comment in lost[:5]]
        head = f"{source.name}: replaced, {patch.lines_changed} lines changed" + "".join(f"; {note}" for note in notes)
        data = {"path": source.name, "diff": patch.diff, "lost_comments": lost}
        data |= {"before": source.text, "after": patch.text}
        return ToolResult(f"{head}\n{diff_text(context, patch)}", data=data, changed=(source.name,))


def _use_edit(source: SourceFile, patch: Patch, context: Context) -> UsageError:
    whole = "To replace all of it, read it and set replace to true."
    call = edit_call(source.name, patch)
    changed = patch.lines_changed > MOSTLY * max(1, len(patch.old))
    if changed or context.count(call) > context.budget // 2:
        hint = f"Nothing was written. Use edit for a part of it. {whole}"
    else:
        hint = f"Nothing was written. The edit call that makes the same of it:\nedit {call}\n{whole}"
    return UsageError(f"{source.name}: exists ({len(patch.old)} lines)", hint=hint, code="exists", param="path")


def edit_call(name: str, patch: Patch) -> str:
    """The arguments of the edit that turns the old file into the new one; every search text is unique."""
    old = split_lines(patch.source.text)
    new = split_lines(patch.text)
    edits = []
    last = 0
    for n, block in enumerate(patch.blocks):
        limit = patch.blocks[n + 1].i1 if n + 1 < len(patch.blocks) else len(old)
        first, end = block.i1, block.i2
        # Widen until the text stands once, and is more than blank lines.
        while not _unique(old, first, end) and (first > last or end < limit):
            if first > last:
                first -= 1
            if not _unique(old, first, end) and end < limit:
                end += 1
        before = block.i1 - first
        behind = end - block.i2
        fresh = [*old[block.i1 - before : block.i1], *new[block.j1 : block.j2], *old[block.i2 : block.i2 + behind]]
        edits.append({"search": _joined(old[first:end]), "replace": _joined(fresh)})
        last = end
    return json.dumps({"path": name, "edits": edits}, ensure_ascii=False)


def _unique(lines: list[str], first: int, end: int) -> bool:
    wanted = lines[first:end]
    if not any(line.strip() for line in wanted):
        return False
    return sum(lines[n : n + len(wanted)] == wanted for n in range(len(lines) - len(wanted) + 1)) == 1


def _joined(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)

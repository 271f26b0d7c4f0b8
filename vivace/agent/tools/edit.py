"""Edit a file by search and replace: every block in one place, all of them or none, checked on the disk."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from vivace.agent.applier import make_patch
from vivace.agent.approvals.actions import Action, WriteFile
from vivace.agent.tools.base import Context, Tool, ToolResult
from vivace.agent.tools.blocks import nearest, replace
from vivace.agent.tools.damage import damage, lost_comments
from vivace.agent.tools.files import diff_text, source_of, stale, write
from vivace.agent.tools.paths import existing, shown
from vivace.agent.workspace import SourceFile, split_lines
from vivace.errors import UsageError, VivaceError


class Block(Struct, forbid_unknown_fields=True):
    search: Annotated[str, Meta(description="Lines as they stand in the file now, without line numbers.")]
    replace: Annotated[str, Meta(description="Lines to put in their place.")]


class EditArguments(Struct, forbid_unknown_fields=True):
    path: Annotated[str, Meta(description="File, relative to the workspace.")]
    edits: Annotated[list[Block], Meta(min_length=1, description="Applied in order, all or none.")]


class Edit(Tool[EditArguments]):
    """Refuses a file that the model has not seen as it is now: the answer then shows the lines in question, so that
    the same call can be made again at once."""

    name = "edit"
    description = "Change a file: each search text must stand in exactly one place of it."
    arguments = EditArguments
    changes = True

    def action(self, arguments: EditArguments, context: Context) -> Action:
        return WriteFile(shown(context.root, existing(context.root, arguments.path)))

    async def run(self, arguments: EditArguments, context: Context) -> ToolResult:
        source = source_of(context, existing(context.root, arguments.path).as_posix())
        if why := stale(context, source):
            raise self._stale(arguments, context, source, why)
        text, rungs = source.text, []
        for n, block in enumerate(arguments.edits, 1):
            try:
                change = replace(source.name, text, _unix(block.search), _unix(block.replace))
            except UsageError as error:
                if len(arguments.edits) > 1:
                    error.message = f"edit {n} of {len(arguments.edits)}: {error.message}"
                raise
            text = change.text
            rungs.append(change.rung)
        patch = make_patch(source, text)
        if not patch.blocks:
            raise UsageError(f"{source.name}: the edits change nothing", code="no_change", param="edits")
        if reason := damage(patch):
            raise VivaceError(f"{source.name}: {reason}", hint="Nothing was written.", code="refused")
        write(context, patch)
        lost = lost_comments(patch)
        notes = [f"found by {rung}" for rung in dict.fromkeys(rungs) if rung not in ("exact", "part of a line")]
        notes += [f"comment removed: {comment[:100]}" for comment in lost[:5]]
        head = f"{source.name}: {patch.lines_changed} lines changed" + (f" ({'; '.join(notes)})" if notes else "")
        data = {"path": source.name, "diff": patch.diff, "rungs": rungs, "lost_comments": lost}
        data |= {"before": source.text, "after": patch.text}
        return ToolResult(f"{head}\n{diff_text(context, patch)}", data=data, changed=(source.name,))

    def _stale(self, arguments: EditArguments, context: Context, source: SourceFile, why: str) -> VivaceError:
        lines = split_lines(source.text)
        at = nearest(lines, split_lines(_unix(arguments.edits[0].search)) or [""]) or 0
        room = 40
        first, last = max(0, at - room // 4), min(len(lines), at + room)
        context.seen.note(source.name, source.sha256, first + 1, last)
        excerpt = "\n".join(f"{n + 1}\t{lines[n][:300]}" for n in range(first, last))
        return UsageError(
            f"{source.name}: {why}",
            hint=f"Nothing was written. These lines are there now ({len(lines):,} in all):\n{excerpt}\n"
            "If the edit still fits, make the same call again.",
            code="stale",
            param="path",
        )


def _unix(text: str) -> str:
    """Models that read CRLF files sometimes answer in kind; line ends are the file's own in any case."""
    return text.replace("\r\n", "\n")

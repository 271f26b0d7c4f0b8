"""A tool that changes one file from a description: for models that cannot write search texts, and when edits fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from msgspec import Meta, Struct

from vivace.agent.approvals.actions import Action, WriteFile
from vivace.agent.edit import apply, edit
from vivace.agent.result import EditRequest, no_rules
from vivace.agent.tools.base import Context, Tool, ToolResult
from vivace.agent.tools.files import diff_text, remember, source_of
from vivace.agent.tools.paths import existing, shown
from vivace.agent.workspace import SourceFile
from vivace.errors import VivaceError
from vivace.protocol.contracts import ModelCard, Service


class RewriteArguments(Struct, forbid_unknown_fields=True):
    path: Annotated[str, Meta(description="File, relative to the workspace.")]
    instruction: Annotated[str, Meta(description="What to change, with the names of functions or classes.")]


class Rewrite(Tool[RewriteArguments]):
    """The whole file or function is written anew by the model and cut down to the smallest diff."""

    name = "rewrite"
    description = "Change a file by description instead of search and replace. Use it when edit fails."
    arguments = RewriteArguments
    changes = True

    def __init__(
        self,
        service: Callable[[], Service],
        model: Callable[[], str],
        rules: Callable[[ModelCard, SourceFile], str] = no_rules,
    ) -> None:
        self.service = service
        self.model = model
        self.rules = rules

    def action(self, arguments: RewriteArguments, context: Context) -> Action:
        return WriteFile(shown(context.root, existing(context.root, arguments.path)))

    async def run(self, arguments: RewriteArguments, context: Context) -> ToolResult:
        source = source_of(context, existing(context.root, arguments.path).as_posix())
        request = EditRequest(
            [source.name],
            arguments.instruction,
            self.model(),
            root=context.root,
            dialect="whole-file",
            rules=self.rules,
        )
        result = await edit(self.service(), request, [source], lambda event: None)
        outcome = result.files[0]
        if outcome.patch is None or not result.patches:
            raise VivaceError(f"{source.name}: no change came of it ({outcome.reason})", code="no_change")
        apply(result)
        remember(context, source.name, outcome.patch.data)
        text = f"{source.name}: {outcome.patch.lines_changed} lines changed\n{diff_text(context, outcome.patch)}"
        data = {"path": source.name, "diff": outcome.patch.diff, "before": source.text, "after": outcome.patch.text}
        data |= {"model": result.card.name, "instruction": arguments.instruction}
        return ToolResult(text, data=data, changed=(source.name,))

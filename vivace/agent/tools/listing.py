"""List files as a tree: nearest first, folders opened while the budget lasts."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from vivace.agent.repomap.files import project_files, walk_all
from vivace.agent.tools.base import Context, Tool, ToolResult
from vivace.agent.tools.clip import fitting
from vivace.agent.tools.paths import existing, shown
from vivace.errors import UsageError


class ListArguments(Struct, forbid_unknown_fields=True):
    path: Annotated[str, Meta(description="Folder, relative to the workspace.")] = "."
    depth: Annotated[int, Meta(description="Levels to open; without it as many as fit.", ge=1)] | None = None


class Folder:
    """A folder of the tree; ``files`` counts everything below."""

    def __init__(self) -> None:
        self.folders: dict[str, Folder] = {}
        self.names: list[str] = []
        self.files = 0

    def add(self, path: str) -> None:
        """Take in one file."""
        folder = self
        *parents, name = path.split("/")
        folder.files += 1
        for parent in parents:
            folder = folder.folders.setdefault(parent, Folder())
            folder.files += 1
        folder.names.append(name)

    def lines(self, depth: int, indent: str = "") -> list[str]:
        """The tree; folders below ``depth`` levels stay closed and tell how many files they hold."""
        out = []
        for name, folder in sorted(self.folders.items()):
            # A chain of folders with nothing else in them takes one line.
            while len(folder.folders) == 1 and not folder.names:
                ((inner, folder),) = folder.folders.items()
                name = f"{name}/{inner}"
            if depth > 1:
                out += [f"{indent}{name}/", *folder.lines(depth - 1, indent + "  ")]
            else:
                out.append(f"{indent}{name}/ ({folder.files:,} file{'s' if folder.files != 1 else ''})")
        return out + [f"{indent}{name}" for name in sorted(self.names)]


class List(Tool[ListArguments]):
    """Ignored files are left out, unless the folder named is itself ignored."""

    name = "list"
    description = "List the files of a folder as a tree, without those that .gitignore names."
    arguments = ListArguments

    async def run(self, arguments: ListArguments, context: Context) -> ToolResult:
        path = existing(context.root, arguments.path)
        name = shown(context.root, path)
        if not path.is_dir():
            raise UsageError(f"{name}: is a file; use read", code="not_a_folder", param="path")
        prefix = "" if name == "." else f"{name}/"
        files = [file.removeprefix(prefix) for file in project_files(context.root) if file.startswith(prefix)]
        note = ""
        if not files:
            files, note = walk_all(path), " (ignored by git)"
        tree = Folder()
        for file in files:
            tree.add(file)
        if not files:
            return ToolResult(f"{name}/: no files", data={"path": name, "files": 0, "depth": 0})
        depth, lines = _deepest(tree, arguments.depth, context)
        fit = fitting(lines, max(1, context.budget - 40), context.count)
        more = [f"[... {len(lines) - fit:,} more entries: list a folder of it]"] if fit < len(lines) else []
        head = f"{name}/: {tree.files:,} file{'s' if tree.files != 1 else ''}{note}"
        data = {"path": name, "files": tree.files, "depth": depth}
        return ToolResult("\n".join([head, *lines[:fit], *more]), data=data)


def _deepest(tree: Folder, wanted: int | None, context: Context) -> tuple[int, list[str]]:
    """The deepest tree that fits; the wanted one whether it fits or not."""
    if wanted is not None:
        return wanted, tree.lines(wanted)
    depth, lines = 1, tree.lines(1)
    while depth < 64:
        deeper = tree.lines(depth + 1)
        if len(deeper) == len(lines) or fitting(deeper, context.budget - 40, context.count) < len(deeper):
            break
        depth, lines = depth + 1, deeper
    return depth, lines

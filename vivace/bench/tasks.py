"""The tasks of the speed benchmark: fixed texts, fixed prompts, and a check of each answer.

A run counts only if its output is whole (one closed code block, ended by the model) and compiles. Whether the change
that was asked for is really there is reported beside that: it judges the model, not the engine.
"""

from __future__ import annotations

import ast
import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from vivace.agent.reply import ReplyParser, fence_for
from vivace.errors import UsageError

SYSTEM = (
    "You edit code. Reply with the complete updated code in one code block and nothing else. "
    "Change only what the instruction asks for; copy every other line exactly."
)
FREE_SYSTEM = "You are a helpful assistant."
"""Prompts are the benchmark's own, so that figures of different versions can be compared."""

Change = Literal["rename", "hints", "exception", "any"]


@dataclass(frozen=True)
class Check:
    """What the edited file must show: ``new`` in place of ``old``, or hints on the function ``new``."""

    change: Change
    old: str = ""
    new: str = ""


@dataclass(frozen=True)
class Task:
    """``before`` is the file to rewrite whole; empty for free text, which has no draft to copy from."""

    id: str
    instruction: str
    path: str = ""
    before: str = ""
    check: Check = Check("any")
    max_output_tokens: int = 0
    """A limit in tokens that ends free text; 0 for edits, whose limit comes from the file's size."""

    @property
    def edits(self) -> bool:
        return bool(self.before)

    @property
    def block(self) -> str:
        """The file in its code fence: how it is shown, and what the answer will mostly be."""
        fence = fence_for(self.before)
        return f"{fence}python\n{self.before}{fence}"

    @property
    def user(self) -> str:
        """The user message."""
        if not self.edits:
            return self.instruction
        fence = fence_for(self.before)
        return (
            f"{self.path}:\n{self.block}\n\n{self.instruction}\n\n"
            f"Reply with the whole updated file in one {fence}python block."
        )

    def instructions(self, nonce: str) -> str:
        """The system message. ``nonce`` stands first, so that no cache knows the prompt of another round."""
        return f"Session {nonce}. {SYSTEM if self.edits else FREE_SYSTEM}"


@dataclass(frozen=True)
class Verdict:
    """``fault`` is empty when the run counts; ``changed`` is None for free text."""

    fault: str = ""
    changed: bool | None = None


def judge(task: Task, text: str, ending: str) -> Verdict:
    """Check an answer. ``ending`` is ``stop`` when the model ended it, ``length`` when the limit did."""
    if not task.edits:
        if ending not in ("stop", "length"):
            return Verdict(f"ended by {ending}")
        return Verdict("" if text.strip() else "no text")
    if ending != "stop":
        return Verdict(f"ended by {ending}", changed=False)
    parser = ReplyParser(fence_for(task.before))
    parser.feed(text)
    reply = parser.finish()
    if reply.state != "closed":
        return Verdict("no code block" if reply.state == "none" else "the code block is not closed", changed=False)
    tree = _parse(reply.code)
    if tree is None:
        return Verdict("does not compile", changed=False)
    # A model that leaves functions out has not rewritten the file.
    missing = _definitions(_parse(task.before), task.check) - _definitions(tree, task.check)
    if missing:
        return Verdict(f"not whole: {sorted(missing)[0]} is missing", changed=False)
    return Verdict(changed=has_changed(task, reply.code, tree))


def has_changed(task: Task, code: str, tree: ast.AST) -> bool:
    """Whether the change that the task asks for is in ``code``."""
    check = task.check
    match check.change:
        case "rename":
            wanted = _mentions(_parse(task.before), check.old)
            return not _mentions(tree, check.old) and _mentions(tree, check.new) == wanted
        case "hints":
            found = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == check.new]
            return bool(found) and all(_hinted(function) for function in found)
        case "exception":
            return not _raised(tree, check.old) and _raised(tree, check.new) == _raised(
                _parse(task.before), check.old
            ) + _raised(_parse(task.before), check.new)
        case "any":
            return code.strip("\n") != task.before.strip("\n")


def load_tasks(folder: Path) -> list[Task]:
    """The tasks of ``tasks.json`` in ``folder``. Raises :class:`UsageError` where it is not there or is damaged."""
    try:
        rows = json.loads((folder / "tasks.json").read_text(encoding="utf-8"))
        return [_task(row, folder) for row in rows]
    except OSError as error:
        raise UsageError(
            f"The benchmark's texts are not in {folder}: {error.strerror}",
            hint="Run it in a checkout of vivace, or say --data.",
            param="data",
        ) from error
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{folder / 'tasks.json'} is damaged: {error}", param="data") from error


def load_long_edits(path: Path, count: int, most_characters: int) -> list[Task]:
    """The first ``count`` tasks of a long-edit file whose text has at most ``most_characters``."""
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        fitting = [row for row in rows if len(row["before"]) <= most_characters]
        return [Task(row["id"], row["instruction"], row["path"], row["before"]) for row in fitting[:count]]
    except OSError as error:
        raise UsageError(f"Cannot read {path}: {error.strerror}", param="long-edit") from error
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{path} is no file of long edits: {error}", param="long-edit") from error


def _task(row: dict[str, Any], folder: Path) -> Task:
    before = (folder / row["file"]).read_text(encoding="utf-8") if "file" in row else ""
    return Task(
        id=row["id"],
        instruction=row["instruction"],
        path=row.get("path", ""),
        before=before,
        check=Check(**row.get("check", {"change": "any"})),
        max_output_tokens=row.get("max_output_tokens", 0),
    )


def _parse(code: str) -> ast.AST | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(code, "<answer>", "exec", dont_inherit=True)
            return ast.parse(code)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def _definitions(tree: ast.AST | None, check: Check) -> set[str]:
    """Names of functions and classes, those that a task renames left out."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    names = {node.name for node in ast.walk(tree) if isinstance(node, kinds)} if tree else set()
    return names - {check.old, check.new}


def _mentions(tree: ast.AST | None, name: str) -> int:
    """How often ``name`` is defined or used as a name."""
    nodes = ast.walk(tree) if tree else iter(())
    return sum(name in (getattr(node, "id", None), getattr(node, "name", None)) for node in nodes)


def _hinted(function: ast.FunctionDef) -> bool:
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return function.returns is not None and all(a.annotation for a in arguments if a.arg not in ("self", "cls"))


def _raised(tree: ast.AST | None, name: str) -> int:
    """How many ``raise`` statements name the exception."""
    nodes = ast.walk(tree) if tree else iter(())
    return sum(isinstance(node, ast.Raise) and node.exc is not None and _mentions(node.exc, name) > 0 for node in nodes)

"""Edits to answer: those of the task set where it is there, filled up with functions of the standard library."""

from __future__ import annotations

import ast
import json
import sysconfig
from pathlib import Path

from vivace.dialects.chat import ChatDialect
from vivace.engine.messages import Start
from vivace.models.tokenizer import Tokenizer
from vivace.protocol.items import Message

TASKS = Path(__file__).parents[3] / "shared" / "data" / "tasks" / "edit.jsonl"
INSTRUCTIONS = (
    "Add type annotations to the function.",
    "Rename the first parameter to `value` everywhere.",
    "Return None early when the first argument is empty.",
    "Add a one-line docstring.",
    "Print the arguments before the last statement.",
)


def edits(count: int, own: int = 25) -> list[tuple[str, str]]:
    """Instruction and file, ``count`` of them, at least ``own`` from the standard library."""
    tasks = [json.loads(line) for line in TASKS.read_text("utf-8").splitlines()] if TASKS.exists() else []
    made = [(task["instruction"], task["before"]) for task in tasks[: count - own]]
    functions = _functions()
    return made + [(INSTRUCTIONS[n % 5], functions[n]) for n in range(count - len(made))]


def _functions() -> list[str]:
    """Short functions of the standard library, one a file."""
    found = []
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        source = path.read_text("utf-8")
        short = (
            text
            for node in ast.parse(source).body
            if isinstance(node, ast.FunctionDef) and (text := ast.get_source_segment(source, node))
            if 8 <= text.count("\n") <= 16 and text.isascii()
        )
        found += [text + "\n" for text in short][:1]
    return found


def start_of(tokenizer: Tokenizer, instruction: str, text: str, *, draft: bool, room: int) -> Start:
    """The request of one edit: the whole file back, in a fence; at most ``room`` tokens."""
    dialect = ChatDialect(tokenizer)
    fenced = f"```python\n{text}```"
    asked = f"{instruction} Answer with the whole file in a code fence and nothing else.\n\n{fenced}"
    return Start(
        id=0,
        tokens=dialect.prompt([Message("user", asked)]),
        reference=dialect.reference(fenced),
        end=dialect.end_tokens,
        max_tokens=room,
        draft=draft,
    )

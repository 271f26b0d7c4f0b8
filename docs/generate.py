"""Write docs/commands.md and docs/settings.md from the code. A test fails when they are not what this writes."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import typer.main

from vivace import settings
from vivace.cli import app

DOCS = Path(__file__).parent


def commands() -> str:
    """Every command with its arguments and options."""
    parts = ["# Commands", "", "Made by `python docs/generate.py` from the code."]

    def visit(command: Any, path: str) -> None:
        if not hasattr(command, "commands"):
            parts.extend(
                ["", f"## {path}", "", command.help or "", "", "| argument or option | meaning |", "|---|---|"]
            )
            parts.extend(f"| `{_names(parameter)}` | {_meaning(parameter)} |" for parameter in command.params)
        for name, child in getattr(command, "commands", {}).items():
            visit(child, f"{path} {name}")

    visit(typer.main.get_command(app), "vivace")
    return "\n".join(parts) + "\n"


def _names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name.upper())
    value = "" if parameter.is_flag else f" {parameter.name.upper()}"
    return ", ".join(parameter.opts) + value


def _meaning(parameter: Any) -> str:
    shown = parameter.default not in (None, False, (), "") and parameter.param_type_name == "option"
    return (parameter.help or "") + (f" Default: {parameter.default}." if shown else "")


def settings_page() -> str:
    """Every field of the settings object with the docstring below it."""
    tree = ast.parse(inspect.getsource(settings.Settings)).body[0]
    assert isinstance(tree, ast.ClassDef)
    rows = []
    for field, text in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            name = ast.unparse(field.target)
            rows.append(f"| `VIVACE_{name.upper()}` | {_one_line(str(text.value.value))} |")
    head = [
        "# Settings",
        "",
        "Made by `python docs/generate.py` from the code.",
        "",
        "| variable | meaning |",
        "|---|---|",
    ]
    return "\n".join(head + rows) + "\n"


def _one_line(text: str) -> str:
    return " ".join(text.replace("``", "`").split())


PAGES = {"commands.md": commands, "settings.md": settings_page}

if __name__ == "__main__":
    for name, make in PAGES.items():
        (DOCS / name).write_text(make(), encoding="utf-8")

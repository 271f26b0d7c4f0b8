"""The rules of one workspace in a TOML file that people can read and change.

    [[command]]
    prefix = ["npm", "run", "test"]

    [[command]]
    prefix = ["docker"]
    effect = "deny"

    [[path]]
    glob = "docs/**"

    [[tool]]
    name = "github/search_issues"

The file lies outside the workspace: what a command may write must not decide what it may do.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Literal, TypeVar

import msgspec
from msgspec import Struct

from vivace.atomic import write_atomic
from vivace.errors import VivaceError

T = TypeVar("T")
Effect = Literal["allow", "deny"]


class CommandRule(Struct, frozen=True, forbid_unknown_fields=True):
    """Commands whose first words are these. ``env`` are the assignments before it that are allowed with it."""

    prefix: tuple[str, ...]
    effect: Effect = "allow"
    env: tuple[str, ...] = ()


class PathRule(Struct, frozen=True, forbid_unknown_fields=True):
    """Writing (or, for a secret, reading) files by their path in the workspace; ``**`` crosses folders."""

    glob: str
    effect: Effect = "allow"
    access: Literal["read", "write"] = "write"


class ToolRule(Struct, frozen=True, forbid_unknown_fields=True):
    """A tool of an MCP server, as ``server/tool``; ``server/*`` for all of them."""

    name: str
    effect: Effect = "allow"


class Rules(Struct, frozen=True, forbid_unknown_fields=True):
    """Everything in the file."""

    command: tuple[CommandRule, ...] = ()
    path: tuple[PathRule, ...] = ()
    tool: tuple[ToolRule, ...] = ()


class Book:
    """The rules of a workspace, read once and written whenever one is added."""

    def __init__(self, file: Path | None = None) -> None:
        self.file = file
        self.rules = _read(file) if file is not None else Rules()

    def add(self, rule: CommandRule | PathRule | ToolRule) -> None:
        """Remember a rule; one that is there already changes nothing. Rules that others added meanwhile are kept."""
        if self.file is not None:
            self.rules = _read(self.file)
        rules = self.rules
        if isinstance(rule, CommandRule):
            rules = msgspec.structs.replace(rules, command=_with(rules.command, rule))
        elif isinstance(rule, PathRule):
            rules = msgspec.structs.replace(rules, path=_with(rules.path, rule))
        else:
            rules = msgspec.structs.replace(rules, tool=_with(rules.tool, rule))
        self.rules = rules
        if self.file is not None:
            _write(self.file, encode(rules))


def book_path(state_dir: Path, root: Path) -> Path:
    """Where the rules of a workspace are kept."""
    digest = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:16]
    return state_dir / "approvals" / f"{root.resolve().name}-{digest}.toml"


def encode(rules: Rules) -> str:
    """The file's text."""
    out = ['# What may be done in this workspace without asking. A rule with effect = "deny" always wins.']
    for table, entries in (("command", rules.command), ("path", rules.path), ("tool", rules.tool)):
        for entry in entries:
            out += ["", f"[[{table}]]"]
            for name, value in msgspec.to_builtins(entry).items():
                if (
                    value
                    and not (name == "effect" and value == "allow")
                    and not (name == "access" and value == "write")
                ):
                    out.append(f"{name} = {_value(value)}")
    return "\n".join(out) + "\n"


def _with(rules: tuple[T, ...], rule: T) -> tuple[T, ...]:
    return rules if rule in rules else (*rules, rule)


def _value(value: object) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    # A JSON string is a basic string of TOML, but for DEL.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def _read(file: Path) -> Rules:
    try:
        return msgspec.toml.decode(file.read_bytes(), type=Rules)
    except FileNotFoundError:
        return Rules()
    except (msgspec.DecodeError, ValueError, OSError) as error:
        raise VivaceError(
            f"{file}: cannot be read ({getattr(error, 'strerror', None) or error})",
            hint="Mend the file or remove it; until then nothing that it allowed is allowed.",
            code="bad_approvals",
        ) from None


def _write(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomic(file, text.encode())
    except OSError as error:
        raise VivaceError(f"{file}: cannot be written ({error.strerror})", code="write_failed") from None

"""Read a file: numbered lines, a range at a time, and a note of what was shown."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from vivace.agent.approvals.actions import Action, ReadFile
from vivace.agent.tools.base import Context, Tool, ToolResult
from vivace.agent.tools.clip import clip_line, fitting
from vivace.agent.tools.paths import existing, shown
from vivace.agent.workspace import BOM, MAX_BYTES
from vivace.errors import UsageError

_SLACK = 60
"""Tokens for the line that says which lines these are."""


class ReadArguments(Struct, forbid_unknown_fields=True):
    path: Annotated[str, Meta(description="File, relative to the workspace.")]
    start: Annotated[int, Meta(description="First line, from 1.", ge=1)] = 1
    lines: Annotated[int, Meta(description="How many lines; without it as many as fit.", ge=1)] | None = None


class Read(Tool[ReadArguments]):
    """Shows lines with their numbers. A file that is binary, too large or not UTF-8 is said to be so."""

    name = "read"
    description = "Read a text file with line numbers. Long files come in parts: give start and lines."
    arguments = ReadArguments

    def action(self, arguments: ReadArguments, context: Context) -> Action:
        return ReadFile(shown(context.root, existing(context.root, arguments.path)))

    async def run(self, arguments: ReadArguments, context: Context) -> ToolResult:
        path = existing(context.root, arguments.path)
        name = shown(context.root, path)
        raw = load(path, name)
        text, note = decode(raw)
        lines = [line.removesuffix("\r") for line in text.split("\n")]
        if lines[-1] == "":
            lines.pop()
        total = len(lines)
        if arguments.start > max(1, total):
            raise UsageError(f"{name}: has {total:,} lines", code="no_such_line", param="start")
        first = arguments.start
        last = total if arguments.lines is None else min(total, first + arguments.lines - 1)
        numbered = [f"{n}\t{clip_line(lines[n - 1])}" for n in range(first, last + 1)]
        numbered = numbered[: fitting(numbered, max(1, context.budget - _SLACK), context.count)]
        if not numbered and total:
            numbered = [f"{first}\t{clip_line(lines[first - 1])[: context.budget]} [... cut]"]
        last = first + len(numbered) - 1
        sha256 = hashlib.sha256(raw).hexdigest()
        repeated = (
            (sight := context.seen.get(name)) is not None and sight.sha256 == sha256 and sight.covers(first, last)
        )
        context.seen.note(name, sha256, first, last)
        head = f"{name}: lines {first}-{last} of {total:,}{note}" if total else f"{name}: empty{note}"
        more = [f"[{total - last:,} more lines: read with start={last + 1}]"] if last < total else []
        data = {"path": name, "first": first, "last": last, "total": total, "sha256": sha256, "repeated": repeated}
        return ToolResult("\n".join([head, *numbered, *more]), data=data)


def load(path: Path, name: str) -> bytes:
    """The bytes of a file. Raises :class:`UsageError` for a folder, a device, and more bytes than any window holds."""
    if not path.is_file():
        kind = "a folder; use list" if path.is_dir() else "not a regular file"
        raise UsageError(f"{name}: is {kind}", code="not_a_file", param="path")
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise UsageError(
                f"{name}: {size:,} bytes, too large to read whole",
                hint="Search it, or print a part of it with a shell command.",
                code="too_large",
                param="path",
            )
        raw = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror}", code="unreadable", param="path") from None
    if b"\0" in raw:
        raise UsageError(f"{name}: is binary ({len(raw):,} bytes)", code="binary", param="path")
    return raw


def decode(raw: bytes) -> tuple[str, str]:
    """The text, and what there is to say about it."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        return raw.decode("utf-8", "replace"), f" (not UTF-8, from line {line}; it cannot be edited)"
    note = " (CRLF line ends)" if "\r\n" in text else ""
    return text.removeprefix(BOM), note

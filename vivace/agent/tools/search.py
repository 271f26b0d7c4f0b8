"""Search file contents: ripgrep where it is installed, the same in Python where it is not."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from vivace.agent.approvals.secrets import is_secret
from vivace.agent.ignoring import Rules
from vivace.agent.repomap.files import project_files, walk_all
from vivace.agent.tools.base import Context, Tool, ToolResult
from vivace.agent.tools.clip import fitting
from vivace.agent.tools.paths import existing, shown
from vivace.agent.workspace import MAX_BYTES
from vivace.errors import UsageError, VivaceError

SECONDS = 20.0
MAX_LINES = 2000
"""Matching lines after which a search ends; no budget holds more."""
LINE = 300
"""Characters of a line that are shown."""


class SearchArguments(Struct, forbid_unknown_fields=True):
    pattern: Annotated[str, Meta(description="Text to find.")]
    regex: Annotated[bool, Meta(description="The pattern is a regular expression.")] = False
    path: Annotated[str, Meta(description="File or folder to search in.")] = "."
    glob: Annotated[str, Meta(description="Only files like this, such as *.py.")] = ""
    ignore_case: bool = False
    context: Annotated[int, Meta(description="Lines shown around each match.", ge=0, le=20)] = 0


class Line(Struct, frozen=True):
    """A line of the answer; ``hit`` when it matches, otherwise context."""

    number: int
    text: str
    hit: bool


Found = dict[str, list[Line]]
"""Path -> lines in order."""


class Search(Tool[SearchArguments]):
    """Ignored, binary and secret files are left out. ``ripgrep`` is the program; ``None`` searches in Python."""

    name = "search"
    description = "Find text or a regular expression in the files of the workspace."
    arguments = SearchArguments

    def __init__(self, ripgrep: str | None = "rg") -> None:
        self.ripgrep = shutil.which(ripgrep) if ripgrep else None

    async def run(self, arguments: SearchArguments, context: Context) -> ToolResult:
        if not arguments.pattern or "\n" in arguments.pattern or "\0" in arguments.pattern:
            raise UsageError("the pattern is empty or longer than a line", code="bad_pattern", param="pattern")
        folder = existing(context.root, arguments.path)
        where = shown(context.root, folder)
        if self.ripgrep:
            found, cut = await _by_ripgrep(self.ripgrep, arguments, context.root, where)
        else:
            found, cut = await asyncio.to_thread(_by_python, arguments, context.root, where)
        hits = sum(line.hit for lines in found.values() for line in lines)
        if not hits:
            return ToolResult(f"no match for {arguments.pattern!r} in {where}", data={"matches": 0, "files": 0})
        text, left = _rendered(found, context)
        at_least = "at least " if cut else ""
        files = f"{len(found):,} file{'s' if len(found) != 1 else ''}"
        head = f"{at_least}{hits:,} matching line{'s' if hits != 1 else ''} in {files}"
        more = [f"[... {left:,} more lines: search a folder or a narrower pattern]"] if left else []
        data = {"matches": hits, "files": len(found), "cut": cut, "left_out": left}
        return ToolResult("\n".join([head, *text, *more]), data=data)


def _rendered(found: Found, context: Context) -> tuple[list[str], int]:
    """``path``, then ``number:line`` for a match and ``number-line`` around it. Where not all fits, every file gets
    its first matches before any gets its last."""
    per_file = max(map(len, found.values()))
    while True:
        out: list[str] = []
        left = 0
        for path, lines in found.items():
            out.append(path)
            before = 0
            for line in lines[:per_file]:
                if before and line.number > before + 1 and not line.hit:
                    out.append("--")
                before = line.number
                text = line.text if len(line.text) <= LINE else line.text[:LINE] + " [...]"
                out.append(f"{line.number}{':' if line.hit else '-'}{text}")
            left += max(0, len(lines) - per_file)
        fit = fitting(out, context.budget - 60, context.count)
        if fit == len(out) or per_file == 1:
            return out[:fit], left + len(out) - fit
        per_file = max(1, per_file // 2)


async def _by_ripgrep(program: str, arguments: SearchArguments, root: Path, where: str) -> tuple[Found, bool]:
    command = [
        program,
        "--json",
        "--no-config",
        "--hidden",
        "--crlf",
        "--no-messages",
        "--sort",
        "path",
        "--glob",
        "!.git",
    ]
    command += [] if arguments.regex else ["--fixed-strings"]
    command += ["--ignore-case"] if arguments.ignore_case else []
    command += ["--context", str(arguments.context)] if arguments.context else []
    command += ["--glob", arguments.glob] if arguments.glob else []
    command += ["--max-filesize", str(MAX_BYTES), "--regexp", arguments.pattern, "--", where]
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=root,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
        limit=MAX_BYTES * 2,
    )
    found: Found = {}
    cut = False
    try:
        async with asyncio.timeout(SECONDS):
            assert process.stdout is not None and process.stderr is not None
            hits = 0
            async for raw in process.stdout:
                hits += _take(json.loads(raw), found)
                if hits >= MAX_LINES:
                    cut = True
                    break
            if not cut:
                fault = (await process.stderr.read()).decode("utf-8", "replace").strip()
                if await process.wait() == 2 and fault and not found:
                    raise UsageError(f"bad pattern: {fault.splitlines()[-1]}", code="bad_pattern", param="pattern")
    except TimeoutError:
        cut = True
    except ValueError as error:  # a line longer than the limit
        raise VivaceError(f"the search failed: {error}", code="search_failed") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    return found, cut


def _take(event: dict[str, Any], found: Found) -> int:
    """Note a line of ripgrep's JSON; gives 1 for a match."""
    if event["type"] not in ("match", "context"):
        return 0
    data = event["data"]
    path, text = data["path"].get("text"), data["lines"].get("text")
    if path is None or text is None or is_secret(path):  # not UTF-8
        return 0
    hit = event["type"] == "match"
    line = Line(data["line_number"], text.rstrip("\r\n"), hit)
    found.setdefault(path.removeprefix("./"), []).append(line)
    return int(hit)


def _by_python(arguments: SearchArguments, root: Path, where: str) -> tuple[Found, bool]:
    flags = re.IGNORECASE if arguments.ignore_case else 0
    try:
        pattern = re.compile(arguments.pattern if arguments.regex else re.escape(arguments.pattern), flags)
    except re.error as error:
        raise UsageError(f"bad pattern: {error}", code="bad_pattern", param="pattern") from None
    deadline = time.monotonic() + SECONDS
    found: Found = {}
    hits = 0
    for name in _candidates(arguments, root, where):
        if time.monotonic() > deadline:
            return found, True
        lines = list(_in_file(root / name, pattern, arguments.context))
        if lines:
            found[name] = lines
            hits += sum(line.hit for line in lines)
        if hits >= MAX_LINES:
            return found, True
    return found, False


def _candidates(arguments: SearchArguments, root: Path, where: str) -> Iterator[str]:
    prefix = "" if where == "." else f"{where}/"
    if (root / where).is_file():
        names = [where]
    else:
        names = [name for name in project_files(root) if name.startswith(prefix)]
        names = names or [f"{prefix}{name}" for name in walk_all(root / where)]
    wanted = Rules(None, "", arguments.glob) if arguments.glob else None
    for name in names:
        if is_secret(name) or (root / name).is_symlink():
            continue
        if wanted is None or wanted.ignored(name, is_folder=False):
            yield name


def _in_file(path: Path, pattern: re.Pattern[str], around: int) -> Iterator[Line]:
    try:
        if path.stat().st_size > MAX_BYTES:
            return
        raw = path.read_bytes()
    except OSError:
        return
    if b"\0" in raw:
        return
    lines = [line.removesuffix("\r") for line in raw.decode("utf-8", "replace").split("\n")]
    if lines[-1] == "":
        lines.pop()
    hits = [n for n, line in enumerate(lines) if pattern.search(line)]
    matching = set(hits)
    wanted = {m for n in hits for m in range(max(0, n - around), min(len(lines), n + around + 1))}
    for n in sorted(wanted):
        yield Line(n + 1, lines[n], n in matching)

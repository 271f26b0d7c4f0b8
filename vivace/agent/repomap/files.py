"""The files of a project: what git tracks or would track, else everything that no ``.gitignore`` names."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from vivace.agent.ignoring import Rules

ALWAYS = frozenset(
    {
        ".git",
        ".hg",
        ".svn",
        "node_modules",
        "__pycache__",
        ".venv",
        "venv",
        ".tox",
        ".nox",
        ".mypy_cache",
        ".ruff_cache",
        ".pytest_cache",
        ".hypothesis",
        ".gradle",
        ".terraform",
        ".next",
    }
)
"""Folders that no one edits by hand; left out where there is no git to ask."""

GIT_SECONDS = 20.0


def project_files(root: Path) -> list[str]:
    """Paths relative to ``root``, POSIX, sorted; regular files and links to files, submodules left out.

    A folder that its repository ignores as a whole is walked like one without git.
    """
    return _by_git(root) or sorted(_walk(root))


def walk_all(folder: Path, limit: int = 20_000) -> list[str]:
    """Everything below ``folder``, ignored or not, relative to it; at most ``limit`` files. Links are not followed."""
    found: list[str] = []
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != ".git")
        below = os.path.relpath(parent, folder)
        found += [name if below == "." else f"{below}/{name}" for name in sorted(names)]
        if len(found) >= limit:
            break
    return sorted(found[:limit])


def _by_git(root: Path) -> list[str] | None:
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    # A repository must not be able to run a program by being listed.
    quiet = ["-c", "core.fsmonitor=false"]
    try:
        done = subprocess.run(
            [*command[:1], *quiet, *command[1:]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GIT_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode:
        return None
    names = {os.fsdecode(name) for name in done.stdout.split(b"\0") if name}
    return sorted(name for name in names if os.path.isfile(f"{root}/{name}"))  # noqa: PTH113 (thousands of them)


def _walk(root: Path) -> Iterator[str]:
    stack = [("", Rules(None, "", ""))]
    while stack:
        relative, above = stack.pop()
        folder = root / relative
        rules = _entering(above, folder, relative)
        try:
            entries = list(os.scandir(folder))
        except OSError:
            continue
        for entry in entries:
            path = f"{relative}/{entry.name}" if relative else entry.name
            try:
                is_folder = entry.is_dir(follow_symlinks=False)
                is_file = entry.is_file()
            except OSError:
                continue
            if entry.name in ALWAYS or rules.ignored(path, is_folder=is_folder):
                continue
            if is_folder:
                stack.append((path, rules))
            elif is_file:
                yield path


def _entering(above: Rules, folder: Path, relative: str) -> Rules:
    """The rules below ``folder``, with its own file where it has one."""
    try:
        text = (folder / ".gitignore").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return above
    return Rules(above, f"{relative}/" if relative else "", text)

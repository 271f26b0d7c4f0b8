"""The files of a project: what git tracks or would track, else everything that no ``.gitignore`` names."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from vivace.agent.repomap.ignore import ALWAYS, Ignore

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
    stack = [("", Ignore())]
    while stack:
        relative, above = stack.pop()
        folder = root / relative
        ignore = above.entering(folder, relative)
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
            if entry.name in ALWAYS or ignore(path, folder=is_folder):
                continue
            if is_folder:
                stack.append((path, ignore))
            elif is_file:
                yield path

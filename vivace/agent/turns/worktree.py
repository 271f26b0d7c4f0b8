"""A copy of the dirty workspace for one worker, and what became of it.

In a git repository it is a worktree, made from a commit of the files as they are; neither the user's index nor a branch
is touched, and the result is committed to ``refs/vivace/crew/<id>`` before the copy goes. Elsewhere it is a plain copy.

A result is files with their modes and links with their targets. What is neither, what cannot be read, and what the
project ignores is not offered; it is named.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from msgspec import Struct

from vivace.agent.repomap.files import ALWAYS, project_files
from vivace.agent.turns.scratch import copy_files
from vivace.errors import VivaceError

SECONDS = 120.0
REF = "refs/vivace/crew"
LINK = stat.S_IFLNK
"""The mode of a link, whose bytes are its target."""
AT_ONCE = 200
"""Files that are copied between two looks whether the worker was stopped."""
_IDENTITY = {
    "GIT_AUTHOR_NAME": "vivace",
    "GIT_AUTHOR_EMAIL": "vivace@localhost",
    "GIT_COMMITTER_NAME": "vivace",
    "GIT_COMMITTER_EMAIL": "vivace@localhost",
}


class Found(NamedTuple):
    """What stands at a path: a file's bytes and permission bits, a link's target and :data:`LINK`, or None and 0.

    Anything else, a folder say, has None and its kind as the mode.
    """

    data: bytes | None
    mode: int

    @property
    def odd(self) -> bool:
        """Neither a file nor a link, and there."""
        return self.data is None and self.mode != 0

    @property
    def link(self) -> bool:
        return self.data is not None and self.mode == LINK

    def same(self, other: Found) -> bool:
        """But for the permissions."""
        return self.data == other.data and self.link == other.link and self.odd == other.odd


NOTHING = Found(None, 0)


def look(file: Path) -> Found:
    """Raises :class:`OSError` for what cannot be read."""
    try:
        status = file.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return NOTHING
    if stat.S_ISLNK(status.st_mode):
        return Found(os.fsencode(file.readlink()), LINK)
    if stat.S_ISREG(status.st_mode):
        return Found(file.read_bytes(), stat.S_IMODE(status.st_mode) & 0o777)
    return Found(None, stat.S_IFMT(status.st_mode))


class FileChange(Struct, frozen=True):
    """One path of a result: bytes before and after, None where there is no file; modes as :class:`Found` has them."""

    path: str
    before: bytes | None
    after: bytes | None
    mode: int = 0o644
    mode_before: int = 0o644


class Worktree:
    """Made by :meth:`make`; :meth:`finish` gives what changed and removes the copy."""

    def __init__(self, id: str, source: Path, folder: Path) -> None:
        self.id = id
        self.source = source
        self.folder = folder
        self.root = folder / "tree"
        self.base = ""
        """The commit of the dirty tree; empty without git."""
        self.ref = ""
        """Where the result was committed."""
        self.left_out: list[str] = []
        """What the work left behind that is no part of the result; folders end with a slash."""
        self._copied: dict[str, Found] = {}
        self._making: asyncio.Task[None] | None = None
        self._leaving = False
        self._made = False

    async def make(self) -> None:
        """Raises :class:`VivaceError` (``no_copy``) and :class:`OSError`. Cancelled, it ends in :meth:`finish`."""
        self._making = asyncio.create_task(asyncio.to_thread(self._make))
        await asyncio.shield(self._making)

    async def finish(self) -> list[FileChange]:
        """Commit the work, say what changed, and clean up; after a :meth:`make` that did not end well, only that."""
        self._leaving = True
        if self._making is not None:
            await asyncio.wait([self._making])
        return await asyncio.to_thread(self._finish)

    def _make(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self._is_repository():
            self.base = self._commit_dirty()
            if self._leaving:
                return
            self._git(self.source, "worktree", "add", "--detach", "--quiet", str(self.root), self.base)
        else:
            files, _ = self._listed(self.source)
            self.root.mkdir()
            for first in range(0, len(files), AT_ONCE):
                if self._leaving:
                    return
                copy_files(self.source, self.root, files[first : first + AT_ONCE])
        for path in self._listed(self.root)[0]:
            if self._leaving:
                return
            self._copied[path] = look(self.root / path)
        self._made = True

    def _finish(self) -> list[FileChange]:
        changes = self._changes() if self._made else []
        if self.base and changes:
            self._git(self.root, "add", "--all")
            tree = self._git(self.root, "write-tree")
            commit = self._git(self.root, "commit-tree", tree, "-p", self.base, "-m", f"Work of {self.id}")
            self.ref = f"{REF}/{self.folder.name}"
            self._git(self.source, "update-ref", self.ref, commit)
        self._remove()
        return changes

    def _changes(self) -> list[FileChange]:
        listed, besides = self._listed(self.root)
        changes = []
        for path in sorted({*listed, *self._copied}):
            before = self._copied.get(path, NOTHING)
            try:
                after = look(self.root / path)
            except OSError:
                besides.append(path)
                continue
            if after.odd:  # a folder in its place: what is in it is offered, and it is gone
                after = NOTHING
            if after != before:
                changes.append(FileChange(path, before.data, after.data, after.mode, before.mode))
        self.left_out = sorted(besides)
        return changes

    def _listed(self, root: Path) -> tuple[list[str], list[str]]:
        """The files and links of the project, wherever links lead; and what lies beside them, folders as a whole."""
        known = set(project_files(root))
        names = self._git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard") if self.base else ""
        known |= {name for name in names.split("\0") if name and (root / name).is_symlink()}
        folders = {parent.as_posix() for path in known for parent in PurePosixPath(path).parents}
        besides: list[str] = []
        for place, inner, files in os.walk(root):
            below = Path(place).relative_to(root).as_posix()
            prefix = "" if below == "." else f"{below}/"
            for name in sorted({*inner, *files} - ALWAYS):
                path, entry = f"{prefix}{name}", Path(place, name)
                if path in known or path in folders:
                    continue
                if entry.is_symlink() and not self.base and not entry.is_file():
                    known.add(path)  # the list of files without git has no links that lead elsewhere
                elif name in files or entry.is_symlink():
                    besides.append(path)
                elif any(held for _, _, held in os.walk(entry)):
                    besides.append(f"{path}/")
            inner[:] = [name for name in inner if f"{prefix}{name}" in folders]
        return sorted(known), besides

    def _remove(self) -> None:
        if self.base and self.root.is_dir():
            self._git(self.source, "worktree", "remove", "--force", str(self.root))
        shutil.rmtree(self.folder, ignore_errors=True)

    def _is_repository(self) -> bool:
        try:
            top = self._git(self.source, "rev-parse", "--show-toplevel")
        except VivaceError:
            return False
        return Path(top).resolve() == self.source.resolve()

    def _commit_dirty(self) -> str:
        """A commit of every file that git tracks or would track, by an index of our own."""
        with tempfile.TemporaryDirectory(dir=self.folder) as place:
            index = {"GIT_INDEX_FILE": str(Path(place) / "index")}
            head = ""
            try:
                head = self._git(self.source, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
                self._git(self.source, "read-tree", head, env=index)
            except VivaceError:
                head = ""
            self._git(self.source, "add", "--all", env=index)
            tree = self._git(self.source, "write-tree", env=index)
            parents = ("-p", head) if head else ()
            return self._git(self.source, "commit-tree", tree, *parents, "-m", "The files as they were", env=index)

    def _git(self, where: Path, *arguments: str, env: Mapping[str, str] | None = None) -> str:
        command = ["git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-C", str(where), *arguments]
        clean = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
        try:
            done = subprocess.run(
                command,
                env={**clean, **_IDENTITY, **(env or {})},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=SECONDS,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise VivaceError(f"git {arguments[0]}: {error}", code="no_copy") from None
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip()
            raise VivaceError(f"git {arguments[0]}: {said}", code="no_copy")
        return done.stdout.decode("utf-8", "surrogateescape").strip()

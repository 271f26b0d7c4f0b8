"""A copy of the dirty workspace for one worker, and what became of it.

In a git repository it is a worktree, made from a commit of the files as they are; neither the user's index nor a branch
is touched, and the result is committed to ``refs/vivace/crew/<id>`` before the copy goes. Elsewhere it is a plain copy.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from vivace.agent.repomap.files import project_files
from vivace.agent.turns.scratch import copy_files
from vivace.errors import VivaceError

SECONDS = 120.0
REF = "refs/vivace/crew"
_IDENTITY = {
    "GIT_AUTHOR_NAME": "vivace",
    "GIT_AUTHOR_EMAIL": "vivace@localhost",
    "GIT_COMMITTER_NAME": "vivace",
    "GIT_COMMITTER_EMAIL": "vivace@localhost",
}


class FileChange(Struct, frozen=True):
    """One path of a result: bytes before and after, None where there is no file; ``mode`` of the one after."""

    path: str
    before: bytes | None
    after: bytes | None
    mode: int = 0o644


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
        self._copied: dict[str, bytes] = {}

    async def make(self) -> None:
        """Raises :class:`VivaceError` (``no_copy``)."""
        await asyncio.to_thread(self._make)

    async def finish(self) -> list[FileChange]:
        """Commit the work, say what changed, and clean up. Safe after a failed :meth:`make`."""
        return await asyncio.to_thread(self._finish)

    def _make(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self._is_repository():
            self.base = self._commit_dirty()
            self._git(self.source, "worktree", "add", "--detach", "--quiet", str(self.root), self.base)
        else:
            files = project_files(self.source)
            self.root.mkdir()
            copy_files(self.source, self.root, files)
        for path in project_files(self.root):
            file = self.root / path
            if file.is_file() and not file.is_symlink():
                self._copied[path] = file.read_bytes()

    def _finish(self) -> list[FileChange]:
        if not self.root.is_dir():
            return []
        now = set(project_files(self.root))
        changes = []
        for path in sorted(now | set(self._copied)):
            file = self.root / path
            before = self._copied.get(path)
            after = file.read_bytes() if path in now and file.is_file() and not file.is_symlink() else None
            if before != after:
                changes.append(FileChange(path, before, after, file.stat().st_mode & 0o777 if after is not None else 0))
        if self.base and changes:
            self._git(self.root, "add", "--all")
            tree = self._git(self.root, "write-tree")
            commit = self._git(self.root, "commit-tree", tree, "-p", self.base, "-m", f"Work of {self.id}")
            self.ref = f"{REF}/{self.folder.name}"
            self._git(self.source, "update-ref", self.ref, commit)
        self._remove()
        return changes

    def _remove(self) -> None:
        if self.base:
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

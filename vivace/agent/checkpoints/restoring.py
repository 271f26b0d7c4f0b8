"""Making the files of a workspace those of a tree: one atomic step per path, never outside the workspace.

Every path is reached from the open folder above it, without following links. A file or link is written under another
name beside its place and renamed; just before that, and before it is removed, its stat must still be that of the scan:
what somebody changed in between is left, and told in ``moved``. Nothing that no checkpoint holds is overwritten or
removed, but for the throwaway caches of a folder that goes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path

from vivace.agent.checkpoints.database import Database
from vivace.agent.checkpoints.records import Node, Refused, Tree
from vivace.agent.checkpoints.scanning import TEMPORARY, THROWAWAY, Folder, Seen, Stamp, stamp_of
from vivace.errors import VivaceError

SYNC_EACH = 64
"""Files above which the whole file system is synced once instead of each of them."""


class Restoring:
    """One pass from the tree that a scan found to another one.

    ``begun_from``: the pass finishes one that was cut off, which started from these nodes; whatever is neither one of
    them nor already as it should be was changed by somebody since, and is left.
    """

    def __init__(self, database: Database, workspace: Path, begun_from: Mapping[str, Node] | None = None) -> None:
        self.database = database
        self.workspace = workspace
        self.begun_from = begun_from
        self.kept: list[Refused] = []
        self.refused: list[Refused] = []
        self.moved: list[str] = []
        self._written: list[str] = []
        self._folders: set[str] = set()
        self._token = f"{TEMPORARY}{os.urandom(6).hex()}"

    def run(self, current: Folder, target: bytes) -> None:
        """Go there. Raises :class:`VivaceError` (``object_lost``) when the store has lost a content, mid-way."""
        handle = os.open(self.workspace, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._folder(handle, "", current, self.database.tree(target))
        finally:
            os.close(handle)
        self._sync()

    def _folder(self, handle: int, base: str, current: Folder, target: Tree) -> None:
        if self.begun_from is not None:
            _drop_halves(handle)
        for name, seen in current.seen.items():
            want = target.get(name)
            if want is None or (want.kind == "folder") != (seen.node.kind == "folder"):
                self._remove(handle, base, name, seen, current.folders.get(name))
        for name, node in target.items():
            was = current.seen.get(name)
            if was is not None and was.node == node:
                continue
            if node.kind == "folder":
                self._into(handle, base, name, node, current.folders.get(name))
            else:
                self._put(handle, base, name, node, was)

    def _into(self, parent: int, base: str, name: str, node: Node, current: Folder | None) -> None:
        path = base + name
        try:
            if current is None and _stamp(parent, name) is None:
                os.mkdir(name, 0o700, dir_fd=parent)
                self._folders.add(base)
            handle = _open_folder(parent, name)
        except OSError as error:
            self.refused.append(Refused(path, _reason(error)))
            return
        try:
            if current is None or current.digest != node.digest:
                self._folder(handle, path + "/", current or Folder(), self.database.tree(node.digest))
            if stat.S_IMODE(os.fstat(handle).st_mode) != node.mode:
                os.fchmod(handle, node.mode)
        except OSError as error:
            self.refused.append(Refused(path, _reason(error)))
        finally:
            os.close(handle)

    def _put(self, parent: int, base: str, name: str, node: Node, was: Seen | None) -> None:
        """Write a file or link beside its place, and rename it when the place is still as it was seen."""
        path, temporary = base + name, f"{self._token}-{len(self._written)}"
        stands = was if was is not None and was.node.kind != "folder" else None
        if stands is not None and not self._begun(path, stands.node):
            return
        try:
            if node.kind == "link":
                os.symlink(self.database.read(node.digest), os.fsencode(temporary), dir_fd=parent)
            else:
                self._write(parent, temporary, name, node)
            now = _stamp(parent, name)
            if now == (stands.stamp if stands else None):
                os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
                self._written.append(path)
                self._folders.add(base)
                return
            if stands is not None:
                self.moved.append(path)
            else:
                self.refused.append(Refused(path, "something stands there that no checkpoint holds"))
        except OSError as error:
            self.refused.append(Refused(path, _reason(error)))
        except VivaceError as error:
            self.refused.append(Refused(path, error.message))
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=parent)

    def _write(self, parent: int, temporary: str, name: str, node: Node) -> None:
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW
        handle = os.open(temporary, flags, 0o600, dir_fd=parent)
        try:
            self.database.write_to(node.digest, handle)
            with contextlib.suppress(OSError):
                owner = os.stat(name, dir_fd=parent, follow_symlinks=False)
                mine = os.fstat(handle)
                if (owner.st_uid, owner.st_gid) != (mine.st_uid, mine.st_gid):
                    os.fchown(handle, owner.st_uid, owner.st_gid)
            os.fchmod(handle, node.mode)
        finally:
            os.close(handle)

    def _remove(self, parent: int, base: str, name: str, seen: Seen, folder: Folder | None) -> None:
        path = base + name
        try:
            if folder is not None:
                self._remove_folder(parent, path, name, folder, seen.node)
            elif self._begun(path, seen.node):
                now = _stamp(parent, name)
                if now == seen.stamp:
                    os.unlink(name, dir_fd=parent)
                    self._folders.add(base)
                elif now is not None:
                    self.moved.append(path)
        except FileNotFoundError:
            return
        except OSError as error:
            self.refused.append(Refused(path, _reason(error)))

    def _remove_folder(self, parent: int, path: str, name: str, folder: Folder, node: Node) -> None:
        handle = _open_folder(parent, name)
        try:
            if self.begun_from is not None:
                _drop_halves(handle)
            for inner, seen in folder.seen.items():
                self._remove(handle, path + "/", inner, seen, folder.folders.get(inner))
            with os.scandir(handle) as found:
                left = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
            if all(is_folder and inner in THROWAWAY for inner, is_folder in left):
                for inner, _ in left:
                    shutil.rmtree(inner, dir_fd=handle)
                os.rmdir(name, dir_fd=parent)
                return
            os.fchmod(handle, node.mode)
            self.kept.append(Refused(path, "holds what no checkpoint does"))
        finally:
            os.close(handle)

    def _begun(self, path: str, node: Node) -> bool:
        """Whether a pass that was cut off would have found this here."""
        if self.begun_from is None or self.begun_from.get(path) == node:
            return True
        self.refused.append(Refused(path, "was changed since"))
        return False

    def _sync(self) -> None:
        """Everything that was written is on disk before the store says so: names after contents."""
        if len(self._written) > SYNC_EACH:
            os.sync()
            return
        for path in (*self._written, *sorted(self._folders)):
            with contextlib.suppress(OSError):  # not readable by its own mode, or a link
                handle = os.open(self.workspace / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                try:
                    os.fsync(handle)
                finally:
                    os.close(handle)


def unlock(workspace: Path, path: str, node: Node) -> bool:
    """Let its owner read a file or folder that a checkpoint holds and that has become unreadable; whether it helped."""
    handle = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY)
    *folders, name = path.split("/")
    try:
        for part in folders:
            above, handle = handle, os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=handle)
            os.close(above)
        status = os.stat(name, dir_fd=handle, follow_symlinks=False)
        is_folder = stat.S_ISDIR(status.st_mode)
        if is_folder != (node.kind == "folder") or not (is_folder or stat.S_ISREG(status.st_mode)):
            return False
        os.chmod(name, stat.S_IMODE(status.st_mode) | (0o700 if is_folder else 0o400), dir_fd=handle)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def _open_folder(parent: int, name: str) -> int:
    """Open a folder to work in; its owner may read and write in it afterwards."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    handle = os.open(name, flags, dir_fd=parent)
    mode = stat.S_IMODE(os.fstat(handle).st_mode)
    if mode & 0o700 != 0o700:
        with contextlib.suppress(OSError):  # somebody else's: working in it then says what it may not
            os.fchmod(handle, mode | 0o700)
    return handle


def _drop_halves(handle: int) -> None:
    with os.scandir(handle) as found:
        halves = [entry.name for entry in found if entry.name.startswith(TEMPORARY)]
    for name in halves:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=handle)


def _stamp(parent: int, name: str) -> Stamp | None:
    try:
        return stamp_of(os.stat(name, dir_fd=parent, follow_symlinks=False))
    except FileNotFoundError:
        return None


def _reason(error: OSError) -> str:
    return error.strerror or str(error)

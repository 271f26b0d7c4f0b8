"""A file that lines are only added to: what was added is on disk, and half a line is never read.

``add`` returns when the bytes are synced. A line that a crash cut off was not acknowledged to anybody; it is removed
when the file is opened for writing. One process writes; others read.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from filelock import FileLock, Timeout

from vivace.errors import VivaceError


class Journal:
    """The lines of ``path``; ``busy`` when another process (``writer``, if it said so) holds it for writing."""

    def __init__(self, path: Path, *, write: bool) -> None:
        self.path = path
        self.writer = ""
        self.busy = False
        self.writable = write and self._locked()
        self._handle: int | None = None
        self._end = 0
        """Bytes that are known to be whole lines."""

    def read(self) -> list[bytes]:
        """Whole lines that were not read before. Raises :class:`VivaceError` (``unreadable``)."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._end)
                data = file.read()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise VivaceError(f"{self.path}: {error.strerror}", code="unreadable") from None
        whole = data[: data.rfind(b"\n") + 1]
        self._end += len(whole)
        return whole.split(b"\n")[:-1]

    def cut(self, lines: int, size: int) -> None:
        """Take the last ``size`` bytes that were read, ``lines`` lines, for torn ones."""
        self._end -= size + lines

    def repair(self) -> int:
        """Remove what is behind the whole lines; how many bytes that was."""
        try:
            torn = self.path.stat().st_size - self._end
        except FileNotFoundError:
            return 0
        if torn:
            handle = self._open()
            os.ftruncate(handle, self._end)
            os.fsync(handle)
        return torn

    def add(self, data: bytes) -> None:
        """Append whole lines; all of them or none. Raises :class:`VivaceError` (``disk_full``, ``write_failed``)."""
        new = self._handle is None and not self.path.exists()
        try:
            handle = self._open()
            try:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(handle, rest) :]
                os.fsync(handle)
            except BaseException:
                os.ftruncate(handle, self._end)
                raise
            if new:
                sync_folder(self.path.parent)
        except OSError as error:
            code = "disk_full" if error.errno == errno.ENOSPC else "write_failed"
            raise VivaceError(f"cannot write the conversation {self.path}: {error.strerror}", code=code) from None
        self._end += len(data)

    def replace(self, data: bytes) -> None:
        """Put other content in its place, atomically."""
        temporary = self.path.with_suffix(".new")
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o600)
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
        temporary.replace(self.path)
        sync_folder(self.path.parent)
        self._end = 0

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
        if self.writable:
            self.writable = False
            self._lock.release()

    def _open(self) -> int:
        if self._handle is None:
            self._handle = os.open(self.path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
        return self._handle

    def _locked(self) -> bool:
        lock = self.path.with_suffix(".lock")
        lock.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = FileLock(str(lock), thread_local=False)
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            self.busy = True
            with contextlib.suppress(OSError):
                self.writer = lock.read_text(encoding="ascii", errors="replace").strip()
            return False
        lock.write_text(f"{os.getpid()}\n", encoding="ascii")
        return True


def sync_folder(folder: Path) -> None:
    # Some file systems refuse to sync a folder.
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

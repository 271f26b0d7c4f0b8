"""Files under edit: read with their exact bytes, written back atomically, all or none.

The workspace is the folder that the command runs in. A path outside it, or a symlink that leads out of it, is refused;
an absolute path is fine when it lies inside. Run the command in a folder further up to edit more.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import shutil
import signal
import stat
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from vivace.errors import UsageError, VivaceError

BOM = "\ufeff"
MAX_BYTES = 8 * 1024 * 1024
"""No window of a model holds a file of this size; it is not even read."""

Newline = Literal["\n", "\r\n"]


def split_lines(text: str) -> list[str]:
    """Lines without their ends, split at ``\\n`` only: form feeds, U+2028 and their kin are part of a line."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return lines


@dataclass(frozen=True)
class SourceFile:
    """A file as it was read. ``path`` is the real file (symlinks resolved), ``name`` how messages call it."""

    path: Path
    name: str
    raw: bytes
    mode: int = 0o644

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.raw).hexdigest()

    @cached_property
    def bom(self) -> str:
        """The byte order mark, or nothing."""
        return BOM if self.raw.startswith(BOM.encode()) else ""

    @cached_property
    def raw_lines(self) -> list[str]:
        """Lines with their own ends and without the BOM; the last may have no end."""
        body = self.raw.decode("utf-8")[len(self.bom) :]
        lines = [line + "\n" for line in body.split("\n")]
        lines[-1] = lines[-1][:-1]
        if lines[-1] == "":
            lines.pop()
        return lines

    @cached_property
    def lines(self) -> list[str]:
        """Lines as the model sees them: no BOM, no line ends. A lone CR is part of a line."""
        return [line[:-2] if line.endswith("\r\n") else line.removesuffix("\n") for line in self.raw_lines]

    @property
    def text(self) -> str:
        """The file as the model sees it: no BOM, LF."""
        return "\n".join(self.lines) + ("\n" if self.final_newline else "")

    @property
    def final_newline(self) -> bool:
        return bool(self.raw_lines) and self.raw_lines[-1].endswith("\n")

    @cached_property
    def newline(self) -> Newline:
        """The line end that most lines have; new lines get it."""
        crlf = sum(line.endswith("\r\n") for line in self.raw_lines)
        lf = sum(line.endswith("\n") for line in self.raw_lines) - crlf
        return "\r\n" if crlf > lf else "\n"


class Workspace:
    """The folder inside which files may be read and written."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = (root or Path.cwd()).resolve()

    def read(self, path: str | Path) -> SourceFile:
        """Read one file.

        Raises :class:`UsageError` when it is missing, no regular file, outside the workspace, read-only, not writable,
        binary, not UTF-8 or larger than any window.
        """
        name = str(path)
        if "\0" in name:
            raise UsageError("a path holds a zero byte", code="bad_path", param="path")
        try:
            real = (self.root / path).resolve(strict=True)
            status = real.stat()
        except FileNotFoundError:
            raise UsageError(f"{name}: no such file", code="file_not_found", param="path") from None
        except (OSError, RuntimeError) as error:  # RuntimeError: a loop of symlinks, before Python 3.13
            raise UsageError(f"{name}: {_reason(error)}", code="bad_path", param="path") from None
        if not real.is_relative_to(self.root):
            raise UsageError(
                f"{name}: lies outside the folder that the command runs in ({self.root})",
                hint="Run the command in a folder that holds the file.",
                code="outside_workspace",
                param="path",
            )
        if not stat.S_ISREG(status.st_mode):
            kind = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
            raise UsageError(f"{name}: is {kind}", code="not_a_file", param="path")
        if status.st_size > MAX_BYTES:
            raise UsageError(
                f"{name}: {status.st_size:,} bytes, larger than the window of any model", code="too_large", param="path"
            )
        _check_writable(name, status.st_mode)
        if not os.access(real, os.W_OK) or not os.access(real.parent, os.W_OK):
            raise UsageError(f"{name}: not writable", code="not_writable", param="path")
        try:
            raw = real.read_bytes()
        except OSError as error:
            raise UsageError(f"{name}: {_reason(error)}", code="unreadable", param="path") from None
        if b"\0" in raw:
            raise UsageError(f"{name}: is binary (it holds zero bytes)", code="binary", param="path")
        try:
            raw.decode("utf-8")
        except UnicodeDecodeError as error:
            where = raw.count(b"\n", 0, error.start) + 1
            raise UsageError(f"{name}: not UTF-8 (line {where})", code="not_utf8", param="path") from None
        shown = real.relative_to(self.root).as_posix()
        return SourceFile(path=real, name=shown, raw=raw, mode=stat.S_IMODE(status.st_mode))

    def read_all(self, paths: Sequence[str | Path]) -> list[SourceFile]:
        """Read every file before any is used; a file named twice is read once."""
        return list({source.path: source for source in map(self.read, paths)}.values())


def _check_writable(name: str, mode: int) -> None:
    """Whoever took the right to write from a file meant it, though a replacement, or root, needs none."""
    if not mode & stat.S_IWUSR:
        raise UsageError(
            f"{name}: is read-only",
            hint=f"Nothing was written. To allow it: chmod u+w {shlex.quote(name)}",
            code="not_writable",
            param="path",
        )


def write_all(changes: Sequence[tuple[SourceFile, bytes]], interrupted: threading.Event | None = None) -> None:
    """Write every file or none.

    All new contents are staged beside their targets and synced first; then each target is compared with what was read,
    and replaced. Mode, extended attributes and, where permitted, ownership are kept. A hard link is parted from its
    twins, as with every atomic replacement. A failure in the middle puts back what was replaced, and so does
    ``interrupted`` (of :func:`interrupts_held`), which then raises :class:`KeyboardInterrupt`.

    Raises :class:`VivaceError` (``changed_meanwhile``, ``not_writable``, ``write_failed``); the files are then as
    before.
    """
    staged: list[tuple[SourceFile, Path]] = []
    replaced: list[SourceFile] = []
    try:
        for source, data in changes:
            staged.append((source, _stage(source, data)))
        for source, _ in staged:
            _verify(source)
        for source, temporary in staged:
            _heed(interrupted)
            replaced.append(source)
            temporary.replace(source.path)
            _sync_folder(source.path.parent)
        for source, data in changes:
            if source.path.read_bytes() != data:
                raise VivaceError(f"{source.name}: reads back differently after writing", code="write_failed")
        _heed(interrupted)
    except BaseException as error:
        _roll_back(replaced)
        if isinstance(error, OSError):
            raise VivaceError(f"cannot write: {_reason(error)}", code="write_failed") from None
        raise
    finally:
        for _, temporary in staged:
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def interrupts_held() -> Iterator[threading.Event]:
    """Hold Ctrl-C back while files are replaced; the event tells that it was pressed."""
    pressed = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield pressed
        return
    before = signal.signal(signal.SIGINT, lambda *_: pressed.set())
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)


def _heed(interrupted: threading.Event | None) -> None:
    if interrupted is not None and interrupted.is_set():
        raise KeyboardInterrupt


def _verify(source: SourceFile) -> None:
    try:
        same = source.path.read_bytes() == source.raw
        mode = source.path.stat().st_mode
    except OSError:
        same, mode = False, source.mode
    if not same:
        raise VivaceError(
            f"{source.name}: was changed by someone else since it was read",
            hint="Nothing was written. Run the command again on the new content.",
            code="changed_meanwhile",
        )
    _check_writable(source.name, mode)


def _stage(source: SourceFile, data: bytes) -> Path:
    """A synced temporary file beside the target, with the target's metadata."""
    handle, name = tempfile.mkstemp(prefix=f".{source.path.name[:40]}.", suffix=".vivace", dir=source.path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            status = source.path.stat()
            with contextlib.suppress(PermissionError):
                os.chown(temporary, status.st_uid, status.st_gid)
            shutil.copystat(source.path, temporary)
            os.utime(temporary)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _roll_back(replaced: Sequence[SourceFile]) -> None:
    lost = []
    for source in reversed(replaced):
        try:
            if source.path.read_bytes() == source.raw:
                continue
            _stage(source, source.raw).replace(source.path)
        except OSError:
            lost.append(source.name)
    if lost:
        raise VivaceError(f"could not put back {', '.join(lost)}", code="roll_back_failed")


def _sync_folder(folder: Path) -> None:
    # Some file systems refuse to sync a folder; the replacement itself is atomic without it.
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _reason(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error)

"""The store of one workspace on disk: an SQLite file, a folder for large files, and a lock between processes.

Everything that a checkpoint adds is one transaction, so a process that is killed leaves the store as it was before or
after. The rollback journal is used, not a write-ahead log: home folders lie on network file systems too, and the
contents of files would be written twice. Commits are synced (``synchronous=FULL``).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import sqlite3
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import zstandard
from filelock import FileLock, Timeout

from vivace.agent.checkpoints.records import Tree
from vivace.agent.checkpoints.trees import EMPTY, decode_tree, digest_of
from vivace.errors import VivaceError

VERSION = 1
"""Of the tables; another one is refused."""
LOCK_SECONDS = 60.0
"""How long another process may hold the store: a first checkpoint of a large tree, or going back."""
CHUNK = 1 << 20
TREES = 4096
"""Folders that are kept decoded."""
LEVEL = 3
"""Of zstandard."""

_FICLONE = 0x40049409
"""Linux's request to share the blocks of another file (btrfs, XFS, bcachefs)."""
_PLAIN, _PACKED, _LARGE = range(3)

_TABLES = """
PRAGMA auto_vacuum=INCREMENTAL;
CREATE TABLE IF NOT EXISTS objects(digest BLOB NOT NULL UNIQUE, how INTEGER NOT NULL, size INTEGER NOT NULL, data BLOB);
CREATE TABLE IF NOT EXISTS checkpoints(
    id INTEGER PRIMARY KEY AUTOINCREMENT, parent INTEGER, tree BLOB NOT NULL, kind TEXT NOT NULL, record BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS folders(path BLOB PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS included(path BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS meta(key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
"""


class Database:
    """Objects by the digest of their content, and the tables above. Use it inside :meth:`held`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.large = folder / "large"
        self._threads = threading.RLock()
        self._lock = FileLock(str(folder / "lock"), thread_local=False)
        self._pack, self._unpack = zstandard.ZstdCompressor(LEVEL), zstandard.ZstdDecompressor()
        self._trees: dict[bytes, Tree] = {}
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.large.mkdir(exist_ok=True, mode=0o700)
        with self.held(opening=True), self.told():
            self._connection = sqlite3.connect(
                folder / "store.sqlite", isolation_level=None, check_same_thread=False, timeout=LOCK_SECONDS
            )
            version = self.execute("PRAGMA user_version")[0][0]
            if version not in (0, VERSION):
                raise VivaceError(
                    f"the checkpoints in {folder} have version {version}; this vivace reads version {VERSION}",
                    hint="Use the vivace that made them, or move that folder away.",
                    code="store_version",
                )
            self.execute("PRAGMA synchronous=FULL")
            self.execute("PRAGMA journal_mode=TRUNCATE")
            if version == 0:
                self._connection.executescript(f"{_TABLES}PRAGMA user_version={VERSION};")
            (folder / "store.sqlite").chmod(0o600)
        self.new, self.new_size = 0, 0

    def close(self) -> None:
        self._connection.close()

    @contextlib.contextmanager
    def held(self, *, opening: bool = False) -> Iterator[None]:
        """Keep other processes and threads out. Raises :class:`VivaceError` (``store_busy``)."""
        with self._threads:
            try:
                self._lock.acquire(timeout=LOCK_SECONDS)
            except Timeout:
                raise VivaceError(
                    f"another process has been using the checkpoints in {self.folder} for over {LOCK_SECONDS:.0f} s",
                    code="store_busy",
                ) from None
            except OSError as error:
                raise VivaceError(
                    f"cannot use the checkpoints in {self.folder}: {error}", code="store_broken"
                ) from None
            try:
                yield
            finally:
                self._lock.release()

    @contextlib.contextmanager
    def told(self) -> Iterator[None]:
        """What SQLite complains of, as errors that a user can act on."""
        try:
            yield
        except sqlite3.OperationalError as error:
            full = "full" in str(error)
            raise VivaceError(
                f"cannot write the checkpoints in {self.folder}: {error}", code="disk_full" if full else "store_broken"
            ) from None
        except sqlite3.DatabaseError as error:
            raise VivaceError(
                f"the checkpoints in {self.folder} are damaged: {error}",
                hint="Move that folder away to begin anew; the files of the workspace are not touched.",
                code="store_broken",
            ) from None

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All of it or nothing. May be nested; the outermost one counts."""
        if self._connection.in_transaction:
            yield
            return
        with self.told():
            self.new, self.new_size = 0, 0
            self.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._connection.rollback()
                raise
            self._connection.commit()

    def execute(self, statement: str, values: tuple[object, ...] = ()) -> list[Any]:
        return self._connection.execute(statement, values).fetchall()

    def insert(self, statement: str, values: tuple[object, ...]) -> int:
        """The number of the new row."""
        return self._connection.execute(statement, values).lastrowid or 0

    def meta(self, key: str) -> bytes | None:
        rows = self.execute("SELECT value FROM meta WHERE key=?", (key,))
        return bytes(rows[0][0]) if rows else None

    def set_meta(self, key: str, value: bytes | None) -> None:
        if value is None:
            self.execute("DELETE FROM meta WHERE key=?", (key,))
        else:
            self.execute("INSERT OR REPLACE INTO meta VALUES(?,?)", (key, value))

    def has(self, digest: bytes) -> bool:
        return bool(self.execute("SELECT 1 FROM objects WHERE digest=?", (digest,)))

    def put(self, digest: bytes, data: bytes) -> None:
        """Keep ``data`` under its digest, compressed where that pays."""
        if self.has(digest):
            return
        packed = self._pack.compress(data)
        how, kept = (_PACKED, packed) if len(packed) < len(data) else (_PLAIN, data)
        self.execute("INSERT INTO objects VALUES(?,?,?,?)", (digest, how, len(data), kept))
        self.new += 1
        self.new_size += len(kept)

    def put_tree(self, digest: bytes, data: bytes) -> None:
        self.put(digest, data)

    def put_large(self, source: int) -> tuple[bytes, int]:
        """Keep the file open at ``source`` as a file of its own; gives its digest and size.

        Its blocks are shared where the file system can, else copied. It is synced before its name says the digest.
        """
        handle, name = tempfile.mkstemp(prefix="new-", dir=self.large)
        try:
            with os.fdopen(handle, "r+b") as copy:
                if not cloned(copy.fileno(), source):
                    os.lseek(source, 0, os.SEEK_SET)
                    while piece := os.read(source, CHUNK):
                        copy.write(piece)
                copy.flush()
                copy.seek(0)
                digest = hashlib.file_digest(copy, "sha256").digest()
                size = os.fstat(copy.fileno()).st_size
                os.fsync(copy.fileno())
            target = self.large / digest.hex()
            if not self.has(digest) or not target.exists():
                Path(name).chmod(0o400)
                Path(name).replace(target)
                self.execute("INSERT OR REPLACE INTO objects VALUES(?,?,?,NULL)", (digest, _LARGE, size))
                self.new += 1
                self.new_size += size
            return digest, size
        finally:
            Path(name).unlink(missing_ok=True)

    def read(self, digest: bytes) -> bytes:
        """The content. Raises :class:`VivaceError` (``object_lost``) when it is not there or not what it was."""
        rows = self.execute("SELECT how, data FROM objects WHERE digest=?", (digest,))
        data: bytes | None = None
        with contextlib.suppress(OSError, zstandard.ZstdError):
            if rows:
                how, kept = rows[0]
                if how == _LARGE:
                    data = (self.large / digest.hex()).read_bytes()
                else:
                    data = self._unpack.decompress(kept) if how == _PACKED else kept
        if data is None or digest_of(data) != digest:
            raise self._lost(digest)
        return data

    def write_to(self, digest: bytes, target: int) -> None:
        """Write the content into an empty open file; large ones are shared or copied piece by piece."""
        rows = self.execute("SELECT how FROM objects WHERE digest=?", (digest,))
        if not rows or rows[0][0] != _LARGE:
            data = memoryview(self.read(digest))
            while data:
                data = data[os.write(target, data) :]
            return
        try:
            with (self.large / digest.hex()).open("rb") as source:
                if hashlib.file_digest(source, "sha256").digest() != digest:
                    raise self._lost(digest)
                if cloned(target, source.fileno()):
                    return
                source.seek(0)
                while piece := memoryview(source.read(CHUNK)):
                    while piece:
                        piece = piece[os.write(target, piece) :]
        except FileNotFoundError:
            raise self._lost(digest) from None

    def tree(self, digest: bytes) -> Tree:
        """A folder. Raises as :meth:`read` does."""
        known = self._trees.get(digest)
        if known is None:
            if len(self._trees) >= TREES:
                self._trees.clear()
            known = self._trees[digest] = decode_tree(EMPTY if digest == _EMPTY_DIGEST else self.read(digest))
        return known

    def drop_all_but(self, kept: set[bytes]) -> tuple[int, int]:
        """Delete every other object; how many they were, and their stored bytes."""
        self._trees.clear()
        gone, size = 0, 0
        for digest, how, bytes_, packed in self.execute("SELECT digest, how, size, length(data) FROM objects"):
            if digest not in kept:
                gone, size = gone + 1, size + (bytes_ if how == _LARGE else packed)
                self.execute("DELETE FROM objects WHERE digest=?", (digest,))
        return gone, size

    def tidy(self) -> None:
        """Give freed pages back, and delete large files that no object names: dropped ones, halves of a killed copy."""
        self._connection.executescript("PRAGMA incremental_vacuum")  # execute() would free one page
        named = {bytes(row[0]).hex() for row in self.execute("SELECT digest FROM objects WHERE how=?", (_LARGE,))}
        for file in self.large.iterdir():
            if file.name not in named:
                file.unlink(missing_ok=True)

    def _lost(self, digest: bytes) -> VivaceError:
        return VivaceError(
            f"the store in {self.folder} has lost a part of this checkpoint ({digest.hex()[:12]})",
            hint="Nothing was changed. Another checkpoint may be whole.",
            code="object_lost",
        )


def cloned(target: int, source: int) -> bool:
    """Whether ``target`` now shares the blocks of ``source``; they part when either is written."""
    if sys.platform != "linux":
        return False
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:
        return False
    return True


_EMPTY_DIGEST = digest_of(EMPTY)

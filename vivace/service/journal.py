"""Rows on their way into the database, kept in a file: what was written there outlives this process, however it ends.

A write to a file is in the operating system's hands when it returns, within microseconds and whether or not the
database answers. So a response is told its end at once, and the rows are committed behind it. The next start of a
service finds what a killed one left, and commits it; rows that had arrived are refused as doubled.

A frame is its length and its CRC-32 (4 bytes each, little endian) and the rows in MessagePack. A torn last frame was
never promised to anybody.
"""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

log = logging.getLogger(__name__)

FULL = 4 << 20
"""Bytes after which another file is begun, so that the first can go when its rows are committed."""

_HEAD = struct.Struct("<II")
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[tuple[str, dict[str, Any]]]).decode

NamedRows = list[tuple[str, dict[str, Any]]]
"""The name of a statement and its parameters, for each row of a job."""


class Journal:
    """The journal of one process in ``folder``. The caller lets one thread at a time use it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._file = _File(folder)
        self._old: list[_File] = []

    def add(self, rows: NamedRows) -> int:
        """Keep the rows of a job; the number by which :meth:`committed` knows its file. Raises :class:`OSError`."""
        if self._file.size >= FULL:
            self._old.append(self._file)
            self._file = _File(self.folder)
        self._file.add(rows)
        return self._file.number

    def committed(self, number: int) -> None:
        """A job of that file is in the database, or was refused there."""
        for file in (self._file, *self._old):
            if file.number == number:
                file.open -= 1
        for file in [file for file in self._old if file.open == 0]:
            file.remove()
            self._old.remove(file)
        if self._file.open == 0 and self._file.size:
            self._file.clear()

    def left_by_others(self) -> Iterator[tuple[Path, list[NamedRows]]]:
        """Files of processes that are gone, and their jobs. The caller removes a file when its rows are committed."""
        for path in sorted(self.folder.glob("*.journal")):
            try:
                handle = os.open(path, os.O_RDWR)
            except FileNotFoundError:
                continue
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(handle)
                continue  # its process lives, or somebody else is at it
            # Held until this process ends: nobody else takes the same rows meanwhile.
            yield path, list(_frames(path))

    def close(self) -> None:
        """Remove what has nothing left to commit."""
        for file in (self._file, *self._old):
            file.remove() if file.open == 0 else file.leave()


class _File:
    _count = 0

    def __init__(self, folder: Path) -> None:
        _File._count += 1
        self.number = _File._count
        self.path = folder / f"{os.getpid()}-{secrets.token_hex(6)}.journal"
        self._handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._handle, fcntl.LOCK_EX)
        self.size = 0
        self.open = 0

    def add(self, rows: NamedRows) -> None:
        body = _encode(rows)
        frame = _HEAD.pack(len(body), zlib.crc32(body)) + body
        written = os.write(self._handle, frame)
        if written != len(frame):
            os.ftruncate(self._handle, self.size)
            raise OSError(28, "the journal's disk is full")
        self.size += len(frame)
        self.open += 1

    def clear(self) -> None:
        os.ftruncate(self._handle, 0)
        self.size = 0

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
        os.close(self._handle)

    def leave(self) -> None:
        os.close(self._handle)


def _frames(path: Path) -> Iterator[NamedRows]:
    data = path.read_bytes()
    place = 0
    while place + _HEAD.size <= len(data):
        length, checksum = _HEAD.unpack_from(data, place)
        body = data[place + _HEAD.size : place + _HEAD.size + length]
        place += _HEAD.size + length
        if len(body) < length or zlib.crc32(body) != checksum:
            return
        try:
            yield _decode(body)
        except msgspec.DecodeError:
            log.error("a row of %s cannot be read", path)

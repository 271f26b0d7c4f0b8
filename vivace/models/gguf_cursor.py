"""Reading the front of a GGUF file with suspicion: bounded reads of numbers, strings and arrays.

Every count and length is checked against the size of the file, and against a bound of its own, before anything is
allocated for it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, BinaryIO, NoReturn

import numpy as np

from vivace.errors import VivaceError

MAX_HEADER = 64 << 20  # A vocabulary of 262,144 tokens with merges and scores takes about 15 MB.
MAX_ARRAY = 1 << 22  # Elements of one metadata array.
MAX_DEPTH = 4  # Arrays within arrays.
FIRST_READ = 1 << 16
READ_AHEAD = 8 << 20

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
SCALARS = {U8: "<B", I8: "<b", U16: "<H", I16: "<h", U32: "<I", I32: "<i", F32: "<f", U64: "<Q", I64: "<q", F64: "<d"}

_u32 = struct.Struct("<I").unpack_from
_u64 = struct.Struct("<Q").unpack_from


@dataclass(frozen=True, slots=True)
class StoredArray:
    """A metadata array that was checked and not decoded yet: ``count`` elements from byte ``start``."""

    kind: int
    count: int
    start: int


class Cursor:
    """Reads forward through the header of ``file``.

    Memory stays within :data:`MAX_HEADER`, whatever the file claims. ``buffer`` holds the file from its first byte and
    only ever grows in place.
    """

    def __init__(self, file: BinaryIO, size: int, name: str) -> None:
        self._file = file
        self._name = name
        self.size = size
        self.limit = min(size, MAX_HEADER)
        self.pos = 0
        self.buffer = bytearray()

    def fail(self, what: str, at: int | None = None) -> NoReturn:
        """Refuses the file."""
        raise VivaceError(
            f"{self._name} is not a usable GGUF file: {what} (at byte {self.pos if at is None else at})",
            hint="Get the file again, or use another one.",
            code="model_file_invalid",
        )

    def take(self, count: int, what: str) -> int:
        """Steps over ``count`` bytes that are then in the buffer; returns where they start."""
        start = self.pos
        if count > self.limit - start:
            bound = "the end of the file" if self.limit == self.size else "the bound for headers"
            self.fail(f"{what} needs {count} bytes, past {bound} ({self.limit})")
        if start + count > len(self.buffer):
            self._fill(start + count)
        self.pos = start + count
        return start

    def _fill(self, end: int) -> None:
        ahead = READ_AHEAD if self.buffer else FIRST_READ
        self.buffer += self._file.read(min(max(end - len(self.buffer), ahead), self.limit - len(self.buffer)))
        if len(self.buffer) < end:
            self.fail("the file became shorter while it was read", len(self.buffer))

    def u32(self, what: str) -> int:
        return int(_u32(self.buffer, self.take(4, what))[0])

    def u64(self, what: str) -> int:
        return int(_u64(self.buffer, self.take(8, what))[0])

    def text(self, what: str, longest: int = MAX_HEADER) -> str:
        """One length-prefixed UTF-8 string."""
        length = self.u64(f"the length of {what}")
        if length > longest:
            self.fail(f"{what} claims {length} bytes, more than {longest}", self.pos - 8)
        start = self.take(length, what)
        try:
            return self.buffer[start : self.pos].decode()
        except UnicodeDecodeError:
            self.fail(f"{what} is not UTF-8", start)

    def value(self, kind: int, what: str) -> Any:
        """One metadata value; arrays are stepped over and checked."""
        if kind == STRING:
            return self.text(what)
        if kind == ARRAY:
            return self._array(what, 1)
        if kind == BOOL:
            byte = self.buffer[self.take(1, what)]
            if byte > 1:
                self.fail(f"{what} is a boolean with the value {byte}", self.pos - 1)
            return bool(byte)
        if kind not in SCALARS:
            self.fail(f"{what} has the unknown type {kind}")
        code = SCALARS[kind]
        return struct.unpack_from(code, self.buffer, self.take(struct.calcsize(code), what))[0]

    def _array(self, what: str, depth: int) -> StoredArray:
        kind = self.u32(f"the element type of {what}")
        count = self.u64(f"the length of {what}")
        if count > MAX_ARRAY:
            self.fail(f"{what} claims {count} elements, more than {MAX_ARRAY}", self.pos - 8)
        start = self.pos
        if kind == STRING:
            self._step_over_strings(count, what)
        elif kind == ARRAY:
            if depth == MAX_DEPTH:
                self.fail(f"{what} nests arrays more than {MAX_DEPTH} deep")
            for _ in range(count):
                self._array(what, depth + 1)
        elif kind == BOOL or kind in SCALARS:
            self.take(count * (1 if kind == BOOL else struct.calcsize(SCALARS[kind])), what)
        else:
            self.fail(f"{what} has elements of the unknown type {kind}")
        return StoredArray(kind, count, start)

    def _step_over_strings(self, count: int, what: str) -> None:
        # The one hot loop of the header: a vocabulary has 300,000 strings. Lengths are checked here, bytes at decoding.
        for _ in range(count):
            pos = self.pos
            end = pos + 8
            if end > len(self.buffer):
                self.take(8, what)
            end += _u64(self.buffer, pos)[0]
            if end > len(self.buffer):
                self.pos = pos + 8
                self.take(end - self.pos, f"a string in {what}")
            self.pos = end

    def decode_array(self, array: StoredArray) -> list[Any]:
        """The elements of an array that :meth:`value` stepped over."""
        return self._decode(array.kind, array.count, array.start)[0]

    def _decode(self, kind: int, count: int, pos: int) -> tuple[list[Any], int]:
        buffer = self.buffer
        if kind == STRING:
            texts = []
            try:
                for _ in range(count):
                    start = pos + 8
                    pos = start + _u64(buffer, pos)[0]
                    texts.append(buffer[start:pos].decode())
            except UnicodeDecodeError:
                self.fail("a metadata string is not UTF-8", start)
            return texts, pos
        if kind == ARRAY:
            lists = []
            for _ in range(count):
                inner, pos = self._decode(_u32(buffer, pos)[0], _u64(buffer, pos + 4)[0], pos + 12)
                lists.append(inner)
            return lists, pos
        dtype = np.dtype("?" if kind == BOOL else SCALARS[kind])
        return np.frombuffer(buffer, dtype, count, pos).tolist(), pos + count * dtype.itemsize


def quoted(text: str) -> str:
    """A name from a file as a short literal: nothing in it reaches the terminal as a control character."""
    return ascii(text if len(text) <= 60 else f"{text[:60]}...")

"""The header of a safetensors file, checked whole before anything else touches the file.

The layout (safetensors' README): eight bytes of little-endian header length, a JSON object of name -> dtype, shape and
``data_offsets`` relative to the end of the header, then the data.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, TypeGuard

from vivace.models.gguf_cursor import quoted
from vivace.models.json_file import invalid, parse_object

MAX_HEADER = 100_000_000  # The library's own bound.
MAX_DIMS = 4
MAX_ELEMENTS = 1 << 48
MAX_TENSOR_NAME = 256

DTYPES = {"F32": 4, "F16": 2, "BF16": 2}
"""What the engine converts: bytes of one value."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Where one tensor lies: ``offset`` is absolute, ``size`` in bytes."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int
    size: int


def read_tensors(file: BinaryIO, size: int, path: Path) -> dict[str, StoredTensor]:
    """The tensors of a safetensors file of ``size`` bytes, by name.

    Raises :class:`vivace.errors.VivaceError` (``model_file_invalid``) with what is wrong.
    """
    if size < 8:
        raise invalid(path, f"it has {size} bytes, fewer than the length of a header")
    length = int.from_bytes(file.read(8), "little")
    if length > min(MAX_HEADER, size - 8):
        raise invalid(path, f"its header claims {length} bytes, more than {min(MAX_HEADER, size - 8)}")
    data = file.read(length)
    if len(data) < length:
        raise invalid(path, "it became shorter while it was read")
    header = parse_object(data, path)
    header.pop("__metadata__", None)
    start = 8 + length
    tensors = {name: _tensor(name, entry, start, size, path) for name, entry in header.items()}
    last_name, last_end = "", start
    for name, tensor in sorted(tensors.items(), key=lambda item: item[1].offset):
        if tensor.offset < last_end:
            raise invalid(path, f"the tensors {quoted(last_name)} and {quoted(name)} overlap")
        last_name, last_end = name, tensor.offset + tensor.size
    return tensors


def _tensor(name: str, entry: Any, start: int, size: int, path: Path) -> StoredTensor:
    def fail(what: str) -> NoReturn:
        raise invalid(path, f"the tensor {quoted(name)} {what}")

    if len(name) > MAX_TENSOR_NAME:
        fail("has a name of endless length")
    if not isinstance(entry, dict):
        fail("is not described by an object")
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if dtype not in DTYPES:
        fail(f"is {quoted(str(dtype))}; supported are {', '.join(DTYPES)}")
    if not _whole_numbers(shape) or not 0 < len(shape) <= MAX_DIMS:
        fail("has no usable shape")
    elements = 1
    for extent in shape:
        elements *= extent
        if not 0 < elements <= MAX_ELEMENTS:
            fail(f"has the impossible shape {tuple(shape)}")
    if not _whole_numbers(offsets) or len(offsets) != 2:
        fail("has no usable offsets")
    first, end = offsets
    if end - first != elements * DTYPES[dtype]:
        fail(f"has {end - first} bytes instead of {elements * DTYPES[dtype]}")
    if end > size - start:
        fail(f"ends {end - (size - start)} bytes past the end of the file")
    return StoredTensor(path, dtype, tuple(shape), start + first, end - first)


def _whole_numbers(values: Any) -> TypeGuard[list[int]]:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 1 << 62 for value in values)

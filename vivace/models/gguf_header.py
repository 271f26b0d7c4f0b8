"""The header of a GGUF file, checked whole before anything else touches the file.

A model file comes from the network. The layout is the one in ggml's ``docs/gguf.md``: magic, version, counts, key-value
pairs, tensor infos, padding, tensor data; little-endian.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

from vivace.models.gguf_cursor import U32, Cursor, StoredArray, quoted

MAX_COUNT = 1 << 16  # Key-value pairs, and tensors: the largest published files have some thousands.
MAX_DIMS = 4
MAX_ELEMENTS = 1 << 48
MAX_KEY = 65_535  # The specification's limit.
MAX_TENSOR_NAME = 64  # GGML_MAX_NAME.

# Tensor types that the engine has kernels or conversions for: ggml's number -> name, values a block, bytes a block.
TENSOR_TYPES = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    30: ("BF16", 1, 2),
}


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where one tensor lies: numpy ``shape`` (rows first), absolute ``offset`` and ``size`` in bytes."""

    name: str
    type_id: int
    shape: tuple[int, ...]
    offset: int
    size: int


class Metadata(Mapping[str, Any]):
    """The key-value pairs; arrays become lists at their first use, because few readers want 300,000 strings."""

    def __init__(self, values: dict[str, Any], cursor: Cursor) -> None:
        self._values = values
        self._cursor = cursor

    def __getitem__(self, key: str) -> Any:
        value = self._values[key]
        if isinstance(value, StoredArray):
            value = self._values[key] = self._cursor.decode_array(value)
        return value

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


@dataclass(frozen=True, slots=True)
class Header:
    """A header that passed every check."""

    version: int
    metadata: Metadata
    tensors: dict[str, TensorInfo]


def read_header(file: BinaryIO, size: int, name: str) -> Header:
    """Reads and checks the header of a GGUF file of ``size`` bytes.

    Raises :class:`VivaceError` (``model_file_invalid``) with what is wrong and where.
    """
    cursor = Cursor(file, size, name)
    if size < 24:
        cursor.fail(f"it has {size} bytes, fewer than the smallest header")
    if cursor.buffer[cursor.take(4, "the magic") : cursor.pos] != b"GGUF":
        cursor.fail("it does not start with GGUF", 0)
    version = cursor.u32("the version")
    if version not in (2, 3):
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big") in (2, 3)
        cursor.fail("it is big-endian" if swapped else f"version {version} is not 2 or 3", 4)
    tensor_count = cursor.u64("the tensor count")
    kv_count = cursor.u64("the metadata count")
    for count, what in ((tensor_count, "tensors"), (kv_count, "metadata entries")):
        if count > MAX_COUNT:
            cursor.fail(f"it claims {count} {what}, more than {MAX_COUNT}", 8)
    metadata = _read_metadata(cursor, kv_count)
    tensors = _read_tensors(cursor, tensor_count, metadata.get("general.alignment", 32))
    return Header(version, metadata, tensors)


def _read_metadata(cursor: Cursor, count: int) -> Metadata:
    values: dict[str, Any] = {}
    for number in range(count):
        key = cursor.text(f"metadata key {number}", MAX_KEY)
        if key in values:
            cursor.fail(f"the metadata key {quoted(key)} appears twice")
        kind = cursor.u32(f"the type of {quoted(key)}")
        value = values[key] = cursor.value(kind, quoted(key))
        if key == "general.alignment" and (kind != U32 or not 0 < value <= 1 << 20 or value.bit_count() != 1):
            cursor.fail("general.alignment is not a power of two up to 1 MiB in 32 unsigned bits")
    return Metadata(values, cursor)


def _read_tensors(cursor: Cursor, count: int, alignment: int) -> dict[str, TensorInfo]:
    raw = [_read_tensor_info(cursor, number) for number in range(count)]
    data = -(-cursor.pos // alignment) * alignment
    tensors: dict[str, TensorInfo] = {}
    for info in raw:
        if info.name in tensors:
            cursor.fail(f"the tensor {quoted(info.name)} appears twice")
        if info.offset % alignment:
            cursor.fail(f"the tensor {quoted(info.name)} is not aligned to {alignment} bytes", data + info.offset)
        if info.size > cursor.size - data - info.offset:
            cursor.fail(
                f"the tensor {quoted(info.name)} needs {info.size} bytes, past the end of the file ({cursor.size})",
                data + info.offset,
            )
        tensors[info.name] = TensorInfo(info.name, info.type_id, info.shape, data + info.offset, info.size)
    last = None
    for tensor in sorted(tensors.values(), key=lambda tensor: tensor.offset):
        if last is not None and tensor.offset < last.offset + last.size:
            cursor.fail(f"the tensors {quoted(last.name)} and {quoted(tensor.name)} overlap", tensor.offset)
        last = tensor
    return tensors


def _read_tensor_info(cursor: Cursor, number: int) -> TensorInfo:
    name = cursor.text(f"the name of tensor {number}", MAX_TENSOR_NAME)
    dims = cursor.u32(f"the dimensions of {quoted(name)}")
    if not 0 < dims <= MAX_DIMS:
        cursor.fail(f"the tensor {quoted(name)} has {dims} dimensions, not 1 to {MAX_DIMS}", cursor.pos - 4)
    shape = tuple(cursor.u64(f"the shape of {quoted(name)}") for _ in range(dims))
    elements = 1
    for extent in shape:
        elements *= extent
        if not 0 < elements <= MAX_ELEMENTS:
            cursor.fail(f"the tensor {quoted(name)} has the impossible shape {shape}")
    type_id = cursor.u32(f"the type of {quoted(name)}")
    if type_id not in TENSOR_TYPES:
        known = ", ".join(entry[0] for entry in TENSOR_TYPES.values())
        cursor.fail(f"the tensor {quoted(name)} is {_type_name(type_id)}; supported are {known}", cursor.pos - 4)
    label, block, block_bytes = TENSOR_TYPES[type_id]
    if shape[0] % block:
        cursor.fail(f"rows of {quoted(name)} have {shape[0]} values, not a multiple of the {block} in a {label} block")
    # ggml lists the fastest-moving dimension first, numpy last.
    offset = cursor.u64(f"the offset of {quoted(name)}")
    return TensorInfo(name, type_id, shape[::-1], offset, elements // block * block_bytes)


def _type_name(type_id: int) -> str:
    from gguf.constants import GGMLQuantizationType

    try:
        return str(GGMLQuantizationType(type_id).name)
    except ValueError:
        return str(type_id)

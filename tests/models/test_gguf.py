"""GGUF files: good ones are read exactly, bad ones are refused with the reason and nothing else happens."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from model_samples import small_vocabulary, write_llama, write_tensors

from vivace.errors import VivaceError
from vivace.models.gguf_file import open_gguf
from vivace.models.gguf_header import TENSOR_TYPES

NAMES = [name for name, _, _ in TENSOR_TYPES.values()]


def stored(kind: Type, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Random stored bytes with finite scales, as an array that GGUFWriter takes."""
    random = np.random.default_rng(seed)
    values = random.standard_normal(shape, np.float32)
    if kind == Type.F32:
        return values
    if kind == Type.F16:
        return values.astype(np.float16)
    try:
        return gguf.quants.quantize(values, kind)
    except NotImplementedError:  # The K types: any bytes are valid, but the float16 scales should be finite.
        block, size = gguf.GGML_QUANT_SIZES[kind]
        raw = random.integers(0, 256, (*shape[:-1], shape[-1] // block, size), np.uint8)
        ends = slice(-2, None) if kind == Type.Q6_K else slice(0, 4)
        scales = random.standard_normal((*raw.shape[:-1], 2), np.float32).astype(np.float16).view(np.uint8)
        raw[..., ends] = scales[..., : 2 if kind == Type.Q6_K else 4]
        return raw.reshape(*shape[:-1], -1)


@pytest.fixture(scope="module")
def every_type(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tensors = {name: (stored(Type[name], (40, 512), seed), Type[name]) for seed, name in enumerate(NAMES)}
    tensors["cube"] = (stored(Type.Q8_0, (3, 4, 64)), Type.Q8_0)
    return write_tensors(tmp_path_factory.mktemp("gguf") / "every.gguf", tensors)


def test_the_type_table_is_ggmls() -> None:
    for number, (name, block, size) in TENSOR_TYPES.items():
        assert Type(number).name == name
        assert gguf.GGML_QUANT_SIZES[Type(number)] == (block, size)


@pytest.mark.parametrize("name", NAMES)
def test_values_equal_the_librarys(every_type: Path, name: str) -> None:
    reader = gguf.GGUFReader(every_type)
    tensor = next(tensor for tensor in reader.tensors if tensor.name == name)
    expected = gguf.quants.dequantize(np.asarray(tensor.data), tensor.tensor_type).astype(np.float32)
    with open_gguf(every_type) as file:
        assert file.tensor_shape(name) == (40, 512)
        assert file.tensor_type(name) == name
        whole = file.dequantize(name)
        assert whole.dtype == np.float32
        np.testing.assert_array_equal(whole, expected)
        np.testing.assert_array_equal(file.dequantize(name, slice(7, 19)), expected[7:19])
        assert file.dequantize(name, slice(5, 5)).shape == (0, 512)


def test_metadata_and_other_shapes(every_type: Path) -> None:
    with open_gguf(every_type) as file:
        assert file.metadata["general.architecture"] == "llama"
        assert file.metadata["test.words"] == ["one", "zwei", "三"]
        assert file.metadata["test.numbers"] == [1, 2, 3]
        assert file.metadata["test.flag"] is True
        assert file.metadata.get("absent") is None
        assert file.tensor_names == [*NAMES, "cube"]
        assert file.dequantize("cube").shape == (3, 4, 64)
        np.testing.assert_array_equal(file.dequantize("cube", slice(1, 2)), file.dequantize("cube")[1:2])
        with pytest.raises(VivaceError, match="no tensor 'nothing'"):
            file.dequantize("nothing")


def test_a_file_cut_while_open_is_an_error(every_type: Path, tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(every_type.read_bytes())
    with open_gguf(path) as file:
        with path.open("r+b") as cut:
            cut.truncate(path.stat().st_size // 2)
        with pytest.raises(VivaceError, match="the file changed"):
            file.raw("cube")


def kv(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def tensor(name: str, dims: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def build(*pairs: bytes, tensors: tuple[bytes, ...] = (), data: int = 4096, start: bytes = b"GGUF\3\0\0\0") -> bytes:
    counts = struct.pack("<QQ", len(tensors), len(pairs))
    head = start + counts + b"".join(pairs) + b"".join(tensors)
    return head + bytes(-len(head) % 32 + data)


HUGE = struct.pack("<Q", 1 << 62)
HOSTILE = {
    "empty": (b"", "fewer than the smallest header"),
    "other format": (b"PK\3\4" + bytes(60), "does not start with GGUF"),
    "version 1": (b"GGUF\1\0\0\0" + bytes(60), "version 1 is not 2 or 3"),
    "big-endian": (b"GGUF\0\0\0\3" + bytes(60), "big-endian"),
    "many tensors": (b"GGUF\3\0\0\0" + HUGE + bytes(60), "claims 4611686018427387904 tensors"),
    "many pairs": (b"GGUF\3\0\0\0" + bytes(8) + HUGE + bytes(60), "metadata entries"),
    "long key": (build(HUGE + b"k"), "metadata key 0 claims"),
    "long string": (build(kv("k", 8, HUGE)), "'k' claims"),
    "long value": (build(kv("k", 8, struct.pack("<Q", 1 << 20))), "past the end of the file"),
    "long array": (build(kv("k", 9, struct.pack("<I", 0) + HUGE)), "claims 4611686018427387904 elements"),
    "array past the end": (build(kv("k", 9, struct.pack("<IQ", 10, 1 << 20))), "past the end of the file"),
    "string in array": (build(kv("k", 9, struct.pack("<IQ", 8, 1) + HUGE)), "a string in 'k'"),
    "deep array": (build(kv("k", 9, struct.pack("<IQ", 9, 1) * 50)), "nests arrays"),
    "unknown value": (build(kv("k", 77, b"")), "unknown type 77"),
    "unknown element": (build(kv("k", 9, struct.pack("<IQ", 13, 1))), "unknown type 13"),
    "odd boolean": (build(kv("k", 7, b"\2")), "boolean with the value 2"),
    "not UTF-8": (build(kv("k", 8, text(b"\xff"))), "not UTF-8"),
    "key twice": (build(kv("k", 0, b"\1"), kv("k", 0, b"\1")), "'k' appears twice"),
    "alignment 24": (build(kv("general.alignment", 4, struct.pack("<I", 24))), "power of two"),
    "alignment 0": (build(kv("general.alignment", 4, bytes(4))), "power of two"),
    "alignment text": (build(kv("general.alignment", 8, text("32"))), "power of two"),
    "no dimensions": (build(tensors=(tensor("t", ()),)), "0 dimensions"),
    "many dimensions": (build(tensors=(tensor("t", (1,) * 5),)), "5 dimensions"),
    "zero extent": (build(tensors=(tensor("t", (4, 0)),)), "impossible shape"),
    "overflow": (build(tensors=(tensor("t", (1 << 32, 1 << 32)),)), "impossible shape"),
    "unknown tensor type": (build(tensors=(tensor("t", (32,), 999),)), "is 999; supported are F32"),
    "unsupported type": (build(tensors=(tensor("t", (256,), 23),)), "is IQ4_XS; supported are F32"),
    "broken block": (build(tensors=(tensor("t", (33,), 8),)), "not a multiple of the 32"),
    "past the end": (build(tensors=(tensor("t", (2048,)),)), "past the end of the file"),
    "far offset": (build(tensors=(tensor("t", (8,), 0, (1 << 64) - 32),)), "past the end of the file"),
    "unaligned": (build(tensors=(tensor("t", (8,), 0, 8),)), "not aligned"),
    "overlap": (build(tensors=(tensor("a", (64,)), tensor("b", (8,), 0, 128))), "'a' and 'b' overlap"),
    "same place": (build(tensors=(tensor("a", (8,)), tensor("b", (8,)))), "overlap"),
    "name twice": (build(tensors=(tensor("t", (8,)), tensor("t", (8,), 0, 64))), "'t' appears twice"),
    "long name": (build(tensors=(tensor("t" * 65, (8,)),)), "the name of tensor 0 claims 65"),
    "escape in a name": (build(tensors=(tensor("\x1b[2J", (8,), 999),)), r"'\\x1b\[2J'"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_files_are_refused_with_the_reason(tmp_path: Path, case: str) -> None:
    data, reason = HOSTILE[case]
    path = tmp_path / "hostile.gguf"
    path.write_bytes(data)
    with pytest.raises(VivaceError, match=reason) as caught:
        open_gguf(path)
    assert caught.value.code == "model_file_invalid"
    assert str(path) in caught.value.message
    assert "at byte" in caught.value.message


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.gguf", tmp_path, Path("/dev/zero"), tmp_path / "a\0b"):
        with pytest.raises(VivaceError) as caught:
            open_gguf(path)
        assert caught.value.code == "model_file_unreadable"


def opens_or_refuses(path: Path) -> None:
    try:
        with open_gguf(path) as file:
            for key in file.metadata:
                assert file.metadata[key] is not None
            for name in file.tensor_names:
                file.dequantize(name)
    except VivaceError as error:
        assert error.code == "model_file_invalid"


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    whole = write_llama(tmp_path / "whole.gguf", small_vocabulary("qwen2")).read_bytes()
    path = tmp_path / "part.gguf"
    for length in [*range(400), *range(400, len(whole) - 1, 97), len(whole) - 33]:
        path.write_bytes(whole[:length])
        with pytest.raises(VivaceError):
            open_gguf(path)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_mutated_files_open_or_are_refused(tmp_path: Path, data: st.DataObject) -> None:
    whole = bytearray(build(
        kv("general.architecture", 8, text("llama")),
        kv("words", 9, struct.pack("<IQ", 8, 2) + text("one") + text("zwei")),
        kv("nested", 9, struct.pack("<IQ", 9, 1) + struct.pack("<IQ3f", 6, 3, 1, 2, 3)),
        kv("flag", 7, b"\1"),
        tensors=(tensor("a", (32, 2), 8), tensor("b", (8,), 0, 96), tensor("c", (256,), 12, 128)),
        data=512,
    ))  # fmt: skip
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(whole) - 8))
        patch = data.draw(
            st.one_of(
                st.binary(min_size=1, max_size=8),
                st.sampled_from([0, 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1]).map(lambda value: struct.pack("<Q", value)),
            )
        )
        whole[at : at + len(patch)] = patch
    path = tmp_path / "mutated.gguf"
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole)))] if data.draw(st.booleans()) else whole)
    tracemalloc.start()
    try:
        opens_or_refuses(path)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()

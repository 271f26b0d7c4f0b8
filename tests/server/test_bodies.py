"""Unpacking: every packing gives back what was packed, and nothing unpacks to more than the limit."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from vivace.protocol.errors import BadRequest
from vivace.server.bodies import unpack


def bare_deflate(data: bytes) -> bytes:
    machine = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return machine.compress(data) + machine.flush()


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


PACKINGS: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("gzip", gzip.compress),
    ("deflate", zlib.compress),
    ("deflate", bare_deflate),
    ("zstd", zstd),
    ("identity", bytes),
]


@pytest.mark.parametrize(("encoding", "pack"), PACKINGS)
@given(st.binary(max_size=2000))
def test_what_was_packed_comes_back(encoding: str, pack: Callable[[bytes], bytes], data: bytes) -> None:
    assert unpack(pack(data), encoding, 2000) == data


@pytest.mark.parametrize(("encoding", "pack"), PACKINGS[:4])
@pytest.mark.parametrize("size", [100, 101])
def test_the_limit_is_exact(encoding: str, pack: Callable[[bytes], bytes], size: int) -> None:
    packed = pack(b"a" * size)
    if size == 100:
        assert unpack(packed, encoding, 100) == b"a" * 100
        return
    with pytest.raises(BadRequest) as refusal:
        unpack(packed, encoding, 100)
    assert refusal.value.status == 413


@pytest.mark.parametrize(("encoding", "pack"), PACKINGS[:4])
@given(st.binary(min_size=1, max_size=300), st.data())
def test_cut_or_broken_packings_are_refused_or_right(
    encoding: str, pack: Callable[[bytes], bytes], data: bytes, draw: st.DataObject
) -> None:
    packed = bytearray(pack(data))
    packed[draw.draw(st.integers(0, len(packed) - 1))] ^= draw.draw(st.integers(1, 255))
    try:
        assert len(unpack(bytes(packed), encoding, 1000)) <= 1000
    except BadRequest as refusal:
        assert refusal.status in (400, 413)


@pytest.mark.parametrize(("encoding", "pack"), PACKINGS[:4])
def test_a_packing_without_its_end_is_refused(encoding: str, pack: Callable[[bytes], bytes]) -> None:
    with pytest.raises(BadRequest):
        unpack(pack(b"hello" * 100)[:-6], encoding, 10_000)


def test_several_gzip_members_are_one_body() -> None:
    assert unpack(gzip.compress(b"ab") + gzip.compress(b"cd"), "gzip", 100) == b"abcd"


def test_unknown_encodings_are_named() -> None:
    with pytest.raises(BadRequest) as refusal:
        unpack(b"x", "br", 10)
    assert refusal.value.status == 415 and "'br'" in refusal.value.message

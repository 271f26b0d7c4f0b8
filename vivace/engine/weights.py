"""Weights as the engine multiplies them, converted once and then mapped from disk.

A converted model is a folder in the cache: ``weights.bin`` (arrays, page-aligned) and ``index.msgpack`` (what lies
where). Linear layers that read the same input are one matrix: ``qkv`` (q, k, v rows) and ``gateup`` (gate, up rows).
Query and key rows are in half-split rotary order for every architecture.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from filelock import FileLock
from msgspec import Struct
from numpy.typing import NDArray

from vivace.engine.spec import ModelSpec, expected_shapes, spec_from_gguf
from vivace.models.gguf_file import GGUFFile, open_gguf

FORMAT = 1
"""Raised whenever the converted layout changes, so that old caches are not read."""

Kind = Literal["int8", "bf16", "fp32"]
Array = NDArray[Any]
Report = Callable[[str, float], None]


class Entry(Struct, frozen=True):
    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int


class Index(Struct, frozen=True):
    format: int
    kind: str
    spec: ModelSpec
    entries: list[Entry]


class Weights(Struct, frozen=True):
    """``arrays`` by name: ``embed`` (bf16 bits), ``norm``, ``head.*`` and ``layers.N.{attn_norm,ffn_norm,q_norm,...}``.

    A linear layer ``L`` is ``L.q`` (int8 ``[out, in]``) and ``L.s`` (float32 ``[out]``), or ``L.w`` (float32, or bf16
    bits as uint16), or what the packer made of it; ``L.b`` is its bias where it has one.
    """

    spec: ModelSpec
    kind: str
    arrays: dict[str, Array]
    folder: Path


def load_weights(
    model_path: Path, cache_dir: Path, kind: Kind, report: Report, packer: Packer | None = None
) -> Weights:
    """The converted weights of a GGUF file, converting it first where that was not done before.

    Raises :class:`vivace.errors.VivaceError` for a file that the engine cannot run.
    """
    name = kind if packer is None else f"{kind}-{packer.layout}"
    folder = cache_dir / "converted" / f"{_identity(model_path)}-{name}-v{FORMAT}"
    if not (folder / "index.msgpack").exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            if not (folder / "index.msgpack").exists():
                _convert_into(folder, model_path, kind, report, packer)
    return _map(folder)


class Packer(Struct, frozen=True):
    """How int8 matrices are laid out for kernels that want it.

    ``pack`` makes the arrays that replace ``q``; ``join_gate_up`` decides the order of those matrices' rows.
    """

    layout: str
    pack: Callable[[Array], dict[str, Array]]
    join_gate_up: Callable[[Array, Array], Array]


def bf16_bits(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """float32 to the bits of bfloat16, rounding to nearest even."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def quantise_rows(matrix: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """int8 weights, symmetric per output channel: ``matrix ~ q * scale[:, None]``."""
    scale = (np.abs(matrix).max(axis=1) / 127.0).astype(np.float32)
    scale[scale == 0] = 1.0
    return np.rint(matrix / scale[:, None]).astype(np.int8), scale


def _identity(model_path: Path) -> str:
    stat = model_path.stat()
    text = f"{model_path.resolve()}|{stat.st_size}|{stat.st_mtime_ns}"
    return f"{model_path.stem[:40]}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _map(folder: Path) -> Weights:
    index = msgspec.msgpack.decode((folder / "index.msgpack").read_bytes(), type=Index)
    data = np.memmap(folder / "weights.bin", dtype=np.uint8, mode="r")
    arrays: dict[str, Array] = {}
    for entry in index.entries:
        dtype = np.dtype(entry.dtype)
        size = dtype.itemsize * int(np.prod(entry.shape))
        arrays[entry.name] = data[entry.offset : entry.offset + size].view(dtype).reshape(entry.shape)
    return Weights(index.spec, index.kind, arrays, folder)


def _convert_into(folder: Path, model_path: Path, kind: Kind, report: Report, packer: Packer | None) -> None:
    with open_gguf(model_path) as source:
        spec = spec_from_gguf(source.metadata, {name: source.tensor_shape(name) for name in source.tensor_names})
        total = len(expected_shapes(spec))
        staging = Path(tempfile.mkdtemp(prefix=folder.name + ".", dir=folder.parent))
        try:
            entries: list[Entry] = []
            with (staging / "weights.bin").open("wb") as out:
                for done, (name, array) in enumerate(_converted(source, spec, kind, packer)):
                    out.write(b"\0" * (-out.tell() % 4096))
                    entries.append(Entry(name, array.dtype.str, array.shape, out.tell()))
                    out.write(np.ascontiguousarray(array).data)
                    report("converting", min(1.0, done / (2 * total)))
                out.flush()
                os.fsync(out.fileno())
            index = Index(FORMAT, kind, spec, entries)
            (staging / "index.msgpack").write_bytes(msgspec.msgpack.encode(index))
            shutil.rmtree(folder, ignore_errors=True)
            staging.rename(folder)
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise


def _converted(source: GGUFFile, spec: ModelSpec, kind: Kind, packer: Packer | None) -> Iterator[tuple[str, Array]]:
    def linear(name: str, *parts: Array, bias: Array | None = None) -> Iterator[tuple[str, Array]]:
        matrix = np.concatenate(parts) if len(parts) > 1 else parts[0]
        if kind == "fp32":
            yield f"{name}.w", matrix
        elif kind == "bf16":
            yield f"{name}.w", bf16_bits(matrix)
        else:
            q, scale = quantise_rows(matrix)
            yield f"{name}.s", scale
            for part, array in (packer.pack(q) if packer else {"q": q}).items():
                yield f"{name}.{part}", array
        if bias is not None:
            yield f"{name}.b", bias

    def unpermuted(rows: Array, heads: int) -> Array:
        """GGUF keeps q and k of the llama family in interleaved rotary order; bring them to half-split order."""
        if spec.architecture != "llama":
            return rows
        split = rows.reshape(heads, spec.head_dim // 2, 2, *rows.shape[1:])
        return split.swapaxes(1, 2).reshape(rows.shape)

    embed = source.dequantize("token_embd.weight")
    yield "embed", embed if kind == "fp32" else bf16_bits(embed)
    yield "norm", source.dequantize("output_norm.weight")
    yield from linear("head", embed if spec.tied_head else source.dequantize("output.weight"))
    del embed
    for layer in range(spec.layers):
        read = partial(_read, source, f"blk.{layer}.")
        into = f"layers.{layer}."
        yield into + "attn_norm", read("attn_norm.weight")
        yield into + "ffn_norm", read("ffn_norm.weight")
        bias = None
        if spec.qkv_bias:
            q_bias = unpermuted(read("attn_q.bias"), spec.heads)
            bias = np.concatenate([q_bias, unpermuted(read("attn_k.bias"), spec.kv_heads), read("attn_v.bias")])
        q = unpermuted(read("attn_q.weight"), spec.heads)
        k = unpermuted(read("attn_k.weight"), spec.kv_heads)
        yield from linear(into + "qkv", q, k, read("attn_v.weight"), bias=bias)
        yield from linear(into + "o", read("attn_output.weight"))
        gate, up = read("ffn_gate.weight"), read("ffn_up.weight")
        yield from linear(into + "gateup", *([packer.join_gate_up(gate, up)] if packer else [gate, up]))
        yield from linear(into + "down", read("ffn_down.weight"))


def _read(source: GGUFFile, part: str, name: str) -> Array:
    return source.dequantize(part + name)

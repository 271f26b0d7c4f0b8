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
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
from filelock import FileLock
from msgspec import Struct
from numpy.typing import NDArray

from vivace.engine.spec import ModelSpec, expected_shapes, read_spec
from vivace.models.files import state_of
from vivace.models.weight_source import WeightSource, open_model

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
    bits as uint16), or what the packer made of it; ``L.b`` is its bias where it has one. Sparse experts are two such
    layers with one more dimension in front, ``experts.gateup`` and ``experts.down``, beside ``router`` (float32).
    """

    spec: ModelSpec
    kind: str
    arrays: dict[str, Array]
    folder: Path


def load_weights(
    model_path: Path, cache_dir: Path, kind: Kind, report: Report, packer: Packer | None = None
) -> Weights:
    """The converted weights of a GGUF file or model folder, converting it first where that was not done before.

    Raises :class:`vivace.errors.VivaceError` for a file that the engine cannot run.
    """
    folder = converted_folder(model_path, cache_dir, kind, packer)
    if not (folder / "index.msgpack").exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            if not (folder / "index.msgpack").exists():
                _convert_into(folder, model_path, kind, report, packer)
    return _map(folder)


def converted_folder(model_path: Path, cache_dir: Path, kind: Kind, packer: Packer | None = None) -> Path:
    """Where the converted weights of this very file are kept, or will be."""
    name = kind if packer is None else f"{kind}-{packer.layout}"
    return cache_dir / "converted" / f"{_identity(model_path)}-{name}-v{FORMAT}"


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
    size, changed = state_of(model_path)
    text = f"{model_path.resolve()}|{size}|{changed}"
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
    with open_model(model_path) as source:
        spec = read_spec(source)
        total = len(expected_shapes(spec))
        staging = Path(tempfile.mkdtemp(prefix=folder.name + ".", dir=folder.parent))
        try:
            entries: list[Entry] = []
            with (staging / "weights.bin").open("wb") as out:
                for done, (name, array) in enumerate(_converted(source, spec, kind, packer)):
                    out.write(b"\0" * (-out.tell() % 4096))
                    entries.append(Entry(name, array.dtype.str, array.shape, out.tell()))
                    for piece in array.pieces if isinstance(array, Stacked) else [array]:
                        out.write(np.ascontiguousarray(piece).data)
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


class Stacked(NamedTuple):
    """An array that is made and written piece by piece along its first dimension: all experts never are in memory."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    pieces: Iterator[Array]


def _converted(
    source: WeightSource, spec: ModelSpec, kind: Kind, packer: Packer | None
) -> Iterator[tuple[str, Array | Stacked]]:
    """What ``weights.bin`` holds, in its order. The pieces of a stack are to be taken before the next item."""

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
        """Bring q and k from interleaved rotary order to half-split order."""
        if not source.interleaved_rotary:
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
        if spec.qk_norm:
            yield into + "q_norm", read("attn_q_norm.weight")
            yield into + "k_norm", read("attn_k_norm.weight")
        if spec.experts:
            yield into + "router", read("ffn_gate_inp.weight")
            one = partial(_expert, source, f"blk.{layer}.")
            yield from _experts(into + "experts.gateup", partial(one, ["ffn_gate_exps", "ffn_up_exps"]), spec, kind)
            yield from _experts(into + "experts.down", partial(one, ["ffn_down_exps"]), spec, kind)
            continue
        gate, up = read("ffn_gate.weight"), read("ffn_up.weight")
        yield from linear(into + "gateup", *([packer.join_gate_up(gate, up)] if packer else [gate, up]))
        yield from linear(into + "down", read("ffn_down.weight"))


def _experts(
    name: str, read: Callable[[int], Array], spec: ModelSpec, kind: Kind
) -> Iterator[tuple[str, Array | Stacked]]:
    """The same matrix of every expert, ``read(expert)`` [out, in], stacked."""
    out, width = (2 * spec.expert_ffn, spec.hidden) if name.endswith("gateup") else (spec.hidden, spec.expert_ffn)
    shape = (spec.experts, out, width)
    if kind == "fp32":
        yield f"{name}.w", Stacked(np.dtype(np.float32), shape, (read(e) for e in range(spec.experts)))
    elif kind == "bf16":
        yield f"{name}.w", Stacked(np.dtype(np.uint16), shape, (bf16_bits(read(e)) for e in range(spec.experts)))
    else:
        scales = np.empty(shape[:2], np.float32)

        def quantised() -> Iterator[Array]:
            for expert in range(spec.experts):
                q, scales[expert] = quantise_rows(read(expert))
                yield q

        yield f"{name}.q", Stacked(np.dtype(np.int8), shape, quantised())
        yield f"{name}.s", scales


def _expert(source: WeightSource, part: str, names: list[str], expert: int) -> Array:
    """The rows of one expert's matrices, one under the other; nothing else is read."""
    chosen = slice(expert, expert + 1)
    return np.concatenate([source.dequantize(f"{part}{name}.weight", chosen)[0] for name in names])


def _read(source: WeightSource, part: str, name: str) -> Array:
    return source.dequantize(part + name)

"""The native engine seen from Python: thin classes over the C ABI that take and give numpy arrays.

Each call drops the interpreter lock. Arrays handed over are kept alive by the object that uses them.
"""

from __future__ import annotations

import ctypes as c
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vivace.engine.native.library import (
    BatchStruct,
    ConfigStruct,
    LayerStruct,
    LinearStruct,
    SpanStruct,
    WeightsStruct,
    load,
)

KV_BLOCK = 32
ISA_AUTO, ISA_PORTABLE, ISA_AVX2, ISA_AVX512, ISA_AMX, ISA_AVXVNNI = -1, 0, 1, 2, 3, 4
FLAG_PIN, FLAG_PROFILE = 1, 2
OK, ABORTED = 0, 1

Int8 = NDArray[np.int8]
Int32 = NDArray[np.int32]
Float32 = NDArray[np.float32]
BFloat16 = NDArray[np.uint16]
"""bf16 values as their bit patterns."""


class NativeError(RuntimeError):
    """The native library refused a call; the message says why."""


def isa_best() -> int:
    return int(load().vv_isa_best())


def isa_name(isa: int) -> str | None:
    """None where this machine cannot run it."""
    name = load().vv_isa_name(isa)
    return name.decode() if name else None


def _error() -> NativeError:
    return NativeError((load().vv_error() or b"").decode())


def _checked(status: int) -> int:
    if status < 0:
        raise _error()
    return status


def _padded(values: NDArray[Any], dtype: Any, n: int) -> NDArray[Any]:
    """The kernels read whole panels of 16 columns."""
    out = np.zeros(-(-n // 16) * 16, dtype)
    out[:n] = values
    return out


@dataclass(frozen=True)
class Linear:
    """A packed [n][k] matrix. Arrays may be views of a mapped file; scale, colsum and bias are padded to 16."""

    w: Int8
    scale: Float32
    colsum: Int32
    bias: Float32 | None
    n: int
    k: int

    def struct(self) -> LinearStruct:
        padded = -(-self.n // 16) * 16
        _require(self.w, np.int8, int(load().vv_packed_size(self.n, self.k)), "w")
        _require(self.scale, np.float32, padded, "scale")
        _require(self.colsum, np.int32, padded, "colsum")
        if self.bias is not None:
            _require(self.bias, np.float32, padded, "bias")
        bias = None if self.bias is None else self.bias.ctypes.data
        return LinearStruct(self.w.ctypes.data, self.scale.ctypes.data, self.colsum.ctypes.data, bias, self.n, self.k)


@dataclass(frozen=True)
class Layer:
    attn_norm: Float32
    qkv: Linear
    o: Linear
    ffn_norm: Float32
    gate_up: Linear
    down: Linear
    q_norm: Float32 | None = None
    k_norm: Float32 | None = None


@dataclass(frozen=True)
class Weights:
    embed: BFloat16
    layers: Sequence[Layer]
    final_norm: Float32
    head: Linear


@dataclass(frozen=True)
class Config:
    """Shapes of a dense decoder; the fields are those of vv_config in vivace_native.h."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    rope_theta: float
    rms_eps: float
    max_rows: int = 256
    max_positions: int = 32768
    rope_dim: int = 0
    rope_interleaved: bool = False
    inv_freq: NDArray[np.float64] | None = None
    rope_attn_factor: float = 1.0
    pin: bool = False
    profile: bool = False
    idle_spin_us: int = -1


@dataclass(frozen=True)
class Span:
    """`rows` new positions of one sequence from position `start`; `blocks` (int32) covers start + rows positions."""

    blocks: Int32
    start: int
    rows: int


@dataclass(frozen=True)
class Output:
    aborted: bool
    argmax: Int32
    argmax_logit: Float32
    argmax_weight: Float32
    logits: Float32


def _require(a: NDArray[Any], dtype: Any, size: int, what: str) -> None:
    if a.dtype != dtype or a.size != size or not a.flags.c_contiguous:
        raise ValueError(f"{what}: needs {size} contiguous {np.dtype(dtype).name}, got {a.size} of {a.dtype}")


def quantize(w: Float32) -> tuple[Int8, Float32]:
    """Symmetric int8 per row of [n][k], and the scales."""
    w = np.ascontiguousarray(w, np.float32)
    n, k = w.shape
    out, scale = np.empty((n, k), np.int8), np.empty(n, np.float32)
    _checked(load().vv_quantize(w.ctypes.data, n, k, out.ctypes.data, scale.ctypes.data))
    return out, scale


def pack(w: Int8, scale: Float32, bias: Float32 | None = None) -> Linear:
    """int8 [n][k] and its scales in the layout of the kernels."""
    w = np.ascontiguousarray(w, np.int8)
    n, k = w.shape
    packed = np.empty(load().vv_packed_size(n, k), np.int8)
    colsum = np.zeros(-(-n // 16) * 16, np.int32)
    _checked(load().vv_pack(w.ctypes.data, n, k, packed.ctypes.data, colsum.ctypes.data))
    padded = None if bias is None else _padded(bias, np.float32, n)
    return Linear(packed, _padded(scale, np.float32, n), colsum, padded, n, k)


def interleave(gate: NDArray[Any], up: NDArray[Any]) -> NDArray[Any]:
    """Rows (or values) of gate and up in turns of 16, as the gate_up matrix wants them."""
    if gate.shape != up.shape or gate.shape[0] % 16:
        raise ValueError(f"gate and up need equal shapes and a multiple of 16 rows, got {gate.shape} and {up.shape}")
    rest = gate.shape[1:]
    both = np.stack([gate.reshape(-1, 16, *rest), up.reshape(-1, 16, *rest)], axis=1)
    return np.ascontiguousarray(both.reshape(-1, *rest))


def gemm_int32(isa: int, a: Int8, linear: Linear) -> Int32:
    """a [m][k] times the matrix, exact sums [m][n]."""
    a = np.ascontiguousarray(a, np.int8)
    m, padded = a.shape[0], linear.colsum.size
    out = np.empty((m, padded), np.int32)
    status = load().vv_gemm_int32(
        isa, a.ctypes.data, m, linear.w.ctypes.data, linear.colsum.ctypes.data, linear.n, linear.k, out.ctypes.data
    )
    _checked(status)
    return out[:, : linear.n]


def probe(kind: int, threads: int, size: int = 1 << 28, seconds: float = 0.3) -> float:
    """0: bytes/s read from memory; 1: int8 op/s; 2: bf16 flop/s of register-only tile products (0 without AMX)."""
    return float(load().vv_probe(kind, threads, size, seconds))


class Model:
    """A decoder over borrowed weights, with its own threads and scratch. One caller at a time."""

    def __init__(self, config: Config, weights: Weights, threads: int = 0, isa: int = ISA_AUTO) -> None:
        """threads 0: every CPU the process may use. NativeError when the shapes do not fit."""
        self.config = config
        self._weights = weights
        self._library = load()
        self._handle: int | None = None
        f = config
        if len(weights.layers) != f.layers:
            raise ValueError(f"{f.layers} layers in the configuration, {len(weights.layers)} in the weights")
        _require(weights.embed, np.uint16, f.vocab * f.hidden, "embed")
        inv_freq = None
        if f.inv_freq is not None:
            _require(f.inv_freq, np.float64, (f.rope_dim or f.head_dim) // 2, "inv_freq")
            inv_freq = f.inv_freq.ctypes.data
        flags = FLAG_PIN * f.pin | FLAG_PROFILE * f.profile
        native = ConfigStruct(
            f.layers, f.hidden, f.heads, f.kv_heads, f.head_dim, f.ffn, f.vocab, f.rope_dim, int(f.rope_interleaved),
            f.max_rows, f.max_positions, flags, f.idle_spin_us, 0, f.rope_theta, f.rms_eps, inv_freq,
            f.rope_attn_factor,
        )  # fmt: skip

        def vector(a: Float32 | None, size: int, what: str) -> int | None:
            if a is None:
                return None
            _require(a, np.float32, size, what)
            return int(a.ctypes.data)

        layers = (LayerStruct * f.layers)(
            *(
                LayerStruct(
                    vector(w.attn_norm, f.hidden, "attn_norm"),
                    w.qkv.struct(),
                    vector(w.q_norm, f.head_dim, "q_norm"),
                    vector(w.k_norm, f.head_dim, "k_norm"),
                    w.o.struct(),
                    vector(w.ffn_norm, f.hidden, "ffn_norm"),
                    w.gate_up.struct(),
                    w.down.struct(),
                )
                for w in weights.layers
            )
        )
        final_norm = vector(weights.final_norm, f.hidden, "final_norm")
        all_weights = WeightsStruct(weights.embed.ctypes.data, layers, final_norm, weights.head.struct())
        self._handle = self._library.vv_model_create(c.byref(native), c.byref(all_weights), threads, isa)
        if not self._handle:
            raise _error()

    @property
    def handle(self) -> int:
        if self._handle is None:
            raise NativeError("the model is closed")
        return self._handle

    def close(self) -> None:
        """Stops the threads and frees the scratch. KV memories of this model are closed on their own."""
        if self._handle is not None:
            self._library.vv_model_free(self._handle)
            self._handle = None

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.close()

    def forward(
        self,
        kv: KV,
        tokens: Int32,
        spans: Sequence[Span],
        argmax_rows: Int32 | None = None,
        logit_rows: Int32 | None = None,
        abort: Int32 | None = None,
        logits_out: Float32 | None = None,
        argmax_sharpness: Float32 | None = None,
    ) -> Output:
        """One step over the joined rows of `spans`.

        argmax_rows, logit_rows: indices into the joined rows. abort: one int32 that another thread may set to
        non-zero. logits_out: [len(logit_rows)][vocab] to write to instead of a new array. argmax_sharpness: 1 /
        temperature for each of argmax_rows; Output.argmax_weight is then the sum of exp((logit - largest) /
        temperature), to 1e-5, and its inverse the probability of the arg max (0 sharpness: nothing is summed).
        """
        tokens = np.ascontiguousarray(tokens, np.int32)
        best = np.ascontiguousarray([] if argmax_rows is None else argmax_rows, np.int32)
        full = np.ascontiguousarray([] if logit_rows is None else logit_rows, np.int32)
        tables = [np.ascontiguousarray(s.blocks, np.int32) for s in spans]
        for s, table in zip(spans, tables, strict=True):
            if table.size * KV_BLOCK < s.start + s.rows:
                raise ValueError(f"{table.size} KV blocks do not cover {s.start + s.rows} positions")
        native = (SpanStruct * len(spans))(
            *(SpanStruct(table.ctypes.data, s.start, s.rows) for s, table in zip(spans, tables, strict=True))
        )
        argmax, value = np.zeros(best.size, np.int32), np.zeros(best.size, np.float32)
        logits = np.empty((full.size, self.config.vocab), np.float32) if logits_out is None else logits_out
        _require(logits, np.float32, full.size * self.config.vocab, "logits_out")
        weight = np.zeros(best.size, np.float32)
        if argmax_sharpness is not None:
            _require(argmax_sharpness, np.float32, best.size, "argmax_sharpness")
        sharpness = None if argmax_sharpness is None else argmax_sharpness.ctypes.data
        if abort is not None:
            _require(abort, np.int32, 1, "abort")
        batch = BatchStruct(
            tokens.ctypes.data, native, best.ctypes.data, argmax.ctypes.data, value.ctypes.data, sharpness,
            weight.ctypes.data, full.ctypes.data, logits.ctypes.data, tokens.size, len(spans), best.size, full.size,
        )  # fmt: skip
        flag = None if abort is None else abort.ctypes.data
        status = _checked(self._library.vv_forward(self.handle, kv.handle, c.byref(batch), flag))
        return Output(status == ABORTED, argmax, value, weight, logits)

    def logits(self, index: int) -> Float32:
        """The logits [vocab] of one output row of the last forward(), those of argmax_rows first."""
        out = np.empty(self.config.vocab, np.float32)
        _checked(self._library.vv_logits(self.handle, index, out.ctypes.data))
        return out

    def profile(self) -> dict[str, float]:
        """Seconds per phase since creation or the last reset; needs Config.profile."""
        seconds = np.zeros(int(self._library.vv_profile(self.handle, None)), np.float64)
        self._library.vv_profile(self.handle, seconds.ctypes.data)
        names = (self._library.vv_profile_name(i) for i in range(seconds.size))
        return {name.decode(): float(s) for name, s in zip(names, seconds, strict=True)}

    def profile_reset(self) -> None:
        self._library.vv_profile_reset(self.handle)


class KV:
    """Paged key/value memory of a model: `blocks` blocks of 32 positions, resident once written.

    int8: about half the memory of bf16; one scale per position and kv head, of K and of V.
    """

    def __init__(self, model: Model, blocks: int, int8: bool = False) -> None:
        self._library = load()
        self._handle: int | None = self._library.vv_kv_create(model.handle, blocks, int(int8))
        if not self._handle:
            raise _error()
        self.blocks = blocks
        self.int8 = int8
        self.block_bytes = int(self._library.vv_kv_block_bytes(self._handle))

    @property
    def handle(self) -> int:
        if self._handle is None:
            raise NativeError("the KV memory is closed")
        return self._handle

    def copy_block(self, src: int, dst: int) -> None:
        _checked(self._library.vv_kv_copy_block(self.handle, src, dst))

    def drop_blocks(self, first: int, count: int) -> None:
        """Gives the blocks' memory back to the system; they then read as zero."""
        _checked(self._library.vv_kv_drop_blocks(self.handle, first, count))

    def close(self) -> None:
        if self._handle is not None:
            self._library.vv_kv_free(self._handle)
            self._handle = None

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.close()

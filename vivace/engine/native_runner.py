"""The model on the compiled CPU kernels: one native call per pass, W8A8 as in the PyTorch runner.

A row's result does not depend on what else is in the pass, so drafts are verified exactly. PyTorch is not imported.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vivace.engine import native
from vivace.engine.messages import KvType
from vivace.engine.runner import AbortFlag, Likeliest, Rows, Span
from vivace.engine.weights import Array, Packer, Weights


def packer() -> Packer:
    """int8 matrices in the kernels' layout; gate and up rows in turns of 16, so that one tile has both."""

    def pack(q: Array) -> dict[str, Array]:
        packed = native.pack(q, np.ones(q.shape[0], np.float32))
        return {"p": packed.w, "c": packed.colsum}

    return Packer(layout="panels16", pack=pack, join_gate_up=native.interleave)


class NativeRunner:
    """A dense decoder; see :class:`vivace.engine.runner.Runner`."""

    def __init__(
        self,
        weights: Weights,
        kv_blocks: int,
        max_rows: int,
        threads: int,
        isa: int = native.ISA_AUTO,
        kv_type: KvType = "bf16",
    ) -> None:
        self.spec = spec = weights.spec
        self.max_rows = max_rows
        self.kv_blocks = kv_blocks
        arena = Arena(sum(a.nbytes + 64 for name, a in weights.arrays.items() if name.endswith(".p")))

        def linear(name: str, columns: int) -> native.Linear:
            arrays = weights.arrays
            bias = arrays.get(f"{name}.b")
            rows = len(arrays[f"{name}.s"])
            return native.Linear(
                w=arena.take(arrays[f"{name}.p"]),
                scale=_padded(arrays[f"{name}.s"]),
                colsum=arrays[f"{name}.c"],
                bias=None if bias is None else _padded(bias),
                n=rows,
                k=columns,
            )

        layers = []
        for layer in range(spec.layers):
            part = f"layers.{layer}."
            layers.append(
                native.Layer(
                    attn_norm=weights.arrays[part + "attn_norm"],
                    qkv=linear(part + "qkv", spec.hidden),
                    o=linear(part + "o", spec.q_width),
                    ffn_norm=weights.arrays[part + "ffn_norm"],
                    gate_up=linear(part + "gateup", spec.hidden),
                    down=linear(part + "down", spec.ffn),
                    q_norm=weights.arrays.get(part + "q_norm"),
                    k_norm=weights.arrays.get(part + "k_norm"),
                )
            )
        head = linear("head", spec.hidden)
        _forget_pages(weights.arrays["head.p"])
        config = native.Config(
            layers=spec.layers,
            hidden=spec.hidden,
            heads=spec.heads,
            kv_heads=spec.kv_heads,
            head_dim=spec.head_dim,
            ffn=spec.ffn,
            vocab=spec.vocab,
            rope_theta=spec.rope_theta,
            rms_eps=spec.rms_eps,
            max_rows=max_rows,
            max_positions=spec.window,
        )
        packed = native.Weights(weights.arrays["embed"].reshape(-1), layers, weights.arrays["norm"], head)
        self.model = native.Model(config, packed, threads, isa)
        self.kv = native.KV(self.model, kv_blocks, int8=kv_type == "int8")
        name = native.isa_name(native.isa_best() if isa == native.ISA_AUTO else isa)
        kv = ", int8 KV" if self.kv.int8 else ""
        self.detail = f"native int8 kernels ({name}){kv}, {threads} threads"

    def forward(self, spans: list[Span], abort: AbortFlag) -> list[Rows] | None:
        tokens = np.array([token for span in spans for token in span.tokens], dtype=np.int32)
        best: list[int] = []
        full: list[int] = []
        sharpness: list[float] = []
        end = 0
        for span in spans:
            end += len(span.tokens)
            (full if span.logits else best).extend(range(end - span.outputs, end))
            if not span.logits:
                sharpness += [1.0 / span.temperature if span.temperature else 0.0] * span.outputs
        # One row is read for every third token that is sampled: to compute it anew reads all weights of the head, to
        # write it down along the way costs little. Of a draft's rows hardly any is read.
        kept = dict(_sampled(spans))
        if len(best) + len(full) + len(kept) > self.max_rows:
            kept = {}
        out = self.model.forward(
            self.kv,
            tokens,
            [native.Span(np.array(span.blocks, dtype=np.int32), span.start, len(span.tokens)) for span in spans],
            argmax_rows=np.array(best, dtype=np.int32),
            logit_rows=np.array([*full, *kept.values()], dtype=np.int32),
            abort=abort.memory,
            argmax_sharpness=np.array(sharpness, dtype=np.float32) if any(sharpness) else None,
        )
        if out.aborted:
            return None
        results: list[Rows] = []
        first_best = first_full = 0
        written = dict(zip(kept, range(len(full), len(full) + len(kept)), strict=True))
        for number, span in enumerate(spans):
            if span.logits:
                results.append(out.logits[first_full : first_full + span.outputs])
                first_full += span.outputs
            else:
                part = slice(first_best, first_best + span.outputs)
                if span.temperature:
                    logits = out.logits[written[number]] if number in written else None
                    results.append(self._likeliest(out, part, span.temperature, logits))
                else:
                    results.append(out.argmax[part])
                first_best += span.outputs
        return results

    def _likeliest(
        self, out: native.Output, part: slice, temperature: float, logits: NDArray[np.float32] | None
    ) -> Likeliest:
        first = part.start
        return Likeliest(
            out.argmax[part],
            1.0 / out.argmax_weight[part],
            temperature,
            (lambda row: self.model.logits(first + row)) if logits is None else (lambda row: logits),
        )

    def copy_block(self, source: int, target: int) -> None:
        self.kv.copy_block(source, target)


def _sampled(spans: list[Span]) -> Iterator[tuple[int, int]]:
    """The spans of one output that is sampled: which, and the row of it."""
    end = 0
    for number, span in enumerate(spans):
        end += len(span.tokens)
        if span.temperature and span.outputs == 1 and not span.logits:
            yield number, end - 1


class Arena:
    """Memory in huge pages, which the memory system reads faster than a mapped file's small ones. Never freed."""

    def __init__(self, size: int) -> None:
        address = native.load().vv_alloc(size)
        if not address:
            raise MemoryError
        self._memory = np.ctypeslib.as_array((ctypes.c_int8 * size).from_address(address))
        self._used = 0

    def take(self, array: Array) -> Array:
        """A copy of an int8 array, at a multiple of 64 bytes."""
        place = self._memory[self._used : self._used + array.size]
        place[:] = array.reshape(-1)
        self._used += -(-array.size // 64) * 64
        return place


def _forget_pages(array: Array) -> None:
    """Let go of the mapped file's pages that were only read to be copied; what is used again comes back by itself."""
    base: Any = array
    while base is not None and not isinstance(base, mmap.mmap):
        base = getattr(base, "base", None)
    if base is not None and hasattr(base, "madvise"):
        base.madvise(mmap.MADV_DONTNEED)


def _padded(values: Array) -> Array:
    """The kernels read whole panels of 16 outputs."""
    return np.pad(np.asarray(values, dtype=np.float32), (0, -len(values) % 16))

"""The model in PyTorch: CPU in int8 through oneDNN, bf16 or fp32; CUDA in bf16; one code.

int8 is W8A8: weights symmetric per output channel, activations per row (token), products summed exactly in int32,
scaled in float32. Norms, residuals and softmax are float32; keys and values are bf16 (fp32 in fp32 mode).

On CUDA a pass of few rows is a captured graph (:mod:`vivace.engine.cuda_graphs`); a slice of prefill is launched kernel
by kernel, and so is every pass of a model with sparse experts, whose choice the host has to see.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vivace.engine.cuda_graphs import Capture, GraphedSteps, cuda_capture
from vivace.engine.experts import FloatExperts, Int8Experts, Multiply, PackBudget, SparseFeed
from vivace.engine.kv import BLOCK
from vivace.engine.runner import AbortFlag, Rows, Span
from vivace.engine.weights import Array, Weights

Linear = Callable[[Tensor], Tensor]


def int8_is_fast() -> bool:
    """Whether this CPU multiplies int8 with instructions made for it."""
    flags = torch.backends.cpu.get_cpu_capability()
    return "AVX512" in flags and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]


def bf16_is_fast() -> bool:
    """Whether this CPU multiplies bf16 with instructions made for it."""
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported()) and "AVX512" in torch.backends.cpu.get_cpu_capability()


class Attention(Protocol):
    """Where the rows of one pass find their keys and values."""

    def mix(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Store k and v [rows, kv_heads, head_dim]; q [rows, heads, head_dim] -> attended values [rows, q_width]."""
        ...


class TorchRunner:
    """A decoder over paged KV memory; see :class:`vivace.engine.runner.Runner`.

    ``note`` is appended to ``detail``. ``pack_budget`` bounds the bytes of experts' packed copies; None is no bound.
    ``capture`` makes passes of fixed shapes replayable; on CUDA it is given where the model allows it.
    """

    def __init__(
        self,
        weights: Weights,
        kv_blocks: int,
        device: str = "cpu",
        *,
        note: str = "",
        pack_budget: int | None = None,
        capture: Capture | None = None,
    ) -> None:
        self.spec = spec = weights.spec
        self.kv_blocks = kv_blocks
        self.device = torch.device(device)
        self.dtype = torch.float32 if weights.kind in ("int8", "fp32") else torch.bfloat16
        kv_dtype = torch.float32 if weights.kind == "fp32" else torch.bfloat16
        if self.device.type == "cuda" and not spec.experts:
            capture = capture or cuda_capture()
        how = f"{device}, captured graphs" if capture else device
        self.detail = f"PyTorch {weights.kind} on {how}" + (f" ({note})" if note else "")
        self.budget = PackBudget(1 << 62 if pack_budget is None else pack_budget)
        # One block more for the rows that fill a captured shape up. Zeros, because what lies beyond a sequence is
        # gathered there and weighted with 0, and 0 times what memory happens to hold may not be 0.
        kv_shape = (spec.layers, 2, spec.kv_heads, (kv_blocks + bool(capture)) * BLOCK, spec.head_dim)
        self.kv = (torch.zeros if capture else torch.empty)(kv_shape, dtype=kv_dtype, device=self.device)
        arrays = weights.arrays
        self.embed = _tensor(arrays["embed"]).to(self.device)
        self.norm = self._float(arrays["norm"])
        self.head = self._linear(arrays, "head")
        self.layers = [_Layer(self, arrays, f"layers.{layer}.") for layer in range(spec.layers)]
        half = torch.arange(0, spec.head_dim, 2, dtype=torch.float64) / spec.head_dim
        self.inverse_frequency = (1.0 / spec.rope_theta**half).to(self.device)
        self.graphs = GraphedSteps(self, kv_blocks, capture) if capture else None

    @torch.inference_mode()
    def forward(self, spans: list[Span], abort: AbortFlag) -> list[Rows] | None:
        if self.graphs is not None and (shape := self.graphs.shape_of(spans)) is not None:
            return None if abort else self.graphs.run(spans, shape)
        tokens = torch.tensor([token for span in spans for token in span.tokens], device=self.device)
        places = torch.tensor([span.start + i for span in spans for i in range(len(span.tokens))], device=self.device)
        x = self.hidden(tokens, places, _Views(self, spans), abort)
        return None if x is None or abort else self._outputs(x, spans)

    def hidden(self, tokens: Tensor, places: Tensor, attention: Attention, abort: AbortFlag | None) -> Tensor | None:
        """The residual stream after the last layer, [rows, hidden] float32; None where ``abort`` was seen set."""
        angles = places[:, None].double() * self.inverse_frequency
        cos, sin = angles.cos().float(), angles.sin().float()
        x = self.embed[tokens].float()
        for index, layer in enumerate(self.layers):
            if abort:
                return None
            x = x + layer.attend(layer.normed(x, layer.attn_norm), cos, sin, index, attention)
            x = x + layer.feed(layer.normed(x, layer.ffn_norm))
        return x

    def logits(self, x: Tensor) -> Tensor:
        """``x`` [rows, hidden] after the last layer -> [rows, vocab]."""
        return self.head(rms_norm(x, self.norm, self.spec.rms_eps).to(self.dtype))

    def copy_block(self, source: int, target: int) -> None:
        blocks = self.kv.view(*self.kv.shape[:3], -1, BLOCK, self.spec.head_dim)
        blocks[:, :, :, target] = blocks[:, :, :, source]

    def _outputs(self, x: Tensor, spans: list[Span]) -> list[Rows]:
        wanted: list[int] = []
        end = 0
        for span in spans:
            end += len(span.tokens)
            wanted += range(end - span.outputs, end)
        results: list[Rows] = []
        logits = self.logits(x[wanted]) if wanted else x[:0]
        first = 0
        for span in spans:
            rows = logits[first : first + span.outputs]
            first += span.outputs
            if span.logits or span.temperature:
                results.append(rows.float().cpu().numpy())
            else:
                results.append(rows.argmax(dim=-1).to(torch.int32).cpu().numpy())
        return results

    def _float(self, array: Array) -> Tensor:
        return torch.from_numpy(np.array(array, dtype=np.float32)).to(self.device)

    def _linear(self, arrays: dict[str, Array], name: str) -> Linear:
        bias = self._float(arrays[f"{name}.b"]) if f"{name}.b" in arrays else None
        if f"{name}.q" in arrays:
            return Int8Linear(arrays[f"{name}.q"], arrays[f"{name}.s"], bias)
        weight = _tensor(arrays[f"{name}.w"]).to(self.device)
        typed_bias = None if bias is None else bias.to(weight.dtype)
        return lambda x: F.linear(x, weight, typed_bias)

    def _feed(self, arrays: dict[str, Array], name: str) -> Linear:
        """The feed-forward of a layer, dense or sparse: ``[rows, hidden]`` -> the same shape in float32."""
        if self.spec.experts:
            wide = torch.float64 if f"{name}experts.down.q" in arrays else torch.float32
            router = self._float(arrays[name + "router"]).to(wide)
            return SparseFeed(
                self.spec,
                router,
                self._experts(arrays, name + "experts.gateup"),
                self._experts(arrays, name + "experts.down"),
            )
        gateup, down = self._linear(arrays, name + "gateup"), self._linear(arrays, name + "down")

        def dense(x: Tensor) -> Tensor:
            gate, up = torch.split(gateup(x), self.spec.ffn, dim=-1)
            return down(F.silu(gate) * up).float()

        return dense

    def _experts(self, arrays: dict[str, Array], name: str) -> Multiply:
        if f"{name}.q" in arrays:
            return Int8Experts(_tensor(arrays[f"{name}.q"]), _tensor(arrays[f"{name}.s"]), self.budget)
        return FloatExperts(_tensor(arrays[f"{name}.w"]).to(self.device))


class _Layer:
    def __init__(self, runner: TorchRunner, arrays: dict[str, Array], name: str) -> None:
        self.runner = runner
        self.spec = runner.spec
        self.attn_norm = runner._float(arrays[name + "attn_norm"])
        self.ffn_norm = runner._float(arrays[name + "ffn_norm"])
        self.qkv = runner._linear(arrays, name + "qkv")
        self.o = runner._linear(arrays, name + "o")
        self.feed = runner._feed(arrays, name)
        normed = self.spec.qk_norm
        self.q_norm = runner._float(arrays[name + "q_norm"]) if normed else None
        self.k_norm = runner._float(arrays[name + "k_norm"]) if normed else None

    def normed(self, x: Tensor, weight: Tensor) -> Tensor:
        return rms_norm(x, weight, self.spec.rms_eps).to(self.runner.dtype)

    def attend(self, x: Tensor, cos: Tensor, sin: Tensor, layer: int, attention: Attention) -> Tensor:
        """``x`` [rows, hidden] -> the attention's addition to the residual stream, [rows, hidden] float32."""
        spec = self.spec
        heads = self.qkv(x).float().view(x.shape[0], -1, spec.head_dim)
        q, k, v = torch.split(heads, [spec.heads, spec.kv_heads, spec.kv_heads], dim=1)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = rms_norm(q, self.q_norm, spec.rms_eps), rms_norm(k, self.k_norm, spec.rms_eps)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        return self.o(attention.mix(layer, q, k, v)).float()


class _Views:
    """The attention of spans of any lengths, one after the other."""

    def __init__(self, runner: TorchRunner, spans: list[Span]) -> None:
        self.runner = runner
        self.views = [_View(runner, span) for span in spans]

    def mix(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        runner, spec = self.runner, self.runner.spec
        out = torch.empty(q.shape[0], spec.q_width, dtype=runner.dtype, device=q.device)
        row = 0
        for view in self.views:
            rows = slice(row, row + view.rows)
            row += view.rows
            keys, values = view.store(runner.kv[layer], k[rows], v[rows])
            mixed = F.scaled_dot_product_attention(
                q[rows].transpose(0, 1).to(keys.dtype)[None],
                keys[None],
                values[None],
                attn_mask=view.mask,
                enable_gqa=spec.heads != spec.kv_heads,
            )[0]
            out[rows] = mixed.transpose(0, 1).reshape(view.rows, -1).to(out.dtype)
        return out


class _View:
    """Where one span's keys and values lie, worked out once per pass."""

    def __init__(self, runner: TorchRunner, span: Span) -> None:
        self.rows = len(span.tokens)
        end = span.start + self.rows
        table = span.blocks[: -(-end // BLOCK)]
        self.end = end
        self.base = table[0] * BLOCK if all(b == table[0] + i for i, b in enumerate(table)) else None
        blocks = torch.tensor(table, device=runner.device)
        self.slots = (blocks[:, None] * BLOCK + torch.arange(BLOCK, device=runner.device)).flatten()[:end]
        self.start = span.start
        self.mask: Tensor | None = None
        if self.rows > 1:
            positions = torch.arange(end, device=runner.device)
            self.mask = positions[None, :] <= positions[span.start :, None]

    def store(self, kv: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Write the rows' k and v [rows, kv_heads, head_dim]; return all keys and values [kv_heads, end, head_dim].

        Blocks in a row are read in place; scattered ones are gathered.
        """
        fresh = torch.stack((k, v)).transpose(1, 2).to(kv.dtype)
        if self.base is not None:
            kv[:, :, self.base + self.start : self.base + self.end] = fresh
            both = kv[:, :, self.base : self.base + self.end]
        else:
            kv[:, :, self.slots[self.start :]] = fresh
            both = kv[:, :, self.slots]
        return both[0], both[1]


class Int8Linear:
    """``x [rows, in] -> [rows, out]`` float32, by exact int8 products in oneDNN."""

    def __init__(self, q: Array, scale: Array, bias: Tensor | None) -> None:
        self.weight = torch.ops.onednn.qlinear_prepack(_tensor(q), None)
        self.scale = torch.from_numpy(np.array(scale, dtype=np.float32))
        self.zero = torch.zeros(len(scale), dtype=torch.int32)
        self.bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        absmax = x.abs().amax(dim=-1, keepdim=True).clamp_min(1e-30)
        rounded = (x * (127.0 / absmax)).round_().to(torch.int8)
        out: Tensor = torch.ops.onednn.qlinear_pointwise(
            rounded, 1.0, 0, self.weight, self.scale, self.zero, None, 1.0, 0, torch.float32, "none", [], ""
        )
        out *= absmax / 127.0
        return out if self.bias is None else out.add_(self.bias)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """float32 root mean square norm over the last dimension."""
    return F.rms_norm(x, (x.shape[-1],), weight, eps)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions in half-split order; ``x`` [rows, heads, head_dim], ``cos`` and ``sin`` [rows, head_dim / 2]."""
    a, b = x.chunk(2, dim=-1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def _tensor(array: Array) -> Tensor:
    """A tensor over the array's own memory; uint16 holds the bits of bfloat16."""
    with warnings.catch_warnings():
        # Mapped memory is read-only, of which PyTorch warns; nothing here writes to weights.
        warnings.simplefilter("ignore", UserWarning)
        flat = torch.frombuffer(array.data, dtype=_DTYPES[array.dtype.str], count=array.size)
    return flat.view(array.shape)


_DTYPES = {"<u2": torch.bfloat16, "|i1": torch.int8, "<f4": torch.float32}

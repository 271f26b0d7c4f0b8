"""A decoder in plain numpy with the arithmetic that the native engine promises, and random weights for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vivace.engine import native

F32 = NDArray[np.float32]


def to_bf16(x: NDArray) -> NDArray[np.uint16]:
    u = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(x: NDArray[np.uint16]) -> F32:
    return (x.astype(np.uint32) << 16).view(np.float32)


def round_bf16(x: NDArray) -> F32:
    return from_bf16(to_bf16(x))


def int8_steps(x: F32) -> tuple[F32, F32]:
    """Steps of -127..127 and their size, one along the last axis, as int8 KV memory keeps them."""
    top = np.abs(x).max(axis=-1, keepdims=True)
    inv = np.float32(127) / np.where(top > 0, top, np.float32(1))
    return np.rint(x * inv).astype(np.float32), (top / np.float32(127)).astype(np.float32)


@dataclass
class Matrix:
    """int8 [n][k], its scales and bias, and the packed form."""

    q: NDArray[np.int8]
    scale: F32
    bias: F32 | None
    linear: native.Linear

    def __call__(self, x: F32) -> F32:
        top = np.abs(x).max(axis=1)
        inv = np.where(top > 0, np.float32(127) / np.where(top > 0, top, 1), 0).astype(np.float32)
        a = np.rint(x * inv[:, None]).astype(np.int32)
        acc = (a.astype(np.float64) @ self.q.T.astype(np.float64)).astype(np.float32)
        y = acc * ((top / np.float32(127))[:, None] * self.scale[None, :])
        return y if self.bias is None else y + self.bias


def matrix(rng: np.random.Generator, n: int, k: int, bias: bool = False, gain: float = 1.0) -> Matrix:
    q, scale = native.quantize(rng.standard_normal((n, k), dtype=np.float32) * np.float32(gain / np.sqrt(k)))
    b = rng.standard_normal(n).astype(np.float32) * np.float32(0.3) if bias else None
    return Matrix(q, scale, b, native.pack(q, scale, b))


class Decoder:
    def __init__(self, config: native.Config, seed: int = 0, bias: bool = False, qk_norm: bool = False) -> None:
        self.config = c = config
        rng = np.random.default_rng(seed)
        d = c.head_dim

        def norm(n: int) -> F32:
            return (1 + 0.1 * rng.standard_normal(n)).astype(np.float32)

        self.layers = []
        native_layers = []
        for _ in range(c.layers):
            qkv = matrix(rng, (c.heads + 2 * c.kv_heads) * d, c.hidden, bias, 1.5)
            o = matrix(rng, c.hidden, c.heads * d, gain=0.7)
            gate, up = matrix(rng, c.ffn, c.hidden, gain=1.5), matrix(rng, c.ffn, c.hidden)
            q, scale = native.interleave(gate.q, up.q), native.interleave(gate.scale, up.scale)
            down = matrix(rng, c.hidden, c.ffn, gain=0.7)
            norms = norm(c.hidden), norm(c.hidden)
            qn, kn = (norm(d), norm(d)) if qk_norm else (None, None)
            self.layers.append((norms, qkv, o, gate, up, down, qn, kn))
            native_layers.append(
                native.Layer(norms[0], qkv.linear, o.linear, norms[1], native.pack(q, scale), down.linear, qn, kn)
            )
        self.embed = to_bf16(rng.standard_normal((c.vocab, c.hidden)))
        self.final_norm = norm(c.hidden)
        self.head = matrix(rng, c.vocab, c.hidden)
        self.weights = native.Weights(self.embed, native_layers, self.final_norm, self.head.linear)

    def model(self, threads: int = 1, isa: int = native.ISA_AUTO) -> native.Model:
        return native.Model(self.config, self.weights, threads, isa)

    def rms(self, x: F32, w: F32) -> F32:
        r = 1 / np.sqrt((x * x).mean(axis=-1, keepdims=True, dtype=np.float32) + np.float32(self.config.rms_eps))
        return (x * r * w).astype(np.float32)

    def rope(self, x: F32, positions: NDArray) -> F32:
        """x [rows][heads][d]"""
        c = self.config
        r = c.rope_dim or c.head_dim
        freq = c.inv_freq if c.inv_freq is not None else c.rope_theta ** -(np.arange(r // 2) / (r // 2))
        angle = positions[:, None, None].astype(np.float64) * freq
        cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
        out = x.copy()
        first, second = (slice(0, r, 2), slice(1, r, 2)) if c.rope_interleaved else (slice(0, r // 2), slice(r // 2, r))
        u, v = x[..., first], x[..., second]
        out[..., first], out[..., second] = u * cos - v * sin, v * cos + u * sin
        return out

    def centre(self, bias: F32) -> F32:
        """The mean of the rotated key bias [heads][d] over 4096 positions, which int8 KV memory leaves out."""
        turned = self.rope(np.repeat(bias[None], 4096, axis=0), np.arange(4096) + 0.5)
        return turned.mean(axis=0, dtype=np.float64).astype(np.float32)

    def logits(self, tokens: NDArray, int8_kv: bool = False) -> F32:
        """All rows of one sequence from position 0."""
        c = self.config
        d, group, t = c.head_dim, c.heads // c.kv_heads, len(tokens)
        positions = np.arange(t)
        x = from_bf16(self.embed[tokens])
        visible = positions[None, :] <= positions[:, None]
        for norms, qkv, o, gate, up, down, qn, kn in self.layers:
            y = qkv(self.rms(x, norms[0]))
            q, k, v = np.split(y, [c.heads * d, (c.heads + c.kv_heads) * d], axis=1)
            q, k, v = q.reshape(t, -1, d), k.reshape(t, -1, d), v.reshape(t, -1, d)
            if qn is not None and kn is not None:
                q, k = self.rms(q, qn), self.rms(k, kn)
            q, k = round_bf16(self.rope(q, positions)), self.rope(k, positions)
            if int8_kv and qkv.bias is not None and kn is None:
                k = k - self.centre(qkv.bias[c.heads * d : (c.heads + c.kv_heads) * d].reshape(-1, d))
            one = np.ones((t, v.shape[1], 1), np.float32)
            (k, ks), (v, vs) = map(int8_steps, (k, v)) if int8_kv else ((round_bf16(k), one), (round_bf16(v), one))
            out = np.empty((t, c.heads, d), np.float32)
            for h in range(c.heads):
                kv = h // group
                s = q[:, h] @ k[:, kv].T * ks[:, kv].T / np.sqrt(np.float32(d))
                s = np.where(visible, s, -np.inf)
                p = np.exp(s - s.max(axis=1, keepdims=True))
                out[:, h] = round_bf16(p * vs[:, kv].T) @ v[:, kv] / p.sum(axis=1, keepdims=True)
            x = x + o(out.reshape(t, -1))
            y = self.rms(x, norms[1])
            g = gate(y)
            x = x + down((g / (1 + np.exp(-g)) * up(y)).astype(np.float32))
        return self.head(self.rms(x, self.final_norm))


def tokens_for(config: native.Config, n: int, seed: int = 1) -> NDArray[np.int32]:
    return np.random.default_rng(seed).integers(0, config.vocab, n).astype(np.int32)


def blocks_for(positions: int, first: int = 0) -> NDArray[np.int32]:
    return np.arange(first, first + -(-positions // native.KV_BLOCK), dtype=np.int32)


def run(model: native.Model, kv: native.KV, tokens: NDArray, start: int = 0, blocks: NDArray | None = None) -> F32:
    """Logits of every row of one span."""
    blocks = blocks_for(start + len(tokens)) if blocks is None else blocks
    rows = np.arange(len(tokens), dtype=np.int32)
    return model.forward(kv, tokens, [native.Span(blocks, start, len(tokens))], logit_rows=rows).logits

"""What a decoder looks like: the numbers that the weights file states, checked against its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from vivace.errors import VivaceError

ARCHITECTURES = ("qwen2", "llama")


class ModelSpec(Struct, frozen=True, kw_only=True):
    """A dense pre-norm decoder with grouped-query attention, rotary positions and a SiLU-gated feed-forward."""

    architecture: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    window: int
    rope_theta: float
    rms_eps: float
    qkv_bias: bool
    tied_head: bool

    @property
    def q_width(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_dim

    @property
    def linear_parameters(self) -> int:
        """Weights that one pass reads, head included."""
        layer = self.hidden * (self.q_width * 2 + 2 * self.kv_width) + 3 * self.hidden * self.ffn
        return self.layers * layer + self.vocab * self.hidden


def spec_from_gguf(metadata: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> ModelSpec:
    """Read the spec from GGUF metadata and check the tensors' shapes against it.

    Raises :class:`VivaceError` for an architecture that the engine does not run or a file that contradicts itself.
    """
    architecture = str(metadata.get("general.architecture", ""))
    if architecture not in ARCHITECTURES:
        raise VivaceError(
            f"The engine does not run the architecture {architecture!r}.",
            hint=f"It runs {', '.join(ARCHITECTURES)}.",
            code="architecture_unknown",
        )

    def number(key: str, default: float | None = None) -> float:
        value = metadata.get(f"{architecture}.{key}", default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise _contradiction(f"{architecture}.{key} is missing or no number")
        return value

    scaling = metadata.get(f"{architecture}.rope.scaling.type", "none")
    if scaling not in ("none", "") or "rope_freqs.weight" in shapes:
        raise VivaceError(
            f"The engine does not run rotary scaling ({scaling if scaling != 'none' else 'rope_freqs'}).",
            hint="Use a model without it.",
            code="architecture_unknown",
        )
    heads = int(number("attention.head_count"))
    hidden = int(number("embedding_length"))
    if heads < 1 or hidden % heads:
        raise _contradiction(f"{heads} heads do not divide the width {hidden}")
    vocab, width = shapes.get("token_embd.weight", (0, 0))
    spec = ModelSpec(
        architecture=architecture,
        layers=int(number("block_count")),
        hidden=hidden,
        heads=heads,
        kv_heads=int(number("attention.head_count_kv", heads)),
        head_dim=int(number("attention.key_length", hidden // heads)),
        ffn=int(number("feed_forward_length")),
        vocab=vocab,
        window=int(number("context_length")),
        rope_theta=float(number("rope.freq_base", 10000.0)),
        rms_eps=float(number("attention.layer_norm_rms_epsilon")),
        qkv_bias="blk.0.attn_q.bias" in shapes,
        tied_head="output.weight" not in shapes,
    )
    if width != hidden or spec.kv_heads < 1 or spec.heads % spec.kv_heads:
        raise _contradiction("head counts or the embedding's width do not fit together")
    for name, shape in expected_shapes(spec).items():
        if shapes.get(name) != shape:
            raise _contradiction(f"tensor {name} has the shape {shapes.get(name)}, not {shape}")
    return spec


def expected_shapes(spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    """GGUF tensor name -> shape (rows = outputs first)."""
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (spec.vocab, spec.hidden),
        "output_norm.weight": (spec.hidden,),
    }
    if not spec.tied_head:
        shapes["output.weight"] = (spec.vocab, spec.hidden)
    for layer in range(spec.layers):
        part = f"blk.{layer}."
        shapes |= {
            part + "attn_norm.weight": (spec.hidden,),
            part + "attn_q.weight": (spec.q_width, spec.hidden),
            part + "attn_k.weight": (spec.kv_width, spec.hidden),
            part + "attn_v.weight": (spec.kv_width, spec.hidden),
            part + "attn_output.weight": (spec.hidden, spec.q_width),
            part + "ffn_norm.weight": (spec.hidden,),
            part + "ffn_gate.weight": (spec.ffn, spec.hidden),
            part + "ffn_up.weight": (spec.ffn, spec.hidden),
            part + "ffn_down.weight": (spec.hidden, spec.ffn),
        }
        if spec.qkv_bias:
            shapes |= {
                part + "attn_q.bias": (spec.q_width,),
                part + "attn_k.bias": (spec.kv_width,),
                part + "attn_v.bias": (spec.kv_width,),
            }
    return shapes


def _contradiction(what: str) -> VivaceError:
    return VivaceError(
        f"The model file contradicts itself: {what}.",
        hint="Remove it and pull it again.",
        code="model_file_invalid",
    )

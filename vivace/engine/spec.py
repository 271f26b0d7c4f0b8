"""What a decoder looks like: the numbers that the weights file states, checked against its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from vivace.errors import VivaceError
from vivace.models.weight_source import WeightSource

ARCHITECTURES = ("qwen2", "llama", "qwen3", "qwen3moe")


class ModelSpec(Struct, frozen=True, kw_only=True):
    """A pre-norm decoder with grouped-query attention, rotary positions and a SiLU-gated feed-forward.

    Where ``experts`` is not 0, each layer has that many feed-forwards of width ``expert_ffn``, of which a router picks
    ``experts_used`` for each row; ``ffn`` is then unused. Fields with defaults came later: an index that was written
    without them is still read.
    """

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
    qk_norm: bool = False
    """Queries and keys are normed per head before they are rotated."""
    experts: int = 0
    experts_used: int = 0
    expert_ffn: int = 0
    norm_experts: bool = True
    """The chosen experts' probabilities are scaled to a sum of 1."""

    @property
    def q_width(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_dim

    @property
    def linear_parameters(self) -> int:
        """Weights that a pass of one row reads, head included; of the experts only the chosen ones."""
        feed = 3 * self.experts_used * self.expert_ffn + self.experts if self.experts else 3 * self.ffn
        layer = self.hidden * (self.q_width * 2 + 2 * self.kv_width + feed)
        return self.layers * layer + self.vocab * self.hidden


def read_spec(source: WeightSource) -> ModelSpec:
    """The spec of an open model file or folder; see :func:`spec_from_gguf`."""
    return spec_from_gguf(source.metadata, {name: source.tensor_shape(name) for name in source.tensor_names})


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
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1e15:
            raise _contradiction(f"{architecture}.{key} is missing or no usable number")
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
    head_dim = int(number("attention.key_length", 0))
    if heads < 1 or (not head_dim and hidden % heads):
        raise _contradiction(f"{heads} heads do not divide the width {hidden}")
    vocab, width = shapes.get("token_embd.weight", (0, 0))
    sparse = architecture == "qwen3moe"
    # Early files do not state the experts' width; their tensors do.
    expert_rows = shapes.get("blk.0.ffn_gate_exps.weight", (0, 0, 0))[1]
    spec = ModelSpec(
        architecture=architecture,
        layers=int(number("block_count")),
        hidden=hidden,
        heads=heads,
        kv_heads=int(number("attention.head_count_kv", heads)),
        head_dim=head_dim or hidden // heads,
        ffn=0 if sparse else int(number("feed_forward_length")),
        vocab=vocab,
        window=int(number("context_length")),
        rope_theta=float(number("rope.freq_base", 10000.0)),
        rms_eps=float(number("attention.layer_norm_rms_epsilon")),
        qkv_bias="blk.0.attn_q.bias" in shapes,
        tied_head="output.weight" not in shapes,
        qk_norm="blk.0.attn_q_norm.weight" in shapes,
        experts=int(number("expert_count")) if sparse else 0,
        experts_used=int(number("expert_used_count")) if sparse else 0,
        expert_ffn=int(number("expert_feed_forward_length", expert_rows)) if sparse else 0,
        norm_experts=bool(metadata.get(f"{architecture}.expert_weights_norm", True)),
    )
    if sparse and not 0 < spec.experts_used <= spec.experts:
        raise _contradiction(f"{spec.experts_used} of {spec.experts} experts are used")
    if architecture.startswith("qwen3") and not spec.qk_norm:
        raise _contradiction("tensor blk.0.attn_q_norm.weight is missing")
    if not 0 < spec.layers <= len(shapes) or spec.head_dim % 2:
        raise _contradiction(f"there are {spec.layers} layers and heads of width {spec.head_dim}")
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
        }
        if spec.experts:
            shapes |= {
                part + "ffn_gate_inp.weight": (spec.experts, spec.hidden),
                part + "ffn_gate_exps.weight": (spec.experts, spec.expert_ffn, spec.hidden),
                part + "ffn_up_exps.weight": (spec.experts, spec.expert_ffn, spec.hidden),
                part + "ffn_down_exps.weight": (spec.experts, spec.hidden, spec.expert_ffn),
            }
        else:
            shapes |= {
                part + "ffn_gate.weight": (spec.ffn, spec.hidden),
                part + "ffn_up.weight": (spec.ffn, spec.hidden),
                part + "ffn_down.weight": (spec.hidden, spec.ffn),
            }
        if spec.qk_norm:
            shapes |= {
                part + "attn_q_norm.weight": (spec.head_dim,),
                part + "attn_k_norm.weight": (spec.head_dim,),
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

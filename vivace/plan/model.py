"""A model's shape: what a pass reads, multiplies and keeps.

Counts are of weights (numbers), never of bytes; :mod:`vivace.plan.traffic` puts widths on them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from msgspec import Struct

from vivace.errors import UsageError
from vivace.plan.evidence import Evidence, Figure


class Shape(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The numbers of a ``config.json``. Zero means that the model has none of it; None that nobody published it."""

    layers: int
    hidden: int
    heads: int
    vocab: int
    attention: Literal["gqa", "mla"] = "gqa"
    kv_heads: int | None = None
    head_dim: int | None = None
    ffn: int | None = None
    """Width of a dense layer's feed-forward part."""
    gated: bool = True
    """Three matrices in a feed-forward part instead of two."""
    tied: bool = False
    """The output head is the embedding."""

    experts: int = 0
    experts_per_token: int | None = None
    shared_experts: int = 0
    expert_ffn: int | None = None
    dense_layers: int = 0
    """Layers of a mixture-of-experts model that have a dense feed-forward part instead."""

    query_rank: int = 0
    kv_rank: int | None = None
    rope_dim: int | None = None
    nope_dim: int | None = None
    value_dim: int | None = None

    window: int = 0
    windowed_layers: int = 0
    linear_layers: int = 0
    """Layers with a state of constant size instead of a KV cache (gated delta rule)."""
    linear_key_heads: int = 0
    linear_value_heads: int = 0
    linear_head_dim: int = 0
    output_gate: bool = False
    draft_layers: int = 0
    """Layers for multi-token prediction that the checkpoint carries; not counted in ``layers``."""

    @property
    def expert_layers(self) -> int:
        return self.layers - self.dense_layers if self.experts else 0

    def missing(self) -> list[str]:
        """Names of the fields without which nothing can be computed."""
        wanted = (
            ["kv_heads", "head_dim"] if self.attention == "gqa" else ["kv_rank", "rope_dim", "nope_dim", "value_dim"]
        )
        if not self.experts or self.dense_layers:
            wanted.append("ffn")
        if self.experts:
            wanted += ["experts_per_token", "expert_ffn"]
        return [name for name in wanted if getattr(self, name) is None]


class Model(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model file. ``evidence`` stands for every number of ``shape`` that ``except_for`` does not name."""

    name: str
    title: str
    shape: Shape
    evidence: Evidence
    except_for: dict[str, Evidence] = {}
    unknown: list[str] = []
    """Parts of the architecture that no public file gives: a model that has some is shown and never planned."""
    total: Figure | None = None
    """Published parameters, for comparison with what the shape gives."""
    active: Figure | None = None
    window: Figure | None = None
    """Longest context in tokens."""
    native: str = "bf16"
    """The format of its published weights, by name of data/formats.toml."""
    native_dense: str = ""
    """The format of what are not experts, where it differs."""
    aliases: list[str] = []
    note: str = ""

    def require_complete(self) -> None:
        """Raises :class:`UsageError` that names every missing field."""
        gaps = [*self.shape.missing(), *self.unknown]
        if gaps:
            raise UsageError(
                f"{self.name} cannot be planned: nobody published its {', '.join(gaps)}.",
                hint="Give a config.json that has them: vivace plan path/to/config.json --on DEVICE.",
                code="model_incomplete",
                param="model",
            )


class Weights(Struct, frozen=True):
    """Weights of the parts of a model, in numbers. ``expert`` is one expert of one layer."""

    attention: int
    """Of one full or windowed layer."""
    linear: int
    """Of one layer with linear attention."""
    dense: int
    """Feed-forward part of one dense layer."""
    expert: int
    shared: int
    """Shared experts and router of one expert layer."""
    head: int
    embedding: int
    """Read a row at a time, and only where it is not the head itself."""


@lru_cache(maxsize=64)
def weights_of(shape: Shape) -> Weights:
    """Count the matrices; norms, biases and sparse indexers (below a percent) are left out."""
    s = shape
    parts = 3 if s.gated else 2
    return Weights(
        attention=_attention(s),
        linear=_linear(s),
        dense=parts * s.hidden * (s.ffn or 0),
        expert=parts * s.hidden * (s.expert_ffn or 0),
        shared=s.shared_experts * parts * s.hidden * (s.expert_ffn or 0) + s.hidden * s.experts,
        head=s.hidden * s.vocab,
        embedding=0 if s.tied else s.hidden * s.vocab,
    )


def _attention(s: Shape) -> int:
    if s.attention == "mla":
        rope, nope, value, rank = s.rope_dim or 0, s.nope_dim or 0, s.value_dim or 0, s.kv_rank or 0
        queries = s.heads * (nope + rope)
        query = s.hidden * s.query_rank + s.query_rank * queries if s.query_rank else s.hidden * queries
        return query + s.hidden * (rank + rope) + rank * s.heads * (nope + value) + s.heads * value * s.hidden
    width, kv = s.heads * (s.head_dim or 0), (s.kv_heads or 0) * (s.head_dim or 0)
    return s.hidden * width * (3 if s.output_gate else 2) + 2 * s.hidden * kv


def _linear(s: Shape) -> int:
    keys, values = s.linear_key_heads * s.linear_head_dim, s.linear_value_heads * s.linear_head_dim
    return s.hidden * (2 * keys + 3 * values + 2 * s.linear_value_heads) if s.linear_layers else 0


def total_parameters(shape: Shape) -> int:
    """All weights of the model, draft layers not counted."""
    w = weights_of(shape)
    full = shape.layers - shape.linear_layers
    dense = shape.dense_layers if shape.experts else shape.layers
    experts = shape.expert_layers * (w.expert * shape.experts + w.shared)
    return full * w.attention + shape.linear_layers * w.linear + dense * w.dense + experts + w.head + w.embedding


def active_parameters(shape: Shape) -> int:
    """Weights that one token is multiplied with, the head included."""
    w = weights_of(shape)
    inactive = shape.expert_layers * w.expert * (shape.experts - (shape.experts_per_token or 0))
    return total_parameters(shape) - w.embedding - inactive

"""What one pass moves and multiplies, part by part, and what a sequence keeps.

A *part* is a run of equal matrices that one kernel after the other reads: attention projections, dense feed-forward,
experts, head. Rows are the tokens of a pass over all its sequences.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from vivace.plan.model import Shape, weights_of

Precision = Literal["expert", "dense"]

SOFTMAX = 256
"""Operations that the exponential of one score is worth: an H100 multiplies matrices at 989 TFLOPS and does 3.9 T
exponentials a second (FlashAttention-3, arXiv 2407.08608); vector units of CPUs stand in about the same ratio to their
matrix units."""


class Part(Struct, frozen=True):
    """``read``: weights that a pass reads; ``multiplied``: weights that each of its ``rows`` is multiplied with."""

    read: float
    multiplied: float
    rows: float
    precision: Precision


class Cache(Struct, frozen=True):
    """KV of one sequence at some context: numbers read by a pass, and operations for each row of it."""

    numbers: float
    operations: float


def distinct_experts(experts: int, chosen: int, rows: float) -> float:
    """Experts of a layer that ``rows`` tokens reach when routing is uniform: E (1 - (1 - k/E)^rows)."""
    return experts * -_expm1_power(1 - chosen / experts, rows) if chosen < experts else float(experts)


def _expm1_power(base: float, exponent: float) -> float:
    """base^exponent - 1."""
    return float(base**exponent) - 1


def layer_parts(shape: Shape, rows: float, layers: float | None = None) -> list[Part]:
    """The parts of ``layers`` average layers (all of them by default) for a pass of ``rows`` tokens."""
    s, w = shape, weights_of(shape)
    share = 1.0 if layers is None else layers / s.layers
    full = s.layers - s.linear_layers
    attention = (full * w.attention + s.linear_layers * w.linear) * share
    parts = [Part(attention, attention, rows, "dense")]
    dense = (s.dense_layers if s.experts else s.layers) * w.dense * share
    if dense:
        parts.append(Part(dense, dense, rows, "expert" if not s.experts else "dense"))
    if s.experts:
        chosen = s.experts_per_token or 0
        here = s.expert_layers * share
        reached = distinct_experts(s.experts, chosen, rows)
        parts.append(Part(here * reached * w.expert, here * chosen * w.expert, rows, "expert"))
        parts.append(Part(here * w.shared, here * w.shared, rows, "dense"))
    return parts


def draft_layer_parts(shape: Shape, rows: float) -> list[Part]:
    """One layer for multi-token prediction: a last layer of the model and a projection of two hidden states to one."""
    s, w = shape, weights_of(shape)
    joint = float(w.attention + 2 * s.hidden * s.hidden)
    parts = [Part(joint, joint, rows, "dense")]
    if not s.experts:
        return [*parts, Part(w.dense, w.dense, rows, "dense")]
    chosen = s.experts_per_token or 0
    reached = distinct_experts(s.experts, chosen, rows)
    return [
        *parts,
        Part(reached * w.expert, chosen * w.expert, rows, "expert"),
        Part(w.shared, w.shared, rows, "dense"),
    ]


def head_part(shape: Shape, logits: float) -> Part:
    head = float(weights_of(shape).head)
    return Part(head, head, logits, "dense")


def cache(shape: Shape, context: float, layers: float | None = None) -> Cache:
    """KV that a pass reads for one sequence of ``context`` positions, over ``layers`` average layers."""
    s = shape
    share = 1.0 if layers is None else layers / s.layers
    full = s.layers - s.windowed_layers - s.linear_layers
    positions = full * context + s.windowed_layers * min(context, s.window or context)
    state = s.linear_layers * s.linear_value_heads * s.linear_head_dim * s.linear_head_dim
    numbers = positions * numbers_per_position(s) + state
    operations = positions * _operations_per_position(s) + 4 * state
    return Cache(numbers * share, operations * share)


def numbers_per_position(shape: Shape) -> int:
    """Numbers that one position of one layer keeps: keys and values, or the latent with its rotary part."""
    if shape.attention == "mla":
        return (shape.kv_rank or 0) + (shape.rope_dim or 0)
    return 2 * (shape.kv_heads or 0) * (shape.head_dim or 0)


def _operations_per_position(shape: Shape) -> int:
    """Operations of a row with an earlier position of a layer: score, exponential and weighted sum of each head."""
    if shape.attention == "mla":
        rank, rope = shape.kv_rank or 0, shape.rope_dim or 0
        expanded = (shape.nope_dim or 0) + rope + (shape.value_dim or 0)
        return shape.heads * (2 * min(2 * rank + rope, expanded) + SOFTMAX)
    return shape.heads * (4 * (shape.head_dim or 0) + SOFTMAX)

"""Which model for which lane on a machine: what each would need and give there, and a choice with its reasons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from vivace.models.catalogue import ModelInfo

FAST_TOKENS = 20.0
"""Tokens per second without a draft that the fast lane should have: about what can be read along."""

DEEP_TOKENS = 4.0
"""Likewise for the deep lane, which nobody waits for with a hand on the keyboard."""

CONTEXT = 8192
"""Positions of KV memory that a model's need is stated with."""

SHARE = 0.8
"""Of the free memory that models may take; the rest is for what else runs."""

Mode = Literal["both", "fast", "none"]


@dataclass(frozen=True)
class Place:
    """Where models would compute: a device's free memory (bytes) and read bandwidth (bytes/s; None: not measured)."""

    name: str
    memory: int
    bandwidth: float | None
    weight_bytes: int
    """Bytes of one weight in the arithmetic used there: int8 1, bf16 2, fp32 4."""


@dataclass(frozen=True)
class Estimate:
    """What one model needs and gives at a :class:`Place`. Every number is derived."""

    model: ModelInfo
    memory: int
    """Bytes: all weights, and keys and values of :data:`CONTEXT` positions in bf16."""
    pass_bytes: int
    """Bytes of weights that a pass of one row reads."""
    decode: float | None
    """Bound of tokens per second without a draft: bandwidth over ``pass_bytes``."""
    fits: bool

    @property
    def sparse(self) -> bool:
        return self.pass_bytes * 2 < self.memory


@dataclass(frozen=True)
class Recommendation:
    """``both``: fast and deep lane side by side; ``fast``: one model for everything; ``none``: nothing fits."""

    mode: Mode
    fast: str | None
    deep: str | None
    reasons: tuple[str, ...]


def estimate(model: ModelInfo, place: Place) -> Estimate:
    """What ``model`` needs and gives at ``place``."""
    kv = model.kv_values * CONTEXT * (4 if place.weight_bytes == 4 else 2)
    memory = model.parameters * place.weight_bytes + kv
    read = (model.pass_parameters or model.parameters) * place.weight_bytes
    decode = place.bandwidth / read if place.bandwidth else None
    return Estimate(model, memory, read, decode, memory <= SHARE * place.memory)


def recommend(estimates: Sequence[Estimate], place: Place) -> Recommendation:
    """The largest model that is fast enough for each lane; both at once where both fit together.

    Models with a caution are left to those who ask for them. Without a measured bandwidth the smallest that fits is
    taken for both lanes.
    """
    usable = [e for e in estimates if e.fits and not e.model.caution]
    if not usable:
        need = min((e.memory for e in estimates if not e.model.caution), default=0)
        text = f"no model fits: the smallest needs {_gb(need)} of memory, {_gb(SHARE * place.memory)} can be used"
        return Recommendation("none", None, None, (text,))
    smallest = min(usable, key=lambda e: e.model.parameters)
    if place.bandwidth is None:
        text = "the memory bandwidth was not measured, so the smallest model is the safe choice"
        return Recommendation("fast", smallest.model.name, smallest.model.name, (text,))
    quickest = max(usable, key=lambda e: e.decode or 0.0)
    fast = _largest(usable, FAST_TOKENS)
    deep = _largest(usable, DEEP_TOKENS)
    reasons = [
        _reason("fast", fast, FAST_TOKENS)
        if fast
        else f"fast lane: {quickest.model.name}, though its bound of {quickest.decode:.1f} tokens/s without a draft is "
        f"below {FAST_TOKENS:.0f}; no other is quicker here"
    ]
    fast = fast or quickest
    if deep is None or deep.model.name == fast.model.name:
        reasons.append(f"deep lane: the same; no larger model fits and decodes {DEEP_TOKENS:.0f} tokens/s")
        return Recommendation("fast", fast.model.name, fast.model.name, tuple(reasons))
    reasons.append(_reason("deep", deep, DEEP_TOKENS))
    together = fast.memory + deep.memory
    if together <= SHARE * place.memory:
        reasons.append(f"both lanes at once: together they need {_gb(together)} of {_gb(SHARE * place.memory)}")
        return Recommendation("both", fast.model.name, deep.model.name, tuple(reasons))
    reasons.append(f"one lane at a time: together they would need {_gb(together)} of {_gb(SHARE * place.memory)}")
    return Recommendation("fast", fast.model.name, deep.model.name, tuple(reasons))


def _largest(usable: list[Estimate], tokens: float) -> Estimate | None:
    quick = [e for e in usable if e.decode is not None and e.decode >= tokens]
    return max(quick, key=lambda e: e.model.parameters, default=None)


def _reason(lane: str, chosen: Estimate, tokens: float) -> str:
    text = (
        f"{lane} lane: {chosen.model.name} is the largest that fits ({_gb(chosen.memory)}) and can decode "
        f"{tokens:.0f} tokens/s (bound {chosen.decode:.0f})"
    )
    if chosen.sparse:
        text += "; a pass of many drafted rows reads most of its experts and takes longer by as much"
    return text


def _gb(count: float) -> str:
    return f"{count / 1e9:.1f} GB"

"""One set-up: a model on devices, with its formats, context and batch; and every limit that it may break."""

from __future__ import annotations

import math

import msgspec
from msgspec import Struct

from vivace.errors import UsageError, VivaceError
from vivace.plan.device import Calibration, Device, Format
from vivace.plan.draft import NO_DRAFT, Draft
from vivace.plan.library import Library
from vivace.plan.model import Model, total_parameters, weights_of
from vivace.plan.traffic import cache

DEFAULT_CONTEXT = 8192


class Setup(Struct, frozen=True, kw_only=True):
    """Everything that a plan depends on. Made by :func:`make_setup`, which refuses what cannot be."""

    model: Model
    device: Device
    calibration: Calibration
    count: int
    context: int
    """Positions that every sequence holds."""
    batch: int
    """Sequences that are answered at the same time."""
    weights: str
    """Format of experts and of a dense model's feed-forward parts."""
    dense_weights: str
    """Format of everything else that is read."""
    kv: str
    draft: Draft = NO_DRAFT
    draft_model: Model | None = None
    formats: dict[str, Format] = {}
    engine: str = ""
    """The engine that will run it, where that is not the one that the calibration measured."""

    @property
    def stages(self) -> int:
        """Devices, or groups of them, that one token passes one after the other."""
        return min(self.count, self.model.shape.layers) if self.device.pipelined else 1

    @property
    def width(self) -> float:
        """Devices that share one layer."""
        return self.count / self.stages

    def bits(self, name: str) -> float:
        return self.formats[name].bits.value


class Memory(Struct, frozen=True, kw_only=True):
    """Bytes over all devices."""

    weights: float
    kv: float
    draft: float
    usable: float
    installed: float

    @property
    def needed(self) -> float:
        return self.weights + self.kv + self.draft

    @property
    def fits(self) -> bool:
        return self.needed <= self.usable


def make_setup(
    library: Library,
    model: Model,
    device: Device,
    *,
    count: int | None = None,
    context: int | None = None,
    batch: int = 1,
    weights: str = "",
    kv: str = "bf16",
    draft: Draft = NO_DRAFT,
    engine: str = "",
    calibration: Calibration | None = None,
    dense_weights: str = "",
    check_window: bool = True,
) -> Setup:
    """Check and complete a set-up. Without ``count`` it takes the fewest devices that hold it.

    Raises :class:`UsageError` for unknown names and impossible numbers, :class:`VivaceError` with code
    ``does_not_fit`` that says by how much.
    """
    model.require_complete()
    window = int(model.window.value) if model.window else 0
    context = context if context is not None else (min(DEFAULT_CONTEXT, window) if window else DEFAULT_CONTEXT)
    _positive("batch", batch)
    _positive("context", context)
    if count is not None:
        _positive("count", count)
    if check_window and window and context > window:
        raise UsageError(
            f"A context of {context:,} is {context - window:,} over the window of {model.name}, {window:,}.",
            code="context_too_long",
            param="context",
        )
    if draft.kind == "mtp" and not model.shape.draft_layers:
        raise UsageError(
            f"{model.name} has no layers for multi-token prediction.", hint="--draft model or copy", param="draft"
        )
    weights = weights or model.native
    names = (weights, dense_weights or _dense_default(model, weights), kv, draft.weights)
    setup = Setup(
        model=model,
        device=device,
        calibration=calibration or library.calibration(device.calibration),
        count=count or 1,
        context=context,
        batch=batch,
        weights=weights,
        dense_weights=names[1],
        kv=kv,
        draft=draft,
        draft_model=library.model(draft.model) if draft.kind == "model" else None,
        formats={name: library.format(name) for name in names},
        engine=engine,
    )
    if setup.draft_model:
        setup.draft_model.require_complete()
    if count is None:
        setup = _smallest(setup)
    _check_layout(setup)
    _check_memory(setup)
    return setup


def memory(setup: Setup) -> Memory:
    """Where the bytes go. KV is kept once for each device that does not share its heads."""
    s = setup
    shape, w = s.model.shape, weights_of(s.model.shape)
    expert_bytes, dense_bytes = s.bits(s.weights) / 8, s.bits(s.dense_weights) / 8
    dense = (shape.layers - shape.linear_layers) * w.attention + shape.linear_layers * w.linear + w.head + w.embedding
    if shape.experts:
        experts = shape.expert_layers * shape.experts * w.expert
        dense += shape.expert_layers * w.shared + shape.dense_layers * w.dense
    else:
        experts = shape.layers * w.dense
    kept = s.batch * cache(shape, s.context).numbers * s.bits(s.kv) / 8
    drafts = 0.0
    if s.draft.kind == "mtp":
        per = w.attention + w.shared + shape.experts * w.expert + (0 if shape.experts else w.dense)
        drafts = shape.draft_layers * per * s.bits(s.draft.weights) / 8
    elif s.draft_model:
        inner = s.draft_model.shape
        total = total_parameters(inner) * s.bits(s.draft.weights) / 8
        drafts = total + s.batch * cache(inner, s.context).numbers * s.bits(s.kv) / 8
    installed = s.device.memory.value * s.count
    return Memory(
        weights=experts * expert_bytes + dense * dense_bytes,
        kv=kept * s.width / kv_split(s),
        draft=drafts,
        usable=installed * s.device.usable.value,
        installed=installed,
    )


def fits(setup: Setup) -> bool:
    """Whether memory holds it, stage by stage."""
    return memory(setup).fits and (not setup.device.pipelined or _stage_need(setup) <= _stage_room(setup) * 1.0001)


def kv_split(setup: Setup) -> float:
    """Devices of one layer over which its KV is divided: by heads, or by sequences where the latent has no heads."""
    shape = setup.model.shape
    most = setup.batch if shape.attention == "mla" else (shape.kv_heads or 1)
    return max(1.0, min(setup.width, float(most)))


def _dense_default(model: Model, weights: str) -> str:
    return model.native_dense if model.native_dense and weights == model.native else weights


def _positive(name: str, value: int) -> None:
    if value < 1:
        raise UsageError(f"--{name} {value} is below 1, the least there is.", code="impossible", param=name)


def _smallest(setup: Setup) -> Setup:
    """The fewest devices that hold it: powers of two inside a group, any number in a pipeline."""
    single = memory(setup)
    estimate = max(1, math.ceil(single.needed / single.usable))
    most = int(setup.device.group.value) if setup.device.group else 1
    if setup.device.kind == "wafer":
        most = setup.model.shape.layers
    for count in range(estimate, 100_000):
        if not setup.device.pipelined and count > 1:
            count = 1 << (count - 1).bit_length()
            if count > most:
                break
        tried = msgspec.structs.replace(setup, count=count)
        if memory(tried).fits and (not setup.device.pipelined or _stage_need(tried) <= _stage_room(tried)):
            return tried
        if setup.device.kind == "wafer" and count >= most:
            break
    refuse(setup, most)
    return setup


def _check_layout(setup: Setup) -> None:
    device, most = setup.device, setup.device.group
    if not device.pipelined and most and setup.count > most.value:
        raise UsageError(
            f"{setup.count} of {device.name} are {setup.count - int(most.value)} more than the {int(most.value)} that "
            "share a fast interconnect; a layer is not spread further than that.",
            hint="Plan one group and run several copies of it.",
            code="impossible",
            param="count",
        )
    if device.kind == "wafer" and setup.count > setup.model.shape.layers:
        raise UsageError(
            f"{setup.count} wafers for {setup.model.shape.layers} layers of {setup.model.name} leave "
            f"{setup.count - setup.model.shape.layers} empty: a layer is not split over wafers.",
            code="impossible",
            param="count",
        )


def _check_memory(setup: Setup) -> None:
    if not memory(setup).fits:
        refuse(setup)
    if setup.device.pipelined and _stage_need(setup) > _stage_room(setup) * 1.0001:
        over = _stage_need(setup) - _stage_room(setup)
        raise VivaceError(
            f"The fullest of {setup.stages} stages holds {_most_layers(setup)} layers and is {over / 1e9:.2f} GB over "
            f"the {_stage_room(setup) / 1e9:.2f} GB that it can use.",
            hint=f"A count that divides the {setup.model.shape.layers} layers evenly, or a narrower --weights.",
            code="does_not_fit",
            param="count",
        )


def refuse(setup: Setup, most: int | None = None) -> None:
    """Raise the error that says what takes the memory of ``most`` devices, and how much is missing."""
    most = most or setup.count
    at_most = msgspec.structs.replace(setup, count=most)
    need = memory(at_most)
    parts = [("weights", need.weights), (f"KV of {setup.batch} x {setup.context:,} positions", need.kv)]
    if need.draft:
        parts.append(("draft", need.draft))
    told = ", ".join(f"{name} {size / 1e9:.2f} GB" for name, size in parts)
    raise VivaceError(
        f"{setup.model.name} does not fit {most} x {setup.device.name}: it needs {need.needed / 1e9:.2f} GB ({told}) "
        f"and {need.usable / 1e9:.2f} GB are usable, {(need.needed - need.usable) / 1e9:.2f} GB too few.",
        hint="More devices (--count), a narrower --weights or --kv, a shorter --context or a smaller --batch.",
        code="does_not_fit",
        param="count",
    )


def _most_layers(setup: Setup) -> int:
    return math.ceil(setup.model.shape.layers / setup.stages)


def _stage_need(setup: Setup) -> float:
    """Bytes of the fullest stage; embedding and head are left to the ends, which have fewer layers."""
    need, shape = memory(setup), setup.model.shape
    ends = (weights_of(shape).head + weights_of(shape).embedding) * setup.bits(setup.dense_weights) / 8
    return (need.weights - ends + need.kv) * _most_layers(setup) / shape.layers


def _stage_room(setup: Setup) -> float:
    return setup.device.memory.value * setup.device.usable.value * setup.width

"""The one equation: the time of a pass over a model, on a wafer, an LPU, a GPU or a CPU.

    pass = (layers + ends) (fixed + 2 all-reduces) + crossings
         + sum over parts of  (read^p + multiplied^p)^(1/p)  +  the same for attention
    read = weights x width / (devices of a layer x bandwidth x share)
    multiplied = 2 x weights x rows / (devices of a layer x peak x share)

A wafer has one device for a layer and many stages, a GPU node many devices for a layer and one stage; nothing else
differs. docs/plan.md derives it and says where it fails.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from vivace.plan.constants import Constants
from vivace.plan.setup import Setup, kv_split
from vivace.plan.traffic import Part, cache, draft_layer_parts, head_part, layer_parts, numbers_per_position

ACTIVATION_BYTES = 2


class PassTime(Struct, frozen=True):
    """Seconds of one pass by what they are spent on."""

    fixed: float = 0.0
    weights: float = 0.0
    kv: float = 0.0
    compute: float = 0.0
    link: float = 0.0

    @property
    def total(self) -> float:
        return self.fixed + self.weights + self.kv + self.compute + self.link

    @property
    def bound(self) -> str:
        """The part that most of the time goes to."""
        named = {
            "latency floor": self.fixed,
            "weights": self.weights,
            "KV": self.kv,
            "compute": self.compute,
            "link": self.link,
        }
        return max(named, key=lambda name: named[name])

    def plus(self, other: PassTime, times: float = 1.0) -> PassTime:
        return PassTime(
            self.fixed + times * other.fixed,
            self.weights + times * other.weights,
            self.kv + times * other.kv,
            self.compute + times * other.compute,
            self.link + times * other.link,
        )


def pass_time(
    setup: Setup, k: Constants, *, sequences: float, rows: float, context: float, logits: float | None = None
) -> PassTime:
    """One pass of the whole model: ``rows`` tokens for each of ``sequences``, behind ``context`` positions each.

    ``logits``: rows of a sequence whose next token is wanted; all of them by default, and no head for none.
    """
    all_rows = sequences * rows
    shape = setup.model.shape
    time = _layers(setup, k, shape.layers, sequences, rows, context)
    wanted = sequences * (rows if logits is None else logits)
    if wanted:
        time = time.plus(_parts(setup, k, [head_part(shape, wanted)]))
    crossings = setup.stages - 1
    hop = PassTime(fixed=k["stage_hop"] * crossings, link=_carry(setup, k, all_rows) * crossings)
    return time.plus(hop).plus(_fixed(setup, k, k["ends"], all_rows, plain=True))


def stage_times(setup: Setup, k: Constants, *, sequences: float, rows: float, context: float) -> list[float]:
    """Seconds of every stage of a pipeline for one pass, in order; with the crossings between them they are the pass.

    Layers are dealt out evenly, the further ones to the first stages. Embedding and head are at the two ends.
    """
    shape, stages = setup.model.shape, setup.stages
    if stages == 1:
        return [pass_time(setup, k, sequences=sequences, rows=rows, context=context).total]
    least, further = divmod(shape.layers, stages)
    few = _layers(setup, k, least, sequences, rows, context).total
    many = _layers(setup, k, least + 1, sequences, rows, context).total if further else few
    times = [many] * further + [few] * (stages - further)
    half = _fixed(setup, k, k["ends"] / 2, sequences * rows, plain=True).total
    times[0] += half
    times[-1] += half + _parts(setup, k, [head_part(shape, sequences * rows)]).total
    return times


def crossing(setup: Setup, k: Constants, rows: float) -> float:
    """Seconds from one stage to the next for ``rows`` tokens."""
    return k["stage_hop"] + _carry(setup, k, rows)


def draft_time(setup: Setup, k: Constants, *, sequences: float, context: float) -> PassTime:
    """Drafting one step's tokens: one pass after the other, the first over what the last step accepted."""
    draft = setup.draft
    if draft.kind in ("none", "copy"):
        return PassTime()
    if setup.draft_model:
        inner = _of_draft_model(setup)
        one = pass_time(inner, k, sequences=sequences, rows=1, context=context)
        return PassTime().plus(one, draft.tokens)
    time = PassTime()
    for position in range(draft.tokens):
        rows = sequences * (draft.tokens + 1 if position == 0 else 1)
        parts = [*draft_layer_parts(setup.model.shape, rows), head_part(setup.model.shape, sequences)]
        time = time.plus(_parts(setup, k, parts, (draft.weights, draft.weights)))
        time = time.plus(_fixed(setup, k, 1, rows)).plus(_fixed(setup, k, k["ends"], rows, plain=True))
    return time


def step_time(setup: Setup, k: Constants, *, sequences: float, context: float) -> PassTime:
    """One step of decoding: draft, then verify the draft and the token before it. Emits ``draft.gain`` tokens."""
    verify = pass_time(setup, k, sequences=sequences, rows=setup.draft.tokens + 1, context=context)
    return verify.plus(draft_time(setup, k, sequences=sequences, context=context))


def _layers(setup: Setup, k: Constants, layers: float, sequences: float, rows: float, context: float) -> PassTime:
    shape = setup.model.shape
    time = _fixed(setup, k, layers, sequences * rows)
    time = time.plus(_parts(setup, k, layer_parts(shape, sequences * rows, layers)))
    kept = cache(shape, context, layers)
    split = kv_split(setup)
    read = sequences * kept.numbers * setup.bits(setup.kv) / 8 / (split * k["device.bandwidth"] * k["kv"])
    within = cache(shape, rows / 2, layers).operations  # the rows of a pass see half of each other
    work = sequences * rows * (kept.operations + within)
    operations = work / (max(split, min(setup.width, shape.heads)) * _peak(setup, k, "bf16") * k["attention"])
    return time.plus(_joined(read, operations, k["overlap"], "kv"))


def _parts(setup: Setup, k: Constants, parts: Iterable[Part], formats: tuple[str, str] | None = None) -> PassTime:
    expert_format, dense_format = formats or (setup.weights, setup.dense_weights)
    time = PassTime()
    for part in parts:
        name = expert_format if part.precision == "expert" else dense_format
        form = setup.formats[name]
        share = next((k[f"weights.{each}"] for each in form.efficiency if f"weights.{each}" in k), None)
        unit = next((each for each in form.compute if f"device.compute.{each}" in k), "bf16")
        read = part.read * form.bits.value / 8 / (setup.width * k["device.bandwidth"] * (share or 1.0))
        reached = next((k[f"compute.{each}"] for each in (unit, "bf16") if f"compute.{each}" in k), 1.0)
        operations = 2 * part.multiplied * part.rows / (setup.width * _peak(setup, k, unit) * reached)
        time = time.plus(_joined(read, operations, k["overlap"], "weights"))
    return time


def _peak(setup: Setup, k: Constants, unit: str) -> float:
    found = k.get(f"device.compute.{unit}")
    return found if found is not None else max(k[f"device.compute.{name}"] for name in setup.device.compute)


def _joined(read: float, operations: float, p: float, kind: str) -> PassTime:
    """Reading and multiplying, one partly behind the other; the time is put down to the longer of the two."""
    if not read and not operations:
        return PassTime()
    longest = max(read, operations)
    both = longest * ((read / longest) ** p + (operations / longest) ** p) ** (1 / p)
    if operations > read:
        return PassTime(compute=both)
    return PassTime(kv=both) if kind == "kv" else PassTime(weights=both)


def _fixed(setup: Setup, k: Constants, layers: float, rows: float, *, plain: bool = False) -> PassTime:
    """Fixed time of layers and their two all-reduces, whose payload crosses the link twice."""
    kind = 1.0 if plain or setup.model.shape.attention == "gqa" else k["complex_layer"]
    devices = setup.width if not setup.device.pipelined else 1.0
    if devices <= 1:
        return PassTime(fixed=layers * k["layer"] * kind)
    sync = k["sync"] + 2 * (devices - 1) * k["sync_hop"]
    payload = _carry(setup, k, rows) * 2 * (devices - 1) / devices
    return PassTime(fixed=layers * (k["layer"] * kind + 2 * sync), link=layers * 2 * payload)


def _carry(setup: Setup, k: Constants, rows: float) -> float:
    """Seconds for the hidden states of ``rows`` over one link."""
    link = k.get("device.link")
    return rows * setup.model.shape.hidden * ACTIVATION_BYTES / link if link else 0.0


def _of_draft_model(setup: Setup) -> Setup:
    import msgspec

    from vivace.plan.draft import NO_DRAFT

    assert setup.draft_model is not None
    form = setup.draft.weights
    return msgspec.structs.replace(
        setup, model=setup.draft_model, weights=form, dense_weights=form, draft=NO_DRAFT, draft_model=None
    )


def kv_bytes_per_token(setup: Setup) -> float:
    """Bytes that one more position takes over all layers that keep one."""
    shape = setup.model.shape
    growing = shape.layers - shape.windowed_layers - shape.linear_layers
    return growing * numbers_per_position(shape) * setup.bits(setup.kv) / 8

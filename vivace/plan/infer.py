"""Backward: which models run at a claimed speed. A region by sampling, and how much of it is knowledge.

Draw everything from its prior, compute the speed with the forward equation, keep what comes within the tolerance. A
quantity is *identified* when what is kept is much narrower than what was drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from vivace.errors import UsageError, VivaceError
from vivace.plan.device import Calibration, Device
from vivace.plan.library import Library
from vivace.plan.priors import KV_FORMS, Prior, priors

Draws = Mapping[str, Any]
FREE = (0.2, 4.0)
"""Layers a device where nothing is said of them."""
PER_DRAW = 250_000
LEAST_KEPT = 300
SHOWN = ("layers", "active", "total", "total at 8 bits", "devices", "draft gain", "layers per device", "bits")


class Claim(Struct, frozen=True, kw_only=True):
    """``tok_s`` of one user, on so many devices; ``context`` and ``resident`` say what the pipeline must hold."""

    tok_s: float
    device: str
    devices: tuple[int, int]
    tolerance: float = 0.05
    gain: tuple[float, float] = (1.0, 1.0)
    layers_per_device: tuple[float, float] = (1.0, 1.0)
    context: int = 131_072
    kv_bits: int = 8


class Marginal(Struct, frozen=True, kw_only=True):
    """One quantity after the claim: 5, 50 and 95 %; ``narrowed``: how much narrower than before, 1 not at all."""

    name: str
    unit: str
    low: float
    middle: float
    high: float
    prior_low: float
    prior_high: float
    narrowed: float

    @property
    def verdict(self) -> str:
        if self.narrowed < 0.35:
            return "identified"
        return "weakly identified" if self.narrowed < 0.7 else "not identified"


class Region(Struct, frozen=True, kw_only=True):
    """What one set of assumptions leaves. ``points``: a sample of (layers, active, total, gain) for a picture."""

    assumption: str
    kept: int
    drawn: int
    marginals: list[Marginal]
    kv_resident: dict[str, tuple[float, float, float]]
    """Sequences of the stated context that fit beside the weights, per pass of the pipeline: 5, 50, 95 % by form."""
    kv_feasible: dict[str, float]
    """Share of the region in which the pipeline can be filled with such sequences, by form."""
    points: list[tuple[float, float, float, float]]

    def marginal(self, name: str) -> Marginal:
        return next(each for each in self.marginals if each.name == name)


class Inference(Struct, frozen=True, kw_only=True):
    claim: Claim
    priors: list[Prior]
    regions: list[Region]
    """The claim as it is told first, then with one assumption after the other given up."""
    verdict: list[str]


def infer(library: Library, claim: Claim, *, draws: int = 1_000_000, seed: int = 0) -> Inference:
    """The region of the claim, and of the claim under weaker assumptions. Raises :class:`VivaceError` when empty."""
    device = library.device(claim.device)
    _check(claim, device)
    calibration = library.calibration(device.calibration)
    rng = np.random.default_rng(seed)
    regions = []
    for assumption, gain, per_device in _assumptions(claim, device):
        stated = priors(device, calibration, devices=claim.devices, gain=gain, layers_per_device=per_device)
        regions.append(_region(assumption, claim, device, calibration, stated, draws, rng))
    told = priors(
        device, calibration, devices=claim.devices, gain=claim.gain, layers_per_device=claim.layers_per_device
    )
    return Inference(claim=claim, priors=told, regions=regions, verdict=_verdict(claim, regions))


def _assumptions(claim: Claim, device: Device) -> list[tuple[str, tuple[float, float], tuple[float, float]]]:
    told = claim.gain, claim.layers_per_device
    named = f"draft gain {_range(claim.gain)}"
    if device.pipelined:
        named += f", {_range(claim.layers_per_device)} layers a device"
    found = [(named, *told)]
    found += [
        (f"draft gain {_range(gain)}, otherwise as told", gain, claim.layers_per_device)
        for gain in ((1.0, 1.5), (1.0, 3.2))
        if gain[1] > claim.gain[1]
    ]
    if device.pipelined and claim.layers_per_device == (1.0, 1.0):
        found.append(("layers a device free, otherwise as told", claim.gain, FREE))
        found.append(("draft gain 1 to 3.2 and layers a device free", (1.0, 3.2), FREE))
    return found


def _region(
    assumption: str,
    claim: Claim,
    device: Device,
    calibration: Calibration,
    stated: Sequence[Prior],
    draws: int,
    rng: np.random.Generator,
) -> Region:
    kept: list[dict[str, np.ndarray]] = []
    before: dict[str, np.ndarray] = {}
    done = 0
    while done < draws:
        size = min(PER_DRAW, draws - done)
        drawn = {prior.name: _draw(prior, size, rng) for prior in stated}
        fits = _consistent(drawn, device, next(prior for prior in stated if prior.name == "layers"))
        drawn = {name: values[fits] for name, values in drawn.items()}
        drawn["total"] = _total(drawn, device)
        drawn["total at 8 bits"] = drawn["total"] * drawn["bits"] / 8
        before = before or drawn
        speed = predicted(drawn, device, calibration)
        near = np.abs(speed / claim.tok_s - 1) < claim.tolerance
        near &= drawn["active"] <= drawn["total"]
        kept.append({name: values[near] for name, values in drawn.items()})
        done += size
    after = {name: np.concatenate([part[name] for part in kept]) for name in kept[0]}
    count = len(after["layers"])
    if count < LEAST_KEPT:
        fastest = float(np.percentile(speed, 99.9)) if len(speed) else 0.0
        raise VivaceError(
            f"No model of the stated ranges runs at {claim.tok_s:g} tok/s on {_range(claim.devices)} x {device.name} "
            f"({count} of {draws:,} draws came near); 99.9 % of them stay below {fastest:,.0f} tok/s.",
            hint="Allow speculation (--gain 1-3.2), more devices, or a wider --tolerance.",
            code="no_region",
        )
    names = [name for name in SHOWN if len(np.unique(before[name][:100])) > 1]
    resident, feasible = _kv(after, claim, device)
    pick = rng.choice(count, min(count, 1500), replace=False)
    return Region(
        assumption=assumption,
        kept=count,
        drawn=draws,
        marginals=[_marginal(name, before, after) for name in names],
        kv_resident=resident,
        kv_feasible=feasible,
        points=[
            (float(layers), float(active), float(total), float(gain))
            for layers, active, total, gain in zip(
                *(after[name][pick] for name in ("layers", "active", "total", "draft gain")), strict=True
            )
        ],
    )  # fmt: skip


def _draw(prior: Prior, size: int, rng: np.random.Generator) -> np.ndarray:
    if prior.scale == "choice":
        return np.asarray(rng.choice(np.array(prior.values, dtype=float), size))
    if prior.scale == "log":
        return np.asarray(np.exp(rng.uniform(np.log(prior.low), np.log(prior.high), size)))
    return rng.uniform(prior.low, prior.high, size)


def _consistent(drawn: Draws, device: Device, layers: Prior) -> np.ndarray:
    """Layers and devices are one quantity in a pipeline: layers = devices x layers per device, within half a layer."""
    drawn["layers"][:] = np.rint(drawn["layers"])
    drawn["devices"][:] = np.rint(drawn["devices"])
    if not device.pipelined:
        return np.ones(len(drawn["layers"]), bool)
    per = drawn["layers per device"]
    if np.ptp(per) == 0:
        # One layer a device: what has no layer holds the ends, so a tenth of the devices may be left over either way.
        ratio = drawn["layers"] / (drawn["devices"] * per)
        return np.asarray((ratio > 0.9) & (ratio < 1.02))
    drawn["layers"][:] = np.rint(drawn["devices"] * per)
    return np.asarray((drawn["layers"] >= layers.low) & (drawn["layers"] <= layers.high))


def _total(drawn: Draws, device: Device) -> np.ndarray:
    """Total parameters that the stated share of the memory holds."""
    room = drawn["devices"] * device.memory.value * drawn["memory for weights"]
    return np.asarray(room * 8 / drawn["bits"])


def predicted(drawn: Draws, device: Device, calibration: Calibration) -> np.ndarray:
    """The forward equation of :mod:`vivace.plan.step` for arrays: one user, one sequence a pass, short
    context, the bytes of a crossing left out."""
    layers, devices = drawn["layers"], drawn["devices"]
    stages = np.minimum(devices, layers) if device.pipelined else np.ones_like(devices)
    width = devices / stages if not device.pipelined else 1.0
    fixed = (layers + drawn["ends"]) * drawn["fixed time"]
    if not device.pipelined:
        sync = calibration.sync.value + 2 * (devices - 1) * calibration.sync_hop.value
        fixed = fixed + np.where(devices > 1, 2 * (layers + drawn["ends"]) * sync, 0.0)
    read = drawn["active"] * drawn["bits"] / 8 / (width * device.bandwidth.value * drawn["bandwidth share"])
    peak = max(figure.value for figure in device.compute.values())
    share = max(figure.value for figure in calibration.compute.values())
    work = 2 * drawn["active"] / (width * peak * share)
    p = calibration.overlap.value
    joined = (read**p + work**p) ** (1 / p)
    return np.asarray(drawn["draft gain"] / (fixed + joined + (stages - 1) * drawn["hop"]))


def _kv(after: Draws, claim: Claim, device: Device) -> tuple[dict[str, tuple[float, float, float]], dict[str, float]]:
    """How many sequences of the claim's context fit beside the weights, if KV may take all that is left usable."""
    left = after["devices"] * device.memory.value * (device.usable.value - after["memory for weights"])
    left = np.maximum(left, 0.0)
    stages = np.minimum(after["devices"], after["layers"]) if device.pipelined else np.ones_like(after["devices"])
    resident, feasible = {}, {}
    for form, (numbers, _) in KV_FORMS.items():
        each = claim.context * after["layers"] * numbers * claim.kv_bits / 8
        sequences = left / each
        resident[form] = _percentiles(sequences)
        feasible[form] = float(np.mean(sequences >= stages))
    return resident, feasible


def _percentiles(values: np.ndarray) -> tuple[float, float, float]:
    low, middle, high = np.percentile(values, [5, 50, 95])
    return float(low), float(middle), float(high)


UNITS = {
    "active": "weights",
    "total": "weights",
    "total at 8 bits": "weights",
    "bits": "bits/weight",
    "draft gain": "tokens/step",
}


def _marginal(name: str, before: Draws, after: Draws) -> Marginal:
    low, middle, high = _percentiles(after[name])
    prior_low, _, prior_high = _percentiles(before[name])
    wide = np.log(prior_high / prior_low) if prior_low > 0 else 0.0
    narrow = np.log(high / low) if low > 0 else 0.0
    return Marginal(
        name=name,
        unit=UNITS.get(name, ""),
        low=low,
        middle=middle,
        high=high,
        prior_low=prior_low,
        prior_high=prior_high,
        narrowed=float(narrow / wide) if wide else 1.0,
    )


def _verdict(claim: Claim, regions: Sequence[Region]) -> list[str]:
    """In words: feasible or not, what is identified, and what only the assumptions say."""
    first, last = regions[0], regions[-1]
    layers, active, total = (first.marginal(name) for name in ("layers", "active", "total at 8 bits"))
    told = [
        f"Feasible: models of {layers.low:.0f} to {layers.high:.0f} layers run at {claim.tok_s:g} tok/s there.",
    ]
    if claim.layers_per_device[0] == claim.layers_per_device[1] and len(regions) > 1:
        free = last.marginal("layers")
        told.append(
            f"Layers: the assumed layers a device alone give {layers.prior_low:.0f} to {layers.prior_high:.0f}, "
            f"and the speed leaves {layers.low:.0f} to {layers.high:.0f} of them. With {last.assumption} it is "
            f"{free.low:.0f} to {free.high:.0f}: the number is an assumption, not a finding."
        )
    told.append(
        f"Active parameters are {active.verdict}: {active.low / 1e9:.0f} to {active.high / 1e9:.0f} billion as told, "
        f"{last.marginal('active').low / 1e9:.0f} to {last.marginal('active').high / 1e9:.0f} billion at the weakest."
    )
    told.append(
        f"Total parameters, {total.low / 1e12:.1f} to {total.high / 1e12:.1f} trillion at 8 bits (twice that at 4, "
        "half at 16), follow from devices x memory / width; the speed adds nothing."
    )
    lightest, heavy = max(first.kv_feasible.values()), first.kv_feasible["GQA-8"]
    if heavy < 0.5 < lightest:
        told.append(
            f"At {claim.context:,} tokens the pipeline can be filled in {heavy:.0%} of the region with GQA-8, in "
            f"{lightest:.0%} with MLA: a light KV cache is necessary, not decoration."
        )
    elif lightest <= 0.5:
        told.append(f"At {claim.context:,} tokens no form of KV fills the pipeline in more than {lightest:.0%} of it.")
    else:
        told.append(f"KV excludes little: GQA-8 fills the pipeline in {heavy:.0%} of the region.")
    if active.narrowed > 0.35:
        told.append("Right as feasibility, wrong as identification.")
    return told


def _range(pair: Sequence[float]) -> str:
    return f"{pair[0]:g}" if pair[0] == pair[1] else f"{pair[0]:g} to {pair[1]:g}"


def _check(claim: Claim, device: Device) -> None:
    if claim.tok_s <= 0:
        raise UsageError(f"--tok-s {claim.tok_s:g} has to be above 0.", code="impossible", param="tok-s")
    if not 0 < claim.tolerance < 1:
        raise UsageError(f"--tolerance {claim.tolerance:g} is not between 0 and 1.", param="tolerance")
    for name, pair, least in (("devices", claim.devices, 1), ("gain", claim.gain, 1.0)):
        if pair[0] < least or pair[1] < pair[0]:
            raise UsageError(
                f"--{name} {_range(pair)} has to rise and to begin at {least:g} or above.",
                code="impossible",
                param=name,
            )
    if not device.pipelined and device.group and claim.devices[1] > device.group.value:
        raise UsageError(
            f"{claim.devices[1]} of {device.name} are more than the {device.group.value:.0f} that share a layer.",
            code="impossible",
            param="devices",
        )

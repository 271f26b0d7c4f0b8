"""The constants of a set-up as plain numbers, and each of them moved to the ends of its interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from vivace.plan.device import Calibration, Device
from vivace.plan.evidence import Figure
from vivace.plan.setup import Setup

Constants = dict[str, float]

SCALARS = (
    "layer", "ends", "kv", "attention", "overlap", "sync", "sync_hop", "stage_hop", "chunk", "complex_layer",
)  # fmt: skip


def figures_of(calibration: Calibration, device: Device) -> dict[str, Figure]:
    """Every figure that a time is computed from, by name."""
    named = {name: getattr(calibration, name) for name in SCALARS}
    named |= {f"weights.{name}": figure for name, figure in calibration.weights.items()}
    named |= {f"compute.{name}": figure for name, figure in calibration.compute.items()}
    named |= {f"device.compute.{name}": figure for name, figure in device.compute.items()}
    named["device.bandwidth"] = device.bandwidth
    if device.link:
        named["device.link"] = device.link
    return named


def constants(setup: Setup) -> Constants:
    return {name: figure.value for name, figure in figures_of(setup.calibration, setup.device).items()}


def moved(setup: Setup) -> Iterator[tuple[str, Constants, Constants]]:
    """For each uncertain constant: its name, the constants with it low and with it high."""
    named = figures_of(setup.calibration, setup.device)
    middle = {name: figure.value for name, figure in named.items()}
    for name, figure in named.items():
        low, high = figure.span
        if low < high:
            yield name, {**middle, name: low}, {**middle, name: high}


def is_calibrated(setup: Setup) -> bool:
    """Whether device, engine and weight format are those that the calibration was measured with."""
    c = setup.calibration
    return (
        setup.device.name in c.devices
        and setup.engine in ("", c.engine)
        and setup.weights in c.formats
        and setup.dense_weights in c.formats
    )


def interval(setup: Setup, value: Callable[[Constants], float]) -> tuple[float, float]:
    """90 % interval of a positive quantity: the logarithmic effect of every uncertain constant, and of a transfer to
    a device or engine that was not measured, added in quadrature (independent errors)."""
    middle = math.log(value(constants(setup)))
    down = up = 0.0
    for _, low, high in moved(setup):
        effects = (math.log(value(low)) - middle, math.log(value(high)) - middle)
        down += min(*effects, 0.0) ** 2
        up += max(*effects, 0.0) ** 2
    if not is_calibrated(setup):
        beyond = math.log(setup.calibration.transfer.value) ** 2
        down, up = down + beyond, up + beyond
    return math.exp(middle - math.sqrt(down)), math.exp(middle + math.sqrt(up))

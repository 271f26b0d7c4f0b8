"""What is believed before a claim is heard: every range stated, with the reason for it."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from vivace.errors import UsageError
from vivace.plan.constants import figures_of
from vivace.plan.device import Calibration, Device

Scale = Literal["even", "log", "choice"]


class Prior(Struct, frozen=True, kw_only=True):
    """A quantity drawn from a range, evenly or evenly in its logarithm, or from listed values."""

    name: str
    unit: str
    scale: Scale
    low: float
    high: float
    values: tuple[float, ...] = ()
    reason: str

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise UsageError(
                f"The range of {self.name} is empty: {self.low:g} is above {self.high:g}.",
                code="impossible",
                param=self.name,
            )


KV_FORMS: dict[str, tuple[int, str]] = {
    "GQA-8": (2 * 8 * 128, "8 key-value heads of 128"),
    "GQA-4": (2 * 4 * 128, "4 key-value heads of 128"),
    "MLA": (512 + 64, "a latent of 512 and 64 rotary dimensions"),
}
"""Numbers that a position of a layer keeps, by form."""


def priors(
    device: Device,
    calibration: Calibration,
    *,
    devices: tuple[int, int],
    gain: tuple[float, float],
    layers_per_device: tuple[float, float],
    layers: tuple[float, float] = (20, 160),
    active: tuple[float, float] = (5e9, 600e9),
) -> list[Prior]:
    """The priors of an inference on ``device``: architecture, engine, draft."""
    named = figures_of(calibration, device)

    def of(name: str, unit: str, key: str) -> Prior:
        low, high = named[key].span
        log: Scale = "log" if low > 0 and high / low > 1.5 else "even"
        return Prior(name=name, unit=unit, scale=log, low=low, high=high, reason=named[key].note or "given")

    return [
        Prior(name="layers", unit="", scale="even", low=layers[0], high=layers[1], reason="open models have 24 to 126"),
        Prior(
            name="active", unit="weights", scale="log", low=active[0], high=active[1], reason="5 to 600 billion a token"
        ),
        Prior(
            name="devices", unit="", scale="even", low=devices[0], high=devices[1], reason="given with the claim"
        ),
        Prior(name="layers per device", unit="", scale="even", low=layers_per_device[0], high=layers_per_device[1],
              reason="one if the claim says so, free otherwise"),
        Prior(name="draft gain", unit="tokens/step", scale="even", low=gain[0], high=gain[1],
              reason="1 is no speculation; implied gains of open models on the same device reach 3.2"),
        Prior(name="bits", unit="bits/weight", scale="choice", low=4, high=16, values=(4, 8, 16),
              reason="the formats that are served"),
        Prior(name="memory for weights", unit="share", scale="even", low=0.35, high=0.85,
              reason="the rest is KV, code and buffers"),
        of("fixed time", "s/layer", "layer"),
        of("ends", "layers", "ends"),
        of("bandwidth share", "of peak", "weights.bf16"),
        of("hop", "s", "stage_hop"),
    ]  # fmt: skip

"""A device, what was measured of it, and what it costs: the typed form of the files in data/."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from vivace.plan.evidence import Figure

Kind = Literal["wafer", "lpu", "rdu", "asic", "gpu", "tpu", "cpu"]
PIPELINED: tuple[Kind, ...] = ("wafer", "lpu")
"""Devices over which layers are laid one after the other; all others share every layer (tensor parallel)."""


class Device(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One device as its maker states it. Bytes, bytes per second, operations per second, watts, US dollars."""

    name: str
    title: str
    kind: Kind
    memory: Figure
    bandwidth: Figure
    compute: dict[str, Figure]
    """Dense operations per second by number format (``bf16``, ``fp8``, ``int8``, ``fp4``)."""
    usable: Figure
    """Share of the memory that weights and KV may take."""
    calibration: str
    """Whose constants predict it: a name of data/calibrations."""
    link: Figure | None = None
    """To its neighbour, one direction."""
    power: Figure | None = None
    group: Figure | None = None
    """Devices that share a fast interconnect: the most that one layer is spread over."""
    price_hour: Figure | None = None
    capital: Figure | None = None
    note: str = ""
    aliases: list[str] = []

    @property
    def pipelined(self) -> bool:
        return self.kind in PIPELINED


class Calibration(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The constants of one engine on one kind of device; every one with its 90 % interval.

    Seconds throughout. ``weights`` and ``compute`` are shares of the device's peak by number format.
    """

    name: str
    title: str
    engine: str
    devices: list[str]
    """Where it was measured; on any other device a plan counts as not calibrated."""
    formats: list[str]
    """Weight formats that it was measured with."""
    rows: list[str]
    """Rows of the validation table that went into it and therefore never count as evidence for it."""
    layer: Figure
    """Fixed time of one layer: kernel starts, norms, reductions inside the device."""
    ends: Figure
    """Fixed time of embedding, final norm, head and choice of the token, in layers."""
    weights: dict[str, Figure]
    kv: Figure
    """Share of the peak bandwidth at which attention reads the cache."""
    compute: dict[str, Figure]
    attention: Figure
    """Share of the bf16 peak that attention reaches."""
    overlap: Figure
    """p of (bytes^p + operations^p)^(1/p): 1 where reading and multiplying add up, large where one hides the other."""
    sync: Figure
    """One all-reduce, without its hops."""
    sync_hop: Figure
    """Added for each device of the ring, there and back."""
    stage_hop: Figure
    """From one device of a pipeline to the next."""
    chunk: Figure
    """Tokens of a prompt that one pass takes."""
    transfer: Figure
    """Factor by which a time may be off (90 %) on a device or with an engine that it was not measured on."""
    complex_layer: Figure
    """Fixed time of a layer with latent attention (MLA), in plain layers."""
    note: str = ""


class Price(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a hosted tier costs and how fast it is; dollars per million tokens, tokens per second."""

    name: str
    title: str
    model: str
    tier: str
    input: Figure
    output: Figure
    tok_s: Figure
    cached: Figure | None = None
    """Input that the provider has seen before."""
    note: str = ""
    aliases: list[str] = []


class Format(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A number format of weights or KV: its width with scales, and the unit of the device that multiplies it."""

    bits: Figure
    compute: list[str]
    """The device's compute formats that serve it, the first that it has is taken."""
    efficiency: list[str]
    """The calibration's weight formats that stand for it, in this order."""


class Source(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    title: str
    where: str
    """A public address, or the public name of a document."""

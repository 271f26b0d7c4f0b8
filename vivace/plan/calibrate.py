"""This machine as a device: the constants of the embedded engine, from timed passes of one small model.

The engine is not imported: the command hands in a :class:`Machine` that runs single passes. Six constants are fitted to
fourteen shapes of passes. A single row with its output and without tells the time of the head, a matrix read and
nothing else, and so bandwidth from the fixed time of layers; weak priors hold what the shapes leave open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import msgspec
import numpy as np
from msgspec import Struct

from vivace.errors import VivaceError
from vivace.plan.constants import Constants, constants
from vivace.plan.device import Calibration, Device
from vivace.plan.evidence import Figure, Grade
from vivace.plan.library import THIS_MACHINE, Library
from vivace.plan.model import Model
from vivace.plan.setup import Setup, make_setup
from vivace.plan.step import pass_time

NAME = THIS_MACHINE
CONTEXTS = (512, 2048, 6144)
VERIFY_ROWS = 64
SLICE = 256
"""Rows of a prompt that the engine takes in one pass when nobody else decodes."""


class Bounds(Struct, frozen=True, kw_only=True):
    """What the machine itself can do, measured without a model. ``int8`` counts two operations for a product."""

    bytes_per_second: float
    int8_per_second: float
    bf16_per_second: float
    memory: int
    """Bytes of main memory."""
    threads: int
    title: str = "this machine"


class Machine(Protocol):
    """The engine with one model loaded."""

    def bounds(self) -> Bounds: ...

    def seconds(self, rows: int, before: int, outputs: int) -> float:
        """Time of one pass of ``rows`` rows behind ``before`` positions; tokens wanted of the last ``outputs``."""
        ...


class Point(Struct, frozen=True, kw_only=True):
    """A timed shape: the samples in seconds, and the one figure that stands for them."""

    rows: int
    before: int
    outputs: int
    samples: list[float]

    @property
    def seconds(self) -> float:
        """The shortest: other work on the machine only ever adds."""
        return min(self.samples)


SHAPES: tuple[tuple[int, int, int], ...] = (
    *((1, before, 1) for before in (128, 2048, 6144)),
    (1, 128, 0),
    *((rows, 512, rows) for rows in (8, 16, 32, 64, 128)),
    (64, 4096, 64),
    *((SLICE, before, 0) for before in (0, 1024, 4096)),
    (SLICE, 512, SLICE),
)

PRIORS: dict[str, tuple[float, float]] = {
    # start and relative spread (as a logarithm) of what is fitted
    "layer": (60e-6, 1.0),
    "weights.int8": (0.8, 0.3),
    "compute.int8": (0.6, 0.5),
    "overlap": (3.0, 0.7),
    "kv": (0.5, 0.7),
    "attention": (0.3, 0.7),
}
WEIGHT = 0.04
"""Relative error of a timed pass that counts as much as one spread of a prior."""


def measure(
    machine: Machine, shapes: Sequence[tuple[int, int, int]], rounds: int, say: Callable[[str], None]
) -> list[Point]:
    """Time the shapes in turn, ``rounds`` times after one that warms them up."""
    samples: dict[tuple[int, int, int], list[float]] = {shape: [] for shape in shapes}
    for turn in range(rounds + 1):
        for shape in shapes:
            seconds = machine.seconds(*shape)
            if turn:
                samples[shape].append(seconds)
        say(f"round {turn} of {rounds}")
    return [Point(rows=r, before=b, outputs=o, samples=times) for (r, b, o), times in samples.items()]


def busy(points: Sequence[Point]) -> bool:
    """Whether other work disturbed the timings: half of the samples of a usual shape are a quarter above its best."""
    return float(np.median([np.median(point.samples) / point.seconds for point in points])) > 1.25


def calibrate(
    library: Library, model: Model, bounds: Bounds, points: Sequence[Point]
) -> tuple[Device, Calibration, float]:
    """Device and calibration from timed passes of ``model``, and the root mean square of what is left unexplained."""
    if min(bounds.bytes_per_second, bounds.int8_per_second) <= 0:
        raise VivaceError(
            "The machine's bounds could not be measured.",
            hint="The native kernels have to be built: pip install . with a C++ compiler.",
            code="not_calibrated",
        )
    device, blank = (
        _device(bounds, busy(points)),
        _calibration(model, {name: start for name, (start, _) in PRIORS.items()}, 0.1),
    )
    setup = _setup(library, model, device, blank, 1)
    fitted = _fit(setup, points)
    left = _residuals({**constants(setup), **fitted}, setup, points)
    error = float(np.sqrt(np.mean(left**2)))
    return device, _calibration(model, fitted, error), error


def predict(setup: Setup, k: Constants, rows: int, before: int, outputs: int) -> float:
    """Seconds of one pass of this shape."""
    return pass_time(setup, k, sequences=1, rows=rows, context=before, logits=outputs).total


class Predicted(Struct, frozen=True, kw_only=True):
    """One figure of another model: predicted first, measured afterwards."""

    what: str
    context: int
    predicted: float
    measured: float
    samples: list[float]

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1


def held_out_shapes() -> list[tuple[str, int, tuple[int, int, int]]]:
    """What is predicted of a model that the calibration did not see: by name and context, in seconds."""
    return [
        (what, context, shape)
        for context in CONTEXTS
        for what, shape in (
            ("decode", (1, context, 1)),
            ("verify", (VERIFY_ROWS, context, VERIFY_ROWS)),
            ("prefill", (SLICE, context, 1)),
        )
    ]


def check(
    library: Library, model: Model, device: Device, calibration: Calibration, points: Sequence[Point]
) -> list[Predicted]:
    """Compare ``points`` of ``model``, timed over :func:`held_out_shapes`, with what the calibration says of them."""
    setup = _setup(library, model, device, calibration, 1)
    k = constants(setup)
    by_shape = {(point.rows, point.before, point.outputs): point for point in points}
    return [
        Predicted(
            what=what,
            context=context,
            predicted=predict(setup, k, *shape),
            measured=by_shape[shape].seconds,
            samples=by_shape[shape].samples,
        )
        for what, context, shape in held_out_shapes()
        if shape in by_shape
    ]


def write(folder: Path, device: Device, calibration: Calibration) -> list[Path]:
    """Write both files where :class:`Library` finds them before the shipped ones."""
    written = []
    for entry, sub in ((device, "devices"), (calibration, "calibrations")):
        path = folder / sub / f"{NAME}.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_toml(msgspec.to_builtins(entry)), encoding="utf-8")
        written.append(path)
    return written


def _setup(library: Library, model: Model, device: Device, calibration: Calibration, context: int) -> Setup:
    return make_setup(
        library, model, device, count=1, context=context, weights="int8", calibration=calibration, check_window=False
    )


def _fit(setup: Setup, points: Sequence[Point]) -> Constants:
    """Least squares in logarithms with the priors as further observations (Levenberg and Marquardt)."""
    names = list(PRIORS)
    base = constants(setup)
    start = np.log([PRIORS[name][0] for name in names])
    spread = np.array([PRIORS[name][1] for name in names])

    def errors(values: np.ndarray) -> np.ndarray:
        moved = {**base, **dict(zip(names, np.exp(values).tolist(), strict=True))}
        return np.concatenate([_residuals(moved, setup, points) / WEIGHT, (values - start) / spread])

    values, damping = start.copy(), 1.0
    now = errors(values)
    for _ in range(200):
        slope = np.array([(errors(values + step) - now) / 1e-4 for step in np.eye(len(names)) * 1e-4]).T
        square = slope.T @ slope
        step = np.linalg.solve(square + damping * np.diag(np.diag(square)), -slope.T @ now)
        after = errors(values + np.clip(step, -0.5, 0.5))
        if after @ after < now @ now:
            values, damping = values + np.clip(step, -0.5, 0.5), damping / 3
            done = now @ now - after @ after < 1e-9
            now = after
            if done:
                break
        else:
            damping *= 4
            if damping > 1e9:
                break
    return dict(zip(names, np.exp(values).tolist(), strict=True))


def _residuals(k: Constants, setup: Setup, points: Sequence[Point]) -> np.ndarray:
    return np.array(
        [np.log(predict(setup, k, point.rows, point.before, point.outputs) / point.seconds) for point in points]
    )


def _figure(value: float, *, spread: float = 0.0, grade: Grade = "L", note: str = "") -> Figure:
    date = datetime.now(UTC).date().isoformat()
    low, high = (value * (1 - spread), value * (1 + spread)) if spread else (None, None)
    return Figure(value=value, grade=grade, source="calibrate", date=date, low=low, high=high, note=note)


def _device(bounds: Bounds, disturbed: bool) -> Device:
    return Device(
        name=NAME,
        title=bounds.title,
        kind="cpu",
        memory=_figure(float(bounds.memory)),
        bandwidth=_figure(bounds.bytes_per_second),
        compute={"int8": _figure(bounds.int8_per_second), "bf16": _figure(bounds.bf16_per_second)},
        usable=_figure(0.7, grade="D", note="the rest is the system's and other programs'"),
        group=_figure(1, grade="D", note="one machine"),
        calibration=NAME,
        note=f"{bounds.threads} threads" + ("; other work disturbed the timings: calibrate again" if disturbed else ""),
    )


def _calibration(model: Model, fitted: Constants, error: float) -> Calibration:
    spread = min(0.5, max(0.08, 1.65 * error))
    note = f"fitted to timed passes of {model.name}"
    nothing = _figure(0.0, grade="D", note="no other device takes part")
    return Calibration(
        name=NAME,
        title="the embedded engine on this machine",
        engine="vivace",
        devices=[NAME],
        formats=["int8"],
        rows=[],
        layer=_figure(fitted["layer"], spread=0.5, note=note),
        ends=_figure(1.0, grade="D", note="as on other devices"),
        weights={"int8": _figure(fitted["weights.int8"], spread=spread, note=note)},
        compute={
            "int8": _figure(fitted["compute.int8"], spread=spread, note=note),
            "bf16": _figure(fitted["compute.int8"], spread=0.3, grade="D", note="as int8, not measured"),
        },
        kv=_figure(fitted["kv"], spread=0.3, note=note),
        attention=_figure(fitted["attention"], spread=0.2, note=note),
        overlap=_figure(fitted["overlap"], note=note),
        sync=nothing,
        sync_hop=nothing,
        stage_hop=nothing,
        chunk=_figure(SLICE, grade="D", note="rows of a prompt that the engine takes in one pass"),
        transfer=_figure(1.3, grade="D", note="another engine or machine"),
        complex_layer=_figure(1.0, grade="D", note="no model with latent attention was timed"),
    )


def _toml(entry: dict[str, object]) -> str:
    """An entry as TOML: scalars and figures on lines of their own, tables of figures after them."""
    lines, tables = [], []
    for key, value in entry.items():
        if value is None or value == "":
            continue
        if isinstance(value, dict) and "grade" not in value:
            tables.append(f"\n[{key}]")
            tables += [f"{name} = {_value(inner)}" for name, inner in value.items()]
        else:
            lines.append(f"{key} = {_value(value)}")
    return "\n".join([*lines, *tables]) + "\n"


def _value(value: object) -> str:
    if isinstance(value, dict):
        inner = ", ".join(f"{key} = {_value(each)}" for key, each in value.items() if each not in (None, ""))
        return f"{{ {inner} }}"
    if isinstance(value, list):
        return "[" + ", ".join(_value(each) for each in value) + "]"
    if isinstance(value, str):
        return msgspec.json.encode(value).decode()
    return repr(float(value)) if isinstance(value, float) else str(value)

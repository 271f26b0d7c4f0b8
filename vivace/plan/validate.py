"""Predictions against measured rows, by class of hardware. Rows that a calibration was solved from never count."""

from __future__ import annotations

from msgspec import Struct, structs

from vivace.errors import VivaceError
from vivace.plan.constants import constants, interval
from vivace.plan.draft import NO_DRAFT
from vivace.plan.forward import decode_speed
from vivace.plan.library import Library
from vivace.plan.measurements import Row, read_rows, setup_of
from vivace.plan.step import step_time

TARGETS = {
    "GPU bf16": 0.10,
    "GPU int8 and int4": 0.15,
    "DeepSeek-R1 MTP series": 0.05,
}
"""Greatest mean absolute error of the held-out classes that have one. Wafer rows have to lie within their interval."""
INSIDE = "wafer, no speculation"


class Checked(Struct, frozen=True, kw_only=True):
    """One row with its prediction. ``quantity`` is tok/s, or the speed-up of a draft over its baseline row."""

    id: str
    role: str
    kind: str
    model: str
    setting: str
    quantity: str = "tok/s"
    measured: float
    predicted: float | None = None
    low: float | None = None
    high: float | None = None
    implied_gain: float | None = None
    """Tokens a step that would explain the measured speed, for rows whose speculation is not known."""
    reason: str = ""

    @property
    def error(self) -> float | None:
        return self.predicted / self.measured - 1 if self.predicted is not None else None

    @property
    def inside(self) -> bool | None:
        if self.low is None or self.high is None:
            return None
        return self.low <= self.measured <= self.high


class ClassError(Struct, frozen=True, kw_only=True):
    kind: str
    rows: int
    mean: float
    worst: float
    inside: int
    """Rows within their 90 % interval."""
    width: float
    """Geometric mean of high / low."""
    target: str
    met: bool | None
    """None where no target is set."""


class Validation(Struct, frozen=True, kw_only=True):
    rows: list[Checked]
    classes: list[ClassError]


def validate(library: Library) -> Validation:
    """Every row of the table: predicted where its set-up is known, with the reason where it is not."""
    rows = read_rows()
    by_id = {row.id: row for row in rows}
    checked = [_check(library, row, by_id) for row in rows]
    kinds = dict.fromkeys(row.kind for row in checked if row.role in ("held-out", "extra"))
    return Validation(rows=checked, classes=[_class_error(kind, checked) for kind in kinds])


def _check(library: Library, row: Row, by_id: dict[str, Row]) -> Checked:
    count = f"{row.count} x " if row.count else ""
    parts = (f"{count}{row.device or 'unnamed'}", row.weights, row.engine, row.note)
    plain = Checked(
        id=row.id,
        role=row.role,
        kind=row.kind,
        model=row.model or "unnamed",
        setting=", ".join(part for part in parts if part),
        measured=row.measured.value,
        reason=row.reason,
    )
    if not row.model or not row.device:
        return plain
    try:
        setup = setup_of(library, row)
    except VivaceError as error:
        return structs.replace(plain, reason=f"{row.reason}; {error.message}" if row.reason else error.message)
    k = constants(setup)
    if row.role == "excluded":
        step = step_time(setup, k, sequences=1, context=row.context).total
        return structs.replace(plain, implied_gain=row.measured.value * step if row.state != "none" else None)
    if row.baseline:
        base = structs.replace(setup, draft=NO_DRAFT)
        return structs.replace(
            plain,
            quantity="speed-up",
            measured=row.measured.value / by_id[row.baseline].measured.value,
            predicted=decode_speed(setup, k) / decode_speed(base, k),
        )
    low, high = interval(setup, lambda moved: decode_speed(setup, moved))
    return structs.replace(plain, predicted=decode_speed(setup, k), low=low, high=high)


def _class_error(kind: str, rows: list[Checked]) -> ClassError:
    of_class = [row for row in rows if row.kind == kind and row.predicted is not None]
    errors = [abs(row.error or 0.0) for row in of_class]
    inside = sum(row.inside is True for row in of_class)
    widths = [row.high / row.low for row in of_class if row.high is not None and row.low]
    width = 1.0
    for each in widths:
        width *= each ** (1 / len(widths))
    mean = sum(errors) / len(errors)
    target, met = "", None
    if kind in TARGETS:
        target, met = f"mean error under {TARGETS[kind]:.0%}", mean < TARGETS[kind]
    elif kind == INSIDE:
        target, met = "every row inside its 90 % interval", inside == len(of_class)
    return ClassError(
        kind=kind,
        rows=len(of_class),
        mean=mean,
        worst=max(errors),
        inside=inside,
        width=width if widths else 1.0,
        target=target,
        met=met,
    )

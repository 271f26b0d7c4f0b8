"""The measured rows: what was measured, under which conditions, and whether it may count as evidence."""

from __future__ import annotations

import tomllib
from typing import Literal

import msgspec
from msgspec import Struct

from vivace.errors import VivaceError
from vivace.plan.draft import NO_DRAFT, Draft
from vivace.plan.evidence import Figure
from vivace.plan.library import DATA, Library
from vivace.plan.setup import Setup, make_setup

State = Literal["none", "mtp", "draft", "unknown"]
Role = Literal["calibrated", "held-out", "excluded", "extra"]


class Row(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``measured``: tokens per second of one user. ``model`` or ``device`` is empty where nobody says which."""

    id: str
    model: str
    device: str
    context: int
    state: State
    role: Role
    measured: Figure
    count: int | None = None
    engine: str = ""
    calibration: str = ""
    """Where the device's usual one is not that of the software of the time."""
    weights: str = ""
    dense_weights: str = ""
    kv: str = "bf16"
    batch: int = 1
    acceptance: tuple[float, ...] = ()
    draft_weights: str = "bf16"
    baseline: str = ""
    """The row without a draft that this one's speed-up refers to; then the speed-up is what is predicted."""
    kind: str = msgspec.field(default="", name="class")
    reason: str = ""
    """Why it is excluded."""
    note: str = ""


class Rows(Struct, frozen=True, forbid_unknown_fields=True):
    row: list[Row]


def read_rows() -> list[Row]:
    path = DATA / "measurements.toml"
    try:
        return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), Rows).row
    except (msgspec.ValidationError, tomllib.TOMLDecodeError) as error:
        raise VivaceError(f"{path}: {error}", code="data") from None


def setup_of(library: Library, row: Row, *, count: int | None = None) -> Setup:
    """The set-up that a row was measured on."""
    draft = Draft("mtp", row.acceptance, "", row.draft_weights) if row.state == "mtp" else NO_DRAFT
    return make_setup(
        library,
        library.model(row.model),
        library.device(row.device),
        count=row.count if row.count is not None else count,
        context=row.context,
        batch=row.batch,
        weights=row.weights,
        dense_weights=row.dense_weights,
        kv=row.kv,
        draft=draft,
        engine=row.engine,
        calibration=library.calibration(row.calibration) if row.calibration else None,
        check_window=False,
    )

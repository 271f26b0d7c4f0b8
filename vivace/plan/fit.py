"""Constants from measured rows: as many equations as unknowns, solved with Newton's method.

Which rows, and which constants they give, stands here and in the calibration's file; a test solves them again and
compares.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vivace.errors import VivaceError
from vivace.plan.constants import Constants, constants
from vivace.plan.forward import decode_speed
from vivace.plan.library import Library
from vivace.plan.measurements import Row, read_rows, setup_of

SYSTEMS: dict[str, list[tuple[list[str], list[str]]]] = {
    # calibration: (unknowns, rows), solved one after the other with what is known by then
    "gpt-fast-a100": [
        (["layer", "weights.bf16", "sync"], ["35a", "37a", "37c"]),
        (["weights.int8"], ["35b"]),
        (["weights.int4"], ["35c"]),
    ],
    "cs-3-2024-08": [(["layer", "weights.bf16"], ["1", "2"])],
}


def fit(library: Library, name: str) -> Constants:
    """The fitted constants of a calibration, by name."""
    rows = {row.id: row for row in read_rows()}
    known: Constants = {}
    for unknowns, wanted in SYSTEMS[name]:
        known |= _solve(library, name, unknowns, [rows[each] for each in wanted], known)
    return known


def _solve(library: Library, name: str, unknowns: Sequence[str], rows: Sequence[Row], known: Constants) -> Constants:
    setups = [setup_of(library, row) for row in rows]
    target = np.log([row.measured.value for row in rows])
    base = [{**constants(setup), **known} for setup in setups]

    def speeds(values: np.ndarray) -> np.ndarray:
        moved = dict(zip(unknowns, np.exp(values), strict=True))
        return np.log([decode_speed(setup, {**k, **moved}) for setup, k in zip(setups, base, strict=True)])

    values = np.log([base[0][unknown] for unknown in unknowns])
    for _ in range(60):
        now = speeds(values)
        if np.abs(now - target).max() < 1e-10:
            return dict(zip(unknowns, np.exp(values).tolist(), strict=True))
        slope = np.array([(speeds(values + step) - now) / 1e-5 for step in np.eye(len(values)) * 1e-5]).T
        values = values - np.clip(np.linalg.solve(slope, now - target), -0.5, 0.5)
    raise VivaceError(f"The rows of {name} do not determine {', '.join(unknowns)}.", code="data")

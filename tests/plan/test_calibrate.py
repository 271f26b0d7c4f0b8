"""This machine: constants that are known come back, and a model that was not timed is predicted."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from benchmarks.plan.machine import MARKDOWN, MEASURED, markdown
from vivace.errors import VivaceError
from vivace.plan import calibrate as c
from vivace.plan.constants import constants
from vivace.plan.forward import forecast
from vivace.plan.library import DATA, Library
from vivace.plan.setup import Setup, make_setup

BOUNDS = c.Bounds(bytes_per_second=30e9, int8_per_second=12e12, bf16_per_second=6e12, memory=16 << 30, threads=2)
TRUE = {"layer": 90e-6, "weights.int8": 0.88, "compute.int8": 0.33, "overlap": 1.6, "kv": 0.6, "attention": 0.19}


class Synthetic:
    """A machine that follows the equation with known constants."""

    def __init__(self, library: Library, model: str, noise: float = 0.0) -> None:
        device, calibration, _ = c.calibrate(
            library, library.model(model), BOUNDS, [c.Point(rows=1, before=1, outputs=1, samples=[0.02])]
        )
        self._setup: Setup = make_setup(
            library, library.model(model), device, count=1, weights="int8", calibration=calibration, check_window=False
        )
        self._k = {**constants(self._setup), **TRUE}
        self._noise, self._calls = noise, 0

    def bounds(self) -> c.Bounds:
        return BOUNDS

    def seconds(self, rows: int, before: int, outputs: int) -> float:
        self._calls += 1
        disturbed = 1 + self._noise * (self._calls % 3)
        return c.predict(self._setup, self._k, rows, before, outputs) * disturbed


def test_known_constants_come_back(library: Library) -> None:
    points = c.measure(Synthetic(library, "coder-0.5b"), c.SHAPES, 2, lambda text: None)
    _, calibration, error = c.calibrate(library, library.model("coder-0.5b"), BOUNDS, points)
    assert error < 0.01
    assert calibration.attention.value == pytest.approx(TRUE["attention"], rel=0.1)
    assert calibration.compute["int8"].value == pytest.approx(TRUE["compute.int8"], rel=0.1)
    assert calibration.weights["int8"].value == pytest.approx(TRUE["weights.int8"], rel=0.05)


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_another_model_is_predicted_also_from_disturbed_timings(library: Library, noise: float) -> None:
    points = c.measure(Synthetic(library, "coder-0.5b", noise), c.SHAPES, 6, lambda text: None)
    device, calibration, _ = c.calibrate(library, library.model("coder-0.5b"), BOUNDS, points)
    other = Synthetic(library, "coder-1.5b")
    timed = c.measure(other, [shape for _, _, shape in c.held_out_shapes()], 1, lambda text: None)
    found = c.check(library, library.model("coder-1.5b"), device, calibration, timed)
    assert len(found) == 9
    assert max(abs(each.error) for each in found) < 0.05


def test_the_files_are_read_again(library: Library, tmp_path: Path) -> None:
    points = c.measure(Synthetic(library, "coder-0.5b"), c.SHAPES, 1, lambda text: None)
    device, calibration, _ = c.calibrate(library, library.model("coder-0.5b"), BOUNDS, points)
    written = c.write(tmp_path, device, calibration)
    assert [path.parent.name for path in written] == ["devices", "calibrations"]
    mine = Library([tmp_path, DATA])
    assert mine.device("this-machine") == device
    assert mine.calibration("this-machine") == calibration
    setup = make_setup(mine, mine.model("coder-0.5b"), mine.device("this-machine"), weights="int8", context=1024)
    found = forecast(setup)
    assert found.calibrated
    assert 30 < found.decode.user.value < 70
    assert "this-machine" in mine.names(type(device))


def test_a_busy_machine_is_told(library: Library) -> None:
    for noise, disturbed in ((0.0, False), (0.02, False), (0.5, True)):
        points = c.measure(Synthetic(library, "coder-0.5b", noise), c.SHAPES, 5, lambda text: None)
        device, _, _ = c.calibrate(library, library.model("coder-0.5b"), BOUNDS, points)
        assert c.busy(points) is disturbed
        assert ("disturbed" in device.note) is disturbed


def test_a_machine_without_kernels_is_refused(library: Library) -> None:
    nothing = msgspec.structs.replace(BOUNDS, int8_per_second=0.0)
    with pytest.raises(VivaceError, match="could not be measured"):
        c.calibrate(library, library.model("coder-0.5b"), nothing, [])


def test_the_measured_machine_is_predicted_within_fifteen_percent(library: Library) -> None:
    """Committed timings of both models: calibrated on the small one, the larger one predicted at three contexts."""
    document = json.loads(MEASURED.read_text(encoding="utf-8"))
    bounds = msgspec.convert(document["bounds"], c.Bounds)
    small, large = (msgspec.convert(document["points"][name], list[c.Point]) for name in ("coder-0.5b", "coder-1.5b"))
    device, calibration, error = c.calibrate(library, library.model("coder-0.5b"), bounds, small)
    assert error < 0.05
    found = c.check(library, library.model("coder-1.5b"), device, calibration, large)
    assert {(each.what, each.context) for each in found} == {
        (what, context) for what in ("decode", "verify", "prefill") for context in c.CONTEXTS
    }
    wrong = [f"{each.what} at {each.context}: {each.error:+.1%}" for each in found if abs(each.error) >= 0.15]
    assert not wrong, wrong


def test_the_committed_table_of_this_machine_is_what_its_timings_say() -> None:
    assert MARKDOWN.read_text(encoding="utf-8") == markdown()

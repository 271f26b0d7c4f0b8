"""The recommendation for machines of every size, and what the command prints about this one."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from vivace import doctor as module
from vivace.doctor import Machine, doctor, report
from vivace.engine import native
from vivace.models.catalogue import ModelInfo, shipped
from vivace.recommendation import CONTEXT, SHARE, Place, Recommendation, estimate, recommend

GB = 10**9


def advise(memory: float, bandwidth: float | None, weight_bytes: int = 1) -> Recommendation:
    place = Place("CPU", int(memory * GB), None if bandwidth is None else bandwidth * GB, weight_bytes)
    return recommend([estimate(model, place) for model in shipped().values()], place)


@pytest.mark.parametrize(
    ("memory", "bandwidth", "weight_bytes", "expected"),
    [
        (0.5, 28, 1, ("none", None, None)),
        (2, 28, 1, ("fast", "coder-0.5b", "coder-0.5b")),
        (16, 28, 1, ("both", "coder-0.5b", "coder-1.5b")),  # 7B would decode 3.96.
        (16, 30, 1, ("both", "coder-0.5b", "coder-7b")),
        (10.5, 30, 1, ("fast", "coder-0.5b", "coder-7b")),  # Each fits, both together do not.
        (64, 60, 1, ("both", "coder-1.5b", "coder-30b-a3b")),
        (128, 300, 1, ("fast", "coder-30b-a3b", "coder-30b-a3b")),
        (64, 2, 1, ("fast", "coder-0.5b", "coder-0.5b")),
        (140, 4800, 2, ("fast", "coder-30b-a3b", "coder-30b-a3b")),
        (24, 900, 2, ("fast", "coder-7b", "coder-7b")),
        (16, 28, 4, ("both", "coder-0.5b", "coder-1.5b")),
    ],
)
def test_lanes_by_memory_and_bandwidth(
    memory: float, bandwidth: float, weight_bytes: int, expected: tuple[str, str | None, str | None]
) -> None:
    advice = advise(memory, bandwidth, weight_bytes)
    assert (advice.mode, advice.fast, advice.deep) == expected
    assert advice.reasons


def test_numbers_follow_from_the_model() -> None:
    model = ModelInfo("m", "qwen2", 1000, 1, "x", pass_parameters=400, kv_values=3)
    made = estimate(model, Place("CPU", 10**6, 8000.0, 2))
    assert made.memory == 2000 + 3 * CONTEXT * 2
    assert made.pass_bytes == 800
    assert made.decode == 10.0
    assert made.fits
    assert estimate(dataclasses.replace(model, pass_parameters=0), Place("CPU", 10**6, 1e4, 1)).pass_bytes == 1000
    assert not estimate(model, Place("CPU", made.memory, 1.0, 2)).fits


def test_reasons_say_what_decided() -> None:
    slow = advise(64, 2)
    assert "though its bound of 4.0 tokens/s" in slow.reasons[0]
    assert "smallest needs 0.6 GB" in advise(0.5, 28).reasons[0]
    assert "not measured" in advise(16, None).reasons[0]
    sparse = advise(64, 60)
    assert "reads most of its experts" in sparse.reasons[1]
    assert "both lanes at once" in sparse.reasons[2]
    assert "one lane at a time" in advise(10.5, 30).reasons[-1]


@given(st.floats(0, 300), st.none() | st.floats(0.001, 8000), st.sampled_from([1, 2, 4]))
def test_what_is_recommended_fits_and_has_no_caution(memory: float, bandwidth: float | None, width: int) -> None:
    place = Place("CPU", int(memory * GB), None if bandwidth is None else bandwidth * GB, width)
    made = {model.name: estimate(model, place) for model in shipped().values()}
    advice = recommend(list(made.values()), place)
    assert (advice.mode == "none") == (advice.fast is None) == (advice.deep is None)
    names = {name for name in (advice.fast, advice.deep) if name}
    assert all(made[name].fits and not made[name].model.caution for name in names)
    if advice.mode == "both":
        assert len(names) == 2
        assert sum(made[name].memory for name in names) <= SHARE * place.memory
    if advice.fast and advice.deep:
        assert made[advice.deep].model.parameters >= made[advice.fast].model.parameters


MACHINE = Machine(
    python="3.11",
    torch=None,
    cores=2,
    allowed=2,
    threads=2,
    isa="amx",
    memory_total=24 * GB,
    memory_free=16 * GB,
    gpu=None,
    gpu_memory_free=0,
    bandwidth=30.0 * GB,
    int8=8.5e12,
    gpu_bandwidth=None,
    load=0.0,
)


def test_a_gpu_is_where_models_run() -> None:
    assert (MACHINE.place.name, MACHINE.place.weight_bytes) == ("CPU", 1)
    with_gpu = dataclasses.replace(MACHINE, gpu="Card", gpu_memory_free=80 * GB, gpu_bandwidth=2e12)
    assert with_gpu.place == Place("Card", 80 * GB, 2e12, 2)


def figures(values: Any) -> Iterator[dict[str, Any]]:
    if isinstance(values, dict):
        if set(values) == {"value", "unit", "how"}:
            yield values
        for inner in values.values():
            yield from figures(inner)
    elif isinstance(values, list):
        for inner in values:
            yield from figures(inner)


def test_every_number_says_where_it_comes_from() -> None:
    estimates = [estimate(model, MACHINE.place) for model in shipped().values()]
    made = report(MACHINE, estimates, {"coder-0.5b"}, recommend(estimates, MACHINE.place))
    found = list(figures(made))
    assert len(found) == 10 + 3 * len(shipped())
    assert {figure["how"] for figure in found} == {"measured", "derived", "read from the system"}

    def loose(values: Any) -> Iterator[float]:
        if isinstance(values, dict) and "how" not in values:
            for inner in values.values():
                yield from loose(inner)
        elif isinstance(values, list | tuple):
            for inner in values:
                yield from loose(inner)
        elif isinstance(values, int | float) and not isinstance(values, bool):
            yield values

    assert list(loose(made)) == [1], "bytes_per_weight names the arithmetic; every other number is a figure"


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> typer.Typer:
    monkeypatch.setenv("VIVACE_MODELS_DIR", str(tmp_path))
    monkeypatch.setenv("VIVACE_DEVICE", "cpu")
    monkeypatch.setattr(module, "BANDWIDTH_SECONDS", 0.01)
    monkeypatch.setattr(module, "INT8_SECONDS", 0.01)
    app = typer.Typer()
    app.command()(doctor)
    return app


@pytest.mark.parametrize("built", [True, False])
def test_the_command_on_this_machine(command: typer.Typer, built: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if built and not native.available():
        pytest.skip("the native kernels are not built here")
    monkeypatch.setattr(native, "available", lambda: built)
    result = CliRunner().invoke(command, ["--json"], catch_exceptions=False)
    made = json.loads(result.stdout)
    assert result.exit_code == 0
    assert made["kernels"]["built"] is built
    assert ("setup.py" in made["kernels"]["hint"]) is not built
    assert made["figures"]["bandwidth"]["value"] > 1e8
    assert made["figures"]["memory_free"]["value"] > 1e8
    assert (made["figures"]["int8"]["value"] is not None) is built
    assert not any(model["present"] for model in made["models"])
    text = CliRunner().invoke(command, [], catch_exceptions=False).stdout
    assert "Recommended:" in text and "(measured)" in text and "no commercial use" in text

"""The data files: complete, sourced, consistent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vivace.errors import UsageError, VivaceError
from vivace.plan.device import Calibration, Device, Price
from vivace.plan.evidence import Evidence, Figure
from vivace.plan.library import DATA, FOLDERS, Library, figures
from vivace.plan.measurements import read_rows
from vivace.plan.model import Model, active_parameters, total_parameters

KINDS: tuple[Any, ...] = (Device, Model, Calibration, Price)
WANTED = {
    "wse-3", "groq-lpu", "sn40l", "hc1", "h100", "h200", "b200", "gb200", "b300", "gb300", "mi300x", "mi355x",
    "tpu-v7x", "a100",
}  # fmt: skip


def every_figure(library: Library) -> list[tuple[str, Figure | Evidence]]:
    found = [
        (f"{FOLDERS[kind]}/{entry.name}: {place}", figure)
        for kind in KINDS
        for entry in library.every(kind)
        for place, figure in figures(entry)
    ]
    found += [(f"formats/{name}: {place}", f) for name, form in library.formats.items() for place, f in figures(form)]
    found += [(f"measurements/{row.id}", row.measured) for row in read_rows()]
    return found


def test_every_figure_is_sound_and_sourced(library: Library) -> None:
    found = every_figure(library)
    assert len(found) > 300
    wrong = [f"{place}: {problem}" for place, f in found if isinstance(f, Figure) for problem in f.problems()]
    assert not wrong, wrong
    unknown = [f"{place}: source {f.source!r}" for place, f in found if f.source not in library.sources]
    assert not unknown, unknown


def test_no_source_is_left_over(library: Library) -> None:
    used = {figure.source for _, figure in every_figure(library)} | {"calibrate", "config-json", "gguf"}
    assert used >= set(library.sources), set(library.sources) - used


def test_the_devices_of_the_field_are_there(library: Library) -> None:
    assert set(library.names(Device)) >= WANTED


@pytest.mark.parametrize(
    "line",
    [
        'memory = { value = 1e9, grade = "V", date = "2026-11" }',
        'memory = { value = 1e9, source = "aiconfigurator-systems", date = "2026-11" }',
        'memory = { value = 1e9, grade = "V", source = "aiconfigurator-systems" }',
        'memory = { value = 1e9, grade = "Z", source = "aiconfigurator-systems", date = "2026-11" }',
        "memory = 1e9",
    ],
    ids=["no source", "no grade", "no date", "unknown grade", "bare number"],
)
def test_a_figure_without_evidence_is_refused(tmp_path: Path, line: str) -> None:
    text = (DATA / "devices" / "h100.toml").read_text(encoding="utf-8").splitlines()
    folder = tmp_path / "devices"
    folder.mkdir()
    changed = [line if each.startswith("memory") else each for each in text]
    (folder / "h100.toml").write_text("\n".join(changed), encoding="utf-8")
    with pytest.raises(VivaceError) as caught:
        Library([tmp_path, DATA]).device("h100")
    assert "memory" in str(caught.value)


def test_problems_of_a_figure_are_told() -> None:
    figure = Figure(value=3.0, low=4.0, high=5.0, grade="D", source="", date="soon")
    assert len(figure.problems()) == 4


def test_a_file_has_the_name_of_its_entry(tmp_path: Path) -> None:
    (tmp_path / "devices").mkdir()
    text = (DATA / "devices" / "h100.toml").read_text(encoding="utf-8")
    (tmp_path / "devices" / "mine.toml").write_text(text, encoding="utf-8")
    with pytest.raises(VivaceError, match="differ"):
        Library([tmp_path, DATA]).device("mine")


def test_a_file_of_the_user_goes_first(tmp_path: Path) -> None:
    (tmp_path / "devices").mkdir()
    text = (DATA / "devices" / "h100.toml").read_text(encoding="utf-8").replace("H100", "My own")
    (tmp_path / "devices" / "h100.toml").write_text(text, encoding="utf-8")
    assert "My own" in Library.for_user(tmp_path).device("H100 ".lower()).title


def test_names_and_aliases_are_unique(library: Library) -> None:
    for kind in KINDS:
        names = [name for entry in library.every(kind) for name in (entry.name, *getattr(entry, "aliases", []))]
        assert len(names) == len(set(names)), kind


def test_an_alias_finds_its_entry(library: Library) -> None:
    assert library.device("CS-3").name == "wse-3"
    assert library.model("deepseek-v3").name == "deepseek-r1"


@pytest.mark.parametrize(("name", "near"), [("h1000", "h100"), ("wse3-x", "wse-3")])
def test_an_unknown_name_gets_the_nearest(library: Library, name: str, near: str) -> None:
    with pytest.raises(UsageError) as caught:
        library.device(name)
    assert near in caught.value.hint
    assert caught.value.exit_code == 2


def test_a_name_is_never_a_path(library: Library) -> None:
    with pytest.raises(UsageError):
        library.device("../devices/h100")


def test_shapes_give_the_published_parameters(library: Library) -> None:
    """Within 4 % of the total and 10 % of the active ones; publishers count embeddings differently."""
    seen = 0
    for model in library.every(Model):
        if model.shape.missing() or model.unknown:
            continue
        if model.total:
            assert total_parameters(model.shape) == pytest.approx(model.total.value, rel=0.04), model.name
            seen += 1
        if model.active:
            assert active_parameters(model.shape) == pytest.approx(model.active.value, rel=0.1), model.name
    assert seen > 20


def test_devices_name_calibrations_that_exist(library: Library) -> None:
    for device in library.every(Device):
        assert library.calibration(device.calibration).name == device.calibration


def test_calibrated_rows_are_those_of_the_calibrations(library: Library) -> None:
    named = {row for calibration in library.every(Calibration) for row in calibration.rows}
    assert named == {row.id for row in read_rows() if row.role == "calibrated"}
    assert named == {"1", "2", "35a", "35b", "35c", "37a", "37c"}


def test_excluded_rows_say_why() -> None:
    rows = read_rows()
    assert len({row.id for row in rows}) == len(rows)
    assert all(row.reason for row in rows if row.role == "excluded")
    assert all(row.kind for row in rows if row.role in ("held-out", "extra"))
    numbers = {int("".join(c for c in row.id if c.isdigit())) for row in rows if not row.id.startswith("x")}
    assert numbers == set(range(1, 46))

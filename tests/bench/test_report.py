"""The JSON document, and the table and plots made from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.samples import document
from vivace.bench.record import load, save
from vivace.bench.table import contender_order, markdown, pass_bound
from vivace.errors import UsageError


def test_a_document_survives_saving(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "speed.json"
    save(document(), path)
    assert load(path) == document()
    assert [file.name for file in path.parent.iterdir()] == ["speed.json"]


@pytest.mark.parametrize("text", ["", "{}", "[]", "nonsense", '{"format": 1, "runs": 3}'])
def test_what_is_no_document_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "speed.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"no result of 'vivace bench speed'"):
        load(path)
    with pytest.raises(UsageError, match="Cannot read"):
        load(tmp_path / "none.json")


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "speed.json"
    newer = document()
    newer.format = 99
    save(newer, path)
    with pytest.raises(UsageError, match="format 99"):
        load(path)


def test_rates() -> None:
    run = document().runs[0]
    assert run.decode_rate == pytest.approx(880 / 0.75)
    assert run.prefill_rate == pytest.approx(4000)


def test_the_bound_is_bandwidth_then_arithmetic() -> None:
    assert pass_bound(document(), 1, 0) == pytest.approx(0.02)
    assert pass_bound(document(), 256, 0) == pytest.approx(0.0512)
    assert pass_bound(document(), 1, 1000) == pytest.approx((5e8 + 1000 * 6144 * 2) / 25e9)


def test_markdown_holds_medians_ratios_and_shares() -> None:
    text = markdown(document())
    assert "| rename | vivace | 1.10 | 1-1.20 |" in text
    assert "| 88% | 90 | 3/3 | 2/3 |" in text
    assert "| rename | slow peer | 10.5 | 10-11 |" in text and "| 2/3 | - |" in text
    assert "| slow peer | 10.0 |" in text or "| slow peer | 10 |" in text
    assert "| vivace | 1 | 21 | 20 | 95% |" in text
    assert "plain decode (context 0) | vivace | 40 |" in text and "| 80% |" in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert all(line.endswith("|") for line in rows)


def test_fastest_first_and_runs_that_do_not_count_are_left_out() -> None:
    assert contender_order(document()) == ["vivace", "slow peer"]
    nothing = document()
    for run in nothing.runs:
        run.counts = run.contender == "slow peer" and run.counts
    assert contender_order(nothing) == ["slow peer"]


def test_plots(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from vivace.bench.plots import draw_all

    written = draw_all(document(), tmp_path, "speed")
    assert {path.name for path in written} == {
        f"speed-{what}.{kind}" for what in ("turns", "decode", "widths") for kind in ("svg", "png")
    }
    assert all(path.stat().st_size > 1000 for path in written)

"""Shares, summaries, comparisons, tables and plots."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.tasksets.samples import record, report
from vivace.bench.tasksets.compare import compare, described, mcnemar
from vivace.bench.tasksets.plots import curve, draw, equal_accuracy
from vivace.bench.tasksets.record import save
from vivace.bench.tasksets.reports import show, show_comparison
from vivace.bench.tasksets.summary import reasons, share, summarise
from vivace.bench.tasksets.table import markdown
from vivace.errors import UsageError


def test_wilson_by_known_values() -> None:
    assert (share(0, 10).low, share(0, 10).high) == (0.0, 27.8)
    assert (share(10, 10).low, share(10, 10).high) == (72.2, 100.0)
    assert (share(81, 263).percent, share(81, 263).low, share(81, 263).high) == (30.8, 25.5, 36.6)


@given(st.integers(1, 300), st.data())
def test_wilson_holds_the_rate(of: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, of))
    found = share(count, of)
    assert 0 <= found.low <= found.percent <= found.high <= 100


def test_a_summary_by_kind() -> None:
    records = [
        record(1, passed=True, seconds=2, ttft=0.1, tok_s=100, changed_lines_ratio=3.0),
        record(2, passed=False, seconds=9, ttft=0.3, wrong_place=True),
        record(3, passed=True, seconds=4, kind="repair", second_round=True),
        record(
            4, passed=False, kind="repair", applied=False, status="refused", wrong_place=None, reason="line 12 lost"
        ),
    ]
    found = summarise(records)
    assert list(found) == ["edit", "repair", "all"]
    whole = found["all"]
    assert (whole.pass_rate.count, whole.applied_rate.count, whole.first_round.count) == (2, 3, 1)
    assert (whole.median_seconds, whole.p90_seconds, whole.median_turn_seconds) == (3.0, 3.8, 3.0)
    assert whole.ttft == pytest.approx(0.2) and whole.tok_s == 100 and whole.changed_lines_ratio == 2.0
    assert (whole.wrong_place.count, whole.wrong_place.of, whole.wrong, whole.refused) == (1, 3, 1, 1)
    assert whole.reasons == {"line # lost": 1}
    assert list(summarise(records[:2])) == ["edit", "all"] and found["repair"].median_seconds == 4
    assert summarise([record(1, passed=False)])["edit"].median_seconds is None


def test_reasons_are_gathered() -> None:
    told = ["the result does not parse (line 3)", "the result does not parse (line 70)", "`f` is gone\nmore", ""]
    assert reasons(told) == {"the result does not parse (...)": 2, "'...' is gone": 1, "no reason given": 1}
    many = reasons([f"reason {chr(97 + n)}{chr(97 + m)}" for n in range(26) for m in range(2)])
    assert len(many) == 21 and many["others"] == 32


def test_mcnemar_by_known_values() -> None:
    assert mcnemar(0, 6) == pytest.approx(0.03125)
    assert mcnemar(5, 5) == 1.0 and mcnemar(0, 0) == 1.0
    assert mcnemar(1, 9) == mcnemar(9, 1) == pytest.approx(0.021484375)
    assert 0 < mcnemar(400, 700) < 1e-15


def test_a_comparison_pair_by_pair() -> None:
    first = report([record(n, passed=n < 40, seconds=1) for n in range(100)])
    second = report([record(n, passed=n < 60, seconds=2) for n in range(100)], candidates=4)
    found = compare(first, second)
    assert (found.pairs, found.both, found.only_first, found.only_second, found.neither) == (100, 40, 0, 20, 40)
    assert found.gain.value == 20 and 10 < found.gain.low < 20 < found.gain.high < 30
    assert found.p == mcnemar(0, 20)
    assert found.time_ratio is not None
    assert (found.time_ratio.value, found.time_ratio.low, found.time_ratio.high) == (2.0, 2.0, 2.0)
    assert found.warnings == () and found.left_out == 0
    assert compare(first, second) == found, "the same every time"
    back = compare(second, first)
    assert back.gain.value == -20 and back.gain.low == pytest.approx(-found.gain.high, abs=0.01)
    assert "coder-0.5b fast x4" in described(found) and "+20.0 points" in described(found)


def test_seeds_of_a_task_are_drawn_together() -> None:
    """Three seeds that all do the same are no three times the evidence."""
    chance = random.Random(1)
    gains = [chance.random() < 0.2 for _ in range(60)]
    once = [record(n, passed=False) for n in range(60)], [record(n, passed=gains[n]) for n in range(60)]
    thrice = [[record(int(r.id[2:]), passed=r.passed, seed=s) for r in side for s in range(3)] for side in once]
    single = compare(report(once[0]), report(once[1]))
    triple = compare(report(thrice[0]), report(thrice[1]))
    assert triple.pairs == 180 and triple.tasks == 60
    assert triple.p is None and single.p is not None
    width = single.gain.high - single.gain.low
    assert triple.gain.high - triple.gain.low == pytest.approx(width, rel=0.05)
    assert any("60 tasks are few" in warning for warning in triple.warnings)


def test_only_common_tasks_count_and_other_editions_are_refused() -> None:
    first, second = (
        report([record(n, passed=True) for n in range(3)]),
        report([record(n, passed=True) for n in (1, 2, 3, 4)]),
    )
    found = compare(first, second)
    assert found.pairs == 2 and found.left_out == 3
    with pytest.raises(UsageError, match="no task with the same seed"):
        compare(first, report([record(9, passed=True)]))
    other = report([record(1, passed=True)])
    other.tasks = {"edit.jsonl": "11"}
    with pytest.raises(UsageError, match=r"edit\.jsonl is not the same file"):
        compare(first, other)


def test_times_that_do_not_compare_are_named() -> None:
    rows = [record(n, passed=True) for n in range(120)]
    shared = compare(report(rows), report(rows, parallel=4))
    assert any("shared the engine" in warning for warning in shared.warnings)


def test_a_curve_of_what_is_green_in_time() -> None:
    rows = [record(1, passed=True, seconds=3), record(2, passed=True, seconds=1), record(3, passed=False, seconds=0.1)]
    found = curve(report(rows))
    assert found.seconds == (1, 3) and found.rates == (pytest.approx(100 / 3), pytest.approx(200 / 3))
    assert found.time_to(30) == 1 and found.time_to(34) == 3 and found.time_to(70) is None


def test_times_are_compared_at_the_rate_that_all_reach() -> None:
    fast = report([record(n, passed=n < 5, seconds=1 + n / 10) for n in range(10)])
    deep = report([record(n, passed=n < 8, seconds=10 + n) for n in range(10)], mode="deep")
    found = equal_accuracy([fast, deep])
    assert found is not None and found.rate == 50.0
    assert found.seconds == {"coder-0.5b fast": 1.4, "coder-0.5b deep": 14}
    assert equal_accuracy([fast, report([record(1, passed=False)], mode="auto")]) is None


def test_a_table_leaves_out_times_that_are_no_users() -> None:
    rows = [record(1, passed=True, seconds=1.234)]
    alone, shared = markdown([report(rows)]), markdown([report(rows, parallel=4)])
    assert "1.23" in alone and "1.23" not in shared
    assert "100.0 (20.7-100.0)" in alone and "`vivace bench tasks edit.jsonl`" in alone


def test_files_in_and_plots_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    paths = []
    for n in (1, 4):
        rows = [record(k, passed=k < 4 + n, seconds=n + k / 10) for k in range(10)]
        paths.append(tmp_path / f"n{n}.json")
        save(report(rows, candidates=n), paths[-1])
    show(paths, table=True, plot=tmp_path / "plots" / "rate")
    said = capsys.readouterr().out
    assert "| coder-0.5b | fast | 4 |" in said and "for 50.0 % to pass" in said
    for kind in ("svg", "png"):
        assert (tmp_path / "plots" / f"rate.{kind}").stat().st_size > 5000
    show_comparison(*paths, tmp_path / "compared.json")
    assert "gain: +30.0 points" in capsys.readouterr().out
    assert b'"gain"' in (tmp_path / "compared.json").read_bytes()


def test_the_same_results_give_the_same_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    made = report([record(k, passed=k < 4, seconds=k + 1) for k in range(8)])
    draw([made], tmp_path / "one")
    draw([made], tmp_path / "two")
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()

"""Pass rate against wall time, drawn with matplotlib (the ``bench`` extra), and time compared at equal accuracy."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from vivace.bench.tasksets.record import Record, Report
from vivace.bench.tasksets.summary import share
from vivace.errors import VivaceError

FORMATS = ("svg", "png")


class Curve(Struct, frozen=True):
    """``seconds[n]`` is the wall time within which ``rates[n]`` percent of all turns have ended green."""

    name: str
    seconds: tuple[float, ...]
    rates: tuple[float, ...]

    def time_to(self, rate: float) -> float | None:
        """The wall time a turn must be given for ``rate`` percent to pass; None where the curve never gets there."""
        return next((s for s, reached in zip(self.seconds, self.rates, strict=True) if reached >= rate - 1e-9), None)


def curve(report: Report) -> Curve:
    """Turns that are given ever more time: one step up for every turn that ends green."""
    green = sorted(record.seconds for record in report.records if record.passed)
    return Curve(
        report.options.name,
        tuple(green),
        tuple(100 * (n + 1) / len(report.records) for n in range(len(green))),
    )


class EqualAccuracy(Struct, frozen=True):
    """The wall time that each configuration needs for the same pass rate, in percent: the highest that all reach."""

    rate: float
    seconds: dict[str, float]


def equal_accuracy(reports: Sequence[Report]) -> EqualAccuracy | None:
    """None where one of the reports passes nothing."""
    curves = [curve(report) for report in reports]
    rate = min((one.rates[-1] if one.rates else 0.0 for one in curves), default=0.0)
    needed = {one.name: one.time_to(rate) for one in curves}
    found = {name: seconds for name, seconds in needed.items() if seconds is not None}
    return EqualAccuracy(round(rate, 1), found) if rate > 0 and len(found) == len(needed) else None


def draw(reports: Sequence[Report], stem: Path) -> list[Path]:
    """Write ``stem.svg`` and ``stem.png``; returns them. Raises :class:`VivaceError` without matplotlib.

    Left: pass rate with its Wilson interval against the median turn, one point a configuration, those of one mode
    joined in the order of their candidates. Right: what share passes within a wall time; where a horizontal line cuts
    two curves is how their times compare at equal accuracy.
    """
    try:
        matplotlib = importlib.import_module("matplotlib")
    except ImportError as error:
        raise VivaceError(
            "Plots need matplotlib.", hint="Install it: pip install 'vivace[bench]'.", code="no_matplotlib"
        ) from error
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "vivace"  # the same results give the same file
    pyplot = importlib.import_module("matplotlib.pyplot")
    figure, (points, steps) = pyplot.subplots(1, 2, figsize=(12, 4.8), layout="constrained")
    colours = pyplot.get_cmap("tab10").colors
    lines = dict.fromkeys((report.options.model, report.options.mode) for report in reports)
    for number, line in enumerate(lines):
        mine = [report for report in reports if (report.options.model, report.options.mode) == line]
        _points(points, sorted(mine, key=lambda report: report.options.candidates or 0), colours[number % len(colours)])
    longest = max((record.seconds for report in reports for record in report.records), default=1.0)
    for report in reports:
        _steps(steps, report, longest)
    if (equal := equal_accuracy(reports)) is not None:
        steps.axhline(equal.rate, color="grey", linestyle=":", linewidth=1)
    points.set_xlabel("median wall time of a turn, seconds")
    steps.set_xlabel("wall time that a turn is given, seconds")
    points.set_xlim(0, 1.15 * max((_median(report.records) for report in reports), default=1.0))
    steps.set_xscale("log")
    steps.xaxis.set_major_formatter("{x:g}")
    steps.xaxis.set_minor_formatter("")
    for axes in (points, steps):
        axes.set_ylabel("pass rate, %")
        axes.set_ylim(0, 100)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    written = [stem.with_name(f"{stem.name}.{kind}") for kind in FORMATS]
    stem.parent.mkdir(parents=True, exist_ok=True)
    for target in written:
        figure.savefig(target, dpi=120, metadata={"Date": None} if target.suffix == ".svg" else None)
    pyplot.close(figure)
    return written


def _points(axes: Any, reports: Sequence[Report], colour: Any) -> None:
    rates = [share(sum(record.passed for record in report.records), len(report.records)) for report in reports]
    middles = [_median(report.records) for report in reports]
    heights = [rate.percent for rate in rates]
    errors = [[rate.percent - rate.low for rate in rates], [rate.high - rate.percent for rate in rates]]
    options = reports[0].options
    axes.errorbar(
        middles, heights, yerr=errors, marker="o", capsize=3, color=colour, label=f"{options.model} {options.mode}"
    )
    for report, at, height in zip(reports, middles, heights, strict=True):
        count = report.options.candidates or "default"
        axes.annotate(f"N={count}", (at, height), xytext=(6, 4), textcoords="offset points")


def _steps(axes: Any, report: Report, longest: float) -> None:
    """From nothing to the whole pass rate, which stays as it is up to the longest turn of all."""
    found = curve(report)
    first, last = (found.seconds[0], found.rates[-1]) if found.seconds else (longest, 0.0)
    axes.step([first, *found.seconds, longest], [0.0, *found.rates, last], where="post", label=found.name)


def _median(records: Sequence[Record]) -> float:
    seconds = sorted(record.seconds for record in records)
    middle = len(seconds) // 2
    return seconds[middle] if len(seconds) % 2 else (seconds[middle - 1] + seconds[middle]) / 2

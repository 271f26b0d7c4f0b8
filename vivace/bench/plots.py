"""Plots made from a benchmark's document with matplotlib (the ``bench`` extra)."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from vivace.bench.record import Document
from vivace.bench.stats import median
from vivace.bench.table import contender_order, pass_bound, task_order
from vivace.errors import VivaceError

FORMATS = ("svg", "png")


def draw_all(document: Document, folder: Path, stem: str) -> list[Path]:
    """Write each plot that the document has figures for; returns the files."""
    try:
        matplotlib = importlib.import_module("matplotlib")
    except ImportError as error:
        raise VivaceError(
            "Plots need matplotlib.", hint="Install it: pip install 'vivace[bench]'.", code="no_matplotlib"
        ) from error
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "vivace"  # the same document gives the same file
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    if document.runs:
        written += _save(_turns(document, "seconds"), folder / f"{stem}-turns")
        written += _save(_turns(document, "decode_rate"), folder / f"{stem}-decode")
    if any(figure.measure == "widths" for figure in document.figures):
        written += _save(_widths(document), folder / f"{stem}-widths")
    return written


def _turns(document: Document, what: str) -> Any:
    """Bars by task, one colour a contender; logarithmic only where engines differ more than twentyfold."""
    pyplot = importlib.import_module("matplotlib.pyplot")
    names, tasks = contender_order(document), task_order(document)
    figure, axes = pyplot.subplots(figsize=(2 + 2.2 * len(tasks), 4.5), layout="constrained")
    width = 0.8 / max(1, len(names))
    drawn: list[float] = []
    colours = pyplot.get_cmap("tab20").colors
    for place, name in enumerate(names):
        heights = [
            median(getattr(r, what) for r in document.runs if r.contender == name and r.task == task and r.counts)
            for task in tasks
        ]
        drawn += [height for height in heights if height and height == height]
        at = [number + (place - (len(names) - 1) / 2) * width for number in range(len(tasks))]
        axes.bar(at, heights, width, label=name, color="black" if name == "vivace" else colours[place % len(colours)])
    if drawn and max(drawn) > 20 * min(drawn):
        axes.set_yscale("log")
    axes.set_xticks(range(len(tasks)), tasks)
    axes.set_ylabel("whole turn, seconds" if what == "seconds" else "decode, tokens per second")
    axes.grid(axis="y", alpha=0.3)
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5))
    axes.set_title(f"{document.model.name}, {document.machine.cores} cores")
    return figure


def _widths(document: Document) -> Any:
    """Milliseconds of one pass by its rows, and the machine's bound."""
    pyplot = importlib.import_module("matplotlib.pyplot")
    figures = [figure for figure in document.figures if figure.measure == "widths"]
    plot, axes = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
    for name in dict.fromkeys(figure.contender for figure in figures):
        mine = [figure for figure in figures if figure.contender == name]
        rows = [int(figure.about["rows"]) for figure in mine]
        axes.plot(rows, [median(figure.samples) for figure in mine], marker="o", label=name)
    rows = sorted({int(figure.about["rows"]) for figure in figures})
    context = int(figures[0].about.get("context", 0))
    bound = [pass_bound(document, width, context) * 1e3 for width in rows]
    if all(bound):
        axes.plot(rows, bound, color="black", linestyle="--", label="bound of the machine")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(rows, [str(width) for width in rows])
    axes.set_xlabel("rows of one pass")
    axes.set_ylabel("milliseconds")
    axes.grid(alpha=0.3)
    axes.legend()
    axes.set_title(f"{document.model.name}, {document.machine.cores} cores, {context:,} positions before")
    return plot


def _save(figure: Any, path: Path) -> list[Path]:
    pyplot = importlib.import_module("matplotlib.pyplot")
    written = [path.with_name(f"{path.name}.{kind}") for kind in FORMATS]
    for target in written:
        figure.savefig(target, dpi=120, metadata={"Date": None} if target.suffix == ".svg" else None)
    pyplot.close(figure)
    return written

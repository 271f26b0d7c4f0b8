"""Results shown: a table, a plot, a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from vivace.bench.tasksets.compare import compare, described
from vivace.bench.tasksets.plots import draw, equal_accuracy
from vivace.bench.tasksets.record import load
from vivace.bench.tasksets.table import markdown


def show(files: Sequence[Path], *, table: bool, plot: Path | None) -> None:
    """Print the table, draw the plot, and say how times compare at equal accuracy."""
    reports = [load(path) for path in files]
    if table:
        print(markdown(reports), end="")
    if plot is None:
        return
    for path in draw(reports, plot):
        print(path)
    if len(reports) > 1 and (equal := equal_accuracy(reports)) is not None:
        print(f"Wall time that a turn must be given for {equal.rate} % to pass:")
        for name, seconds in equal.seconds.items():
            print(f"  {name:<28} {seconds:.2f} s")


def show_comparison(first: Path, second: Path, out: Path | None) -> None:
    """Print the comparison; write it to ``out`` as JSON where that is given."""
    found = compare(load(first), load(second))
    print(described(found))
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")

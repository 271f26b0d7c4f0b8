"""Write the table of this machine from its committed timings: ``python -m benchmarks.plan.machine``."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from vivace.plan.calibrate import Bounds, Point, Predicted, calibrate, check
from vivace.plan.library import Library
from vivace.plan.report import checked_rows

HERE = Path(__file__).parent
MEASURED = HERE / "this-machine.json"
MARKDOWN = HERE / "this-machine.md"


def compared() -> tuple[Bounds, float, list[Predicted]]:
    """The machine's bounds, the error left on coder-0.5b, and coder-1.5b as predicted and as measured."""
    document = json.loads(MEASURED.read_text(encoding="utf-8"))
    bounds = msgspec.convert(document["bounds"], Bounds)
    small, large = (msgspec.convert(document["points"][name], list[Point]) for name in ("coder-0.5b", "coder-1.5b"))
    library = Library()
    device, calibration, error = calibrate(library, library.model("coder-0.5b"), bounds, small)
    return bounds, error, check(library, library.model("coder-1.5b"), device, calibration, large)


def markdown() -> str:
    bounds, error, found = compared()
    head, *rows = checked_rows(found)
    worst = max(abs(each.error) for each in found)
    mean = sum(abs(each.error) for each in found) / len(found)
    lines = [
        "# coder-1.5b on this machine, predicted from coder-0.5b",
        "",
        f"Bounds: {bounds.bytes_per_second / 1e9:.1f} GB/s, {bounds.int8_per_second / 1e12:.1f} int8 TOPS, "
        f"{bounds.bf16_per_second / 1e12:.1f} bf16 TFLOPS with {bounds.threads} threads. The fit leaves {error:.1%} on "
        f"coder-0.5b. Mean error {mean:.1%}, worst {worst:.1%}.",
        "",
        f"| {' | '.join(head)} |",
        f"|{'---|' * len(head)}",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    MARKDOWN.write_text(markdown(), encoding="utf-8")
    print(markdown())


if __name__ == "__main__":
    main()

"""The table of edit tasks on the page of the results folder, made from the JSON files and from nothing else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- edit tasks: begin -->", "<!-- edit tasks: end -->"
HEAD = """## Edit tasks

Made from `edit-tasks.*.json` by `python -m benchmarks.edit_tasks --table`.
Each task once through the turn of `vivace edit --yes`; the tests only grade. `passed` has its 95 % Wilson interval.
`first round`: passed without a second one. `wrong`: applied, tests fail. `untouched`: of the applied edits, those that
left the rest of a long file as it was. Times are whole turns with the model loaded; with several turns in flight they
are no user's, and left out.
"""
COLUMNS = (
    "model",
    "kind",
    "tasks",
    "candidates",
    "passed %",
    "first round %",
    "applied %",
    "wrong",
    "refused",
    "unchanged",
    "untouched %",
    "median s",
    "p90 s",
)


def write_table(folder: Path) -> None:
    """Write this table into ``README.md`` of ``folder``; other parts of the page stay."""
    page = folder / "README.md"
    text = page.read_text("utf-8") if page.exists() else "# Results\n"
    before, begin, rest = text.partition(BEGIN)
    after = rest.partition(END)[2].lstrip("\n") if begin else ""
    parts = [before.rstrip("\n"), f"{BEGIN}\n{_section(folder)}\n{END}", after.rstrip("\n")]
    page.write_text("\n\n".join(part for part in parts if part) + "\n", encoding="utf-8")


def _section(folder: Path) -> str:
    reports = [(path.name, json.loads(path.read_text("utf-8"))) for path in sorted(folder.glob("edit-tasks.*.json"))]
    out = [HEAD, _row(COLUMNS), _row(["---"] * len(COLUMNS))]
    for _, report in reports:
        out += [_row(_cells(report, kind)) for kind in report["summary"]]
    out += ["", "| file | date | vivace | engine | processor | made by |", _row(["---"] * 6)]
    for name, report in reports:
        machine = f"{report['machine']['cpu']}, {report['machine']['cores']} cores"
        cells = [name, report["date"], report["vivace"], report["engine"], machine, f"`{report['command']}`"]
        out.append(_row(cells))
    return "\n".join(out)


def _cells(report: dict[str, Any], kind: str) -> list[str]:
    options, s = report["options"], report["summary"][kind]
    alone = options["parallel"] == 1
    passed = s["passed"]
    return [
        options["model"],
        kind,
        str(passed["of"]),
        str(options["candidates"]),
        f"{passed['percent']} ({passed['low']}-{passed['high']})",
        str(s["first_round"]["percent"]),
        str(s["applied"]["percent"]),
        str(s["wrong"]),
        str(s["refused"]),
        str(s["unchanged"] + s["errors"]),
        str(s["untouched"]["percent"]) if s["untouched"] else "",
        f"{s['seconds_median']:.2f}" if alone else "",
        f"{s['seconds_p90']:.2f}" if alone else "",
    ]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"

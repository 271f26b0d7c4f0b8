"""Results as a Markdown table, made from their files and from nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from vivace.bench.stats import number
from vivace.bench.tasksets.record import Report
from vivace.bench.tasksets.summary import Share, Summary, rows

COLUMNS = (
    "model", "mode", "N", "kind", "turns", "pass rate %", "applied %", "first round %", "to green: median s", "p90 s",
    "turn: median s", "TTFT s", "tok/s", "lines changed / reference", "wrong place", "wrong", "unchanged", "refused",
    "errors",
)  # fmt: skip


def markdown(reports: Sequence[Report]) -> str:
    """One row a kind. With several turns in flight times are no user's, and left out."""
    out = [_row(COLUMNS), _row(["---"] * 4 + ["---:"] * (len(COLUMNS) - 4))]
    for report in reports:
        out += [_row(_cells(report, kind, summary)) for kind, summary in rows(report.summary)]
    out += ["", "| date | vivace | engine | processor | sandbox | made by |", _row(["---"] * 6)]
    for report in reports:
        machine = f"{report.machine.cpu}, {report.machine.cores} cores"
        out.append(_row([report.date, report.vivace, report.engine, machine, report.sandbox, f"`{report.command}`"]))
    return "\n".join(out) + "\n"


def _cells(report: Report, kind: str, s: Summary) -> list[str]:
    options = report.options
    alone = options.parallel == 1
    times = [s.median_seconds, s.p90_seconds, s.median_turn_seconds, s.ttft, s.tok_s]
    return [
        options.model,
        options.mode,
        str(options.candidates or "default"),
        kind,
        str(s.pass_rate.of),
        rate(s.pass_rate),
        f"{s.applied_rate.percent}",
        f"{s.first_round.percent}",
        *(number(value) if alone and value is not None else "-" for value in times),
        number(s.changed_lines_ratio) if s.changed_lines_ratio is not None else "-",
        *(str(count) for count in (s.wrong_place.count, s.wrong, s.unchanged, s.refused, s.errors)),
    ]


def rate(found: Share) -> str:
    return f"{found.percent} ({found.low}-{found.high})"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"

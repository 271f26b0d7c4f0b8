"""Markdown made from a benchmark's document; nothing in it that the document does not hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vivace.bench.record import Document, Figure, Run
from vivace.bench.stats import geometric_mean, median, number, paired_ratio, quantile, spread

GIGA = 1e9


def markdown(document: Document) -> str:
    """The whole report: machine, whole turns, single measurements."""
    parts = [_head(document)]
    if document.runs:
        parts += [_turns(document), _ratios(document)]
    widths = [figure for figure in document.figures if figure.measure == "widths"]
    if widths:
        parts.append(_widths(document, widths))
    if any(figure.measure != "widths" for figure in document.figures):
        parts.append(_figures(document))
    return "\n\n".join(parts) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """A Markdown table whose first ``left`` columns are text and the others figures."""
    marks = ["---" if n < left else "---:" for n in range(len(head))]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, marks, *rows])


def task_order(document: Document) -> list[str]:
    return list(dict.fromkeys(run.task for run in document.runs))


def contender_order(document: Document) -> list[str]:
    """Fastest first by the geometric mean of whole turns over the tasks that each has done."""
    times = {
        c.name: [median(seconds) for task in task_order(document) if (seconds := _seconds(document, c.name, task))]
        for c in document.contenders
    }
    return sorted((name for name in times if times[name]), key=lambda name: geometric_mean(times[name]))


def _head(document: Document) -> str:
    machine, bounds, facts = document.machine, document.bounds, document.model
    lines = [
        f"Measured {document.date}: {machine.cpu}, {machine.cores} cores, {machine.memory_bytes / 2**30:.0f} GiB, "
        f"{', '.join(machine.features) or 'no vector extensions known'}.",
        f"Model {facts.name}, {facts.weights / 1e6:,.0f} M weights a pass. {facts.detail}".rstrip(),
    ]
    if bounds.bytes_per_second:
        lines.append(
            f"Bounds measured with {bounds.threads} threads: {bounds.bytes_per_second / GIGA:.1f} GB/s from memory, "
            f"{bounds.int8_per_second / 1e12:.2f} int8 TOPS, {bounds.bf16_per_second / 1e12:.2f} bf16 TFLOPS; "
            f"{1e3 * facts.step_bytes() / bounds.bytes_per_second:.1f} ms a pass at least."
        )
    return "\n\n".join(lines)


def _turns(document: Document) -> str:
    rows = []
    for task in task_order(document):
        for name in contender_order(document):
            runs = [run for run in document.runs if run.contender == name and run.task == task]
            good = [run for run in runs if run.counts]
            if not runs:
                continue
            drafted = sum(run.drafted or 0 for run in good)
            accepted = sum(run.accepted or 0 for run in good)
            changed = [run.changed for run in good if run.changed is not None]
            rows.append(
                [
                    task,
                    name,
                    number(median(run.seconds for run in good)),
                    spread([run.seconds for run in good]),
                    number(median(run.prefill_rate for run in good)),
                    number(median(run.decode_rate for run in good)),
                    number(median(run.output_tokens for run in good)),
                    f"{accepted / drafted:.0%}" if drafted else "-",
                    number(median(run.output_tokens / run.pieces for run in good if run.pieces)),
                    f"{len(good)}/{len(runs)}",
                    f"{sum(changed)}/{len(changed)}" if changed else "-",
                ]
            )
    head = ["task", "engine", "whole turn s", "range s", "prefill tok/s", "decode tok/s", "output tokens"]
    head += ["draft accepted", "tokens a piece", "whole and compiles", "change there"]
    note = (
        "Medians over the runs that count (whole and compiling output). Whole turn: from the prompt to the checked "
        "text, nothing of the prompt cached. Decode: after the first piece."
    )
    return f"## Whole turns\n\n{note}\n\n{table(head, rows, left=2)}"


def _ratios(document: Document) -> str:
    """How many times faster vivace is, task by task, from rounds that both have."""
    mine = "vivace"
    tasks = task_order(document)
    rows = []
    for name in contender_order(document):
        if name == mine:
            continue
        ratios = [paired_ratio(_by_round(document, mine, task), _by_round(document, name, task)) for task in tasks]
        rows.append([name, *(number(ratio) for ratio in ratios)])
    note = "Whole turn of the peer over vivace's, medians of the ratios within a round."
    return f"## Times faster than each peer\n\n{note}\n\n{table(['peer', *tasks], rows)}"


def _widths(document: Document, figures: Sequence[Figure]) -> str:
    facts, bounds = document.model, document.bounds
    rows = []
    for figure in figures:
        width, context = int(figure.about["rows"]), int(figure.about.get("context", 0))
        seconds = median(figure.samples) / 1e3
        rate, operations = facts.step_bytes(context) / seconds, facts.step_operations(width) / seconds
        bound = pass_bound(document, width, context)
        rows.append(
            [
                figure.contender,
                str(width),
                number(seconds * 1e3),
                number(bound * 1e3) if bound else "-",
                f"{bound / seconds:.0%}" if bound else "-",
                number(rate / GIGA),
                f"{rate / bounds.bytes_per_second:.0%}" if bounds.bytes_per_second else "-",
                number(operations / 1e12),
                f"{operations / bounds.int8_per_second:.0%}" if bounds.int8_per_second else "-",
                number(width / seconds),
            ]
        )
    head = ["engine", "rows", "ms", "bound ms", "share of bound", "GB/s", "of bandwidth", "TOPS", "of int8", "rows/s"]
    note = (
        "One pass with the best token of every row, weights in one byte each. The bound is the larger of reading the "
        "weights and KV once and of the linear layers' int8 operations."
    )
    return f"## One pass by its width\n\n{note}\n\n{table(head, rows)}"


def pass_bound(document: Document, rows: int, context: int) -> float:
    """Seconds that a pass takes at least on this machine; 0 where the machine could not be measured."""
    facts, bounds = document.model, document.bounds
    if not bounds.bytes_per_second:
        return 0.0
    arithmetic = facts.step_operations(rows) / bounds.int8_per_second if bounds.int8_per_second else 0.0
    return max(facts.step_bytes(context) / bounds.bytes_per_second, arithmetic)


def _figures(document: Document) -> str:
    rows = []
    for figure in document.figures:
        if figure.measure == "widths":
            continue
        about = ", ".join(f"{key} {value}" for key, value in figure.about.items())
        rows.append(
            [
                figure.measure,
                f"{figure.name} ({about})" if about else figure.name,
                figure.contender,
                number(median(figure.samples)),
                number(quantile(figure.samples, 0.99)),
                spread(figure.samples),
                figure.unit,
                _share(document, figure),
                str(len(figure.samples)),
            ]
        )
    head = ["measure", "figure", "engine", "median", "p99", "range", "unit", "share of the bound", "samples"]
    return f"## Single measurements\n\n{table(head, rows, left=3)}"


def _share(document: Document, figure: Figure) -> str:
    """For rates of plain decoding: against reading one byte a weight, and the KV, for every token."""
    bandwidth = document.bounds.bytes_per_second
    if figure.measure not in ("decode", "context") or not bandwidth:
        return "-"
    least = document.model.step_bytes(int(figure.about.get("context", 0))) / bandwidth
    value = median(figure.samples)
    spent = 1 / value if figure.measure == "decode" and value else value / 1e3
    return f"{least / spent:.0%}" if spent else "-"


def _runs(document: Document, name: str, task: str) -> list[Run]:
    return [run for run in document.runs if run.contender == name and run.task == task and run.counts]


def _seconds(document: Document, name: str, task: str) -> list[float]:
    return [run.seconds for run in _runs(document, name, task)]


def _by_round(document: Document, name: str, task: str) -> dict[int, float]:
    return {run.round: run.seconds for run in _runs(document, name, task)}

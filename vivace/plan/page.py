"""One self-contained HTML page: tables and plots, no file and no network beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING

from vivace.plan.compare import Compared
from vivace.plan.curves import BatchPoint, over_batch, over_context
from vivace.plan.forward import Forecast
from vivace.plan.setup import Setup
from vivace.plan.svg import COLOURS, Axis, Series, axis_for, bars, plot, ranges, short

if TYPE_CHECKING:
    from vivace.plan.infer import Inference

STYLE = """
:root { color-scheme: light dark; --ink: #1d252b; --soft: #5b6770; --line: #d8dee2; --back: #ffffff; --card: #f6f8f9; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6ebee; --soft: #9fabb3; --line: #39434a; --back: #14191d; --card: #1b2126; }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back); margin: 2rem auto;
  max-width: 1200px; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0 0 .3rem; } h2 { font-size: 1.05rem; margin: 0 0 .5rem; }
p.note { color: var(--soft); margin: .2rem 0; } .plots { display: grid; gap: 1.2rem; margin-top: 1.4rem;
  grid-template-columns: repeat(auto-fit, minmax(min(520px, 100%), 1fr)); }
figure { background: var(--card); border: 1px solid var(--line); border-radius: 8px; margin: 0; padding: 1rem; }
svg { width: 100%; height: auto; display: block; } svg .grid { stroke: var(--line); stroke-width: 1; }
svg .tick { font: 11px system-ui, sans-serif; fill: var(--soft); }
svg .label { font: 12px system-ui, sans-serif; fill: var(--ink); } svg .middle { fill: var(--ink); }
.legend { color: var(--soft); font-size: .85rem; margin-top: .5rem; }
.legend span { margin-right: 1rem; white-space: nowrap; }
.legend i { display: inline-block; width: .8rem; height: .8rem; border-radius: 2px; margin-right: .35rem;
  vertical-align: -1px; }
table { border-collapse: collapse; margin-top: .8rem; } td, th { padding: .25rem .9rem .25rem 0; text-align: left;
  border-bottom: 1px solid var(--line); vertical-align: top; } th { color: var(--soft); font-weight: 500; }
"""


def page(title: str, lead: str, rows: Sequence[Sequence[str]], figures: Sequence[str], notes: Sequence[str]) -> str:
    """``rows``: a table whose first row is its head; ``figures``: finished ``<figure>`` elements."""
    head, *body = rows
    table = "<table><tr>" + "".join(f"<th>{escape(cell)}</th>" for cell in head) + "</tr>"
    for row in body:
        table += "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
    told = "".join(f'<p class="note">{escape(note)}</p>' for note in notes)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body>"
        f'<h1>{escape(title)}</h1><p class="note">{escape(lead)}</p>{table}</table>{told}'
        f'<div class="plots">{"".join(figures)}</div></body></html>\n'
    )


def forecast_page(setups: Sequence[Setup], forecasts: Sequence[Forecast], rows: Sequence[Sequence[str]]) -> str:
    """Speed against context, user speed against batch and against total speed, cost against speed."""
    names = [f"{each.model} on {each.count} x {each.device}" for each in forecasts]
    notes = dict.fromkeys(note for each in forecasts for note in each.notes)
    lead = "Lines are the middle, bands hold 90 %. Point at a mark for its numbers."
    return page(" and ".join(names), lead, rows, _speed_figures(setups, names), list(notes))


def compare_page(setups: Sequence[Setup], compared: Sequence[Compared], rows: Sequence[Sequence[str]]) -> str:
    """The plots of all set-ups together, and where the seconds of a turn go."""
    names = [each.name for each in compared]
    parts = [
        (
            each.name,
            [
                ("network", each.turn.network),
                ("first token", each.turn.first),
                ("decode", each.turn.decode),
                ("tools", each.turn.tools),
                ("host", each.turn.host),
            ],
        )
        for each in compared
    ]
    figures = [
        _figure("Seconds of a turn", bars(parts, "s", "seconds of a turn by part"), [name for name, _ in parts[0][1]]),
        *_speed_figures(setups, names),
    ]
    notes = dict.fromkeys(note for each in compared for note in each.forecast.notes)
    return page("Set-ups side by side", "The same turn of an agent on each.", rows, figures, list(notes))


def inference_page(inference: Inference, rows: Sequence[Sequence[str]]) -> str:
    """The feasible region under each assumption, and how much the claim narrows."""
    claim, regions = inference.claim, inference.regions
    shown = [
        Series(
            name=region.assumption,
            x=[point[0] for point in region.points],
            y=[point[1] for point in region.points],
            marks=[
                f"{p[0]:.0f} layers, {short(p[1])} active, {short(p[2])} total, gain {p[3]:.2f}" for p in region.points
            ],
            line=False,
        )
        for region in ((regions[0], regions[-1]) if len(regions) > 1 else regions)
    ]
    x = axis_for("layers", [value for each in shown for value in each.x], from_zero=False)
    y = axis_for("active parameters", [value for each in shown for value in each.y], log=True)
    figures = [
        _figure(
            "The feasible region", plot(shown, x, y, "feasible layers and active parameters"), [s.name for s in shown]
        )
    ]
    for name, label in (("layers", "layers"), ("active", "active parameters"), ("total at 8 bits", "total at 8 bits")):
        found = [region.marginal(name) for region in regions]
        edges = [edge for m in found for edge in (m.prior_low, m.prior_high, m.low, m.high)]
        axis = axis_for(label, edges, log=True)
        body = [
            (_wrapped(region.assumption), (m.prior_low, m.prior_high), (m.low, m.middle, m.high))
            for region, m in zip(regions, found, strict=True)
        ]
        figures.append(
            _figure(f"{label}: before the claim, and after", ranges(body, axis, f"{label} before and after"), [])
        )
    title = f"{claim.tok_s:g} tok/s on {claim.devices[0]} to {claim.devices[1]} x {claim.device}"
    return page(title, "Which models could it be? Verdict:", rows, figures, inference.verdict)


def _speed_figures(setups: Sequence[Setup], names: Sequence[str]) -> list[str]:
    contexts = [over_context(setup) for setup in setups]
    batches = [over_batch(setup) for setup in setups]
    lines = [
        Series(
            name=name,
            x=[p.context for p in points],
            y=[p.user for p in points],
            band=[(p.low, p.high) for p in points],
            marks=[f"{p.context:,} tokens: {p.user:.4g} ({p.low:.4g} to {p.high:.4g}) tok/s" for p in points],
        )
        for name, points in zip(names, contexts, strict=True)
    ]
    figures = [
        _figure(
            "Speed of one user against context",
            plot(lines, _over(lines, "context, tokens", log=True), _speeds(lines), "tokens per second against context"),
            names,
        )
    ]
    figures.append(
        _batch_figure("Speed of one user against batch", names, batches, "batch, sequences", lambda p: p.batch)
    )
    figures.append(
        _batch_figure("Speed of one user against speed of all", names, batches, "tok/s of all users", lambda p: p.total)
    )
    priced = [[p for p in points if p.dollars_per_million is not None] for points in batches]
    if any(priced):
        figures.append(_cost_figure([n for n, p in zip(names, priced, strict=True) if p], [p for p in priced if p]))
    return figures


def _batch_figure(
    title: str,
    names: Sequence[str],
    batches: Sequence[list[BatchPoint]],
    label: str,
    x_of: Callable[[BatchPoint], float],
) -> str:
    lines = [_batch_series(name, points, [x_of(p) for p in points], [p.user for p in points])
             for name, points in zip(names, batches, strict=True)]  # fmt: skip
    return _figure(title, plot(lines, _over(lines, label, log=True), _speeds(lines), title), names)


def _cost_figure(names: Sequence[str], batches: Sequence[list[BatchPoint]]) -> str:
    lines = [
        _batch_series(name, points, [p.user for p in points], [p.dollars_per_million or 0.0 for p in points])
        for name, points in zip(names, batches, strict=True)
    ]
    y = axis_for("$ per million tokens", [value for line in lines for value in line.y], log=True)
    title = "Cost against speed of one user"
    return _figure(title, plot(lines, _over(lines, "tok/s of one user", log=True), y, title), names)


def _batch_series(name: str, points: Sequence[BatchPoint], x: Sequence[float], y: Sequence[float]) -> Series:
    marks = [
        f"batch {p.batch}: {p.user:.4g} tok/s each, {p.total:.4g} in all"
        + (f", ${p.dollars_per_million:.3g} per million" if p.dollars_per_million is not None else "")
        for p in points
    ]
    return Series(name=name, x=x, y=y, marks=marks)


def _over(lines: Sequence[Series], label: str, *, log: bool = False) -> Axis:
    return axis_for(label, [value for line in lines for value in line.x], log=log)


def _speeds(lines: Sequence[Series]) -> Axis:
    top = [value for line in lines for value in line.y] + [high for line in lines for _, high in line.band]
    return axis_for("tok/s of one user", top)


def _figure(title: str, drawing: str, names: Sequence[str]) -> str:
    legend = "".join(
        f'<span><i style="background:{COLOURS[index % len(COLOURS)]}"></i>{escape(name)}</span>'
        for index, name in enumerate(names)
    )
    under = f'<div class="legend">{legend}</div>' if names else ""
    return f"<figure><h2>{escape(title)}</h2>{drawing}{under}</figure>"


def _wrapped(text: str) -> str:
    """Short enough to stand beside a bar."""
    return (
        text.replace(", otherwise as told", "").replace(" layers a device", " layer/dev.").replace("draft gain", "gain")
    )

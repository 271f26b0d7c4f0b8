"""Results as rows of text, for the terminal and for the page alike. The first row is the head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from vivace.plan.accepted import Outcome
from vivace.plan.compare import Compared
from vivace.plan.device import Device
from vivace.plan.evidence import GRADES, Evidence, Figure
from vivace.plan.forward import Estimate, Forecast
from vivace.plan.library import Library, figures
from vivace.plan.model import Model, active_parameters, total_parameters
from vivace.plan.svg import short
from vivace.plan.tiers import Choice
from vivace.plan.turn import Speech, Turn
from vivace.plan.validate import Validation

if TYPE_CHECKING:
    from vivace.plan.calibrate import Predicted
    from vivace.plan.infer import Inference

Rows = list[list[str]]


def forecast_rows(forecasts: Sequence[Forecast]) -> Rows:
    """One column a set-up."""
    lines: list[list[str]] = [["", *(f"{f.model} on {f.count} x {f.device}" for f in forecasts)]]

    def add(name: str, cells: list[str]) -> None:
        if any(cells):
            lines.append([name, *cells])

    add("formats", [f"{f.weights} weights, {f.kv} KV" + _dense(f) for f in forecasts])
    add("context, batch", [f"{f.context:,} tokens x {f.batch}" for f in forecasts])
    add("memory", [_memory(f) for f in forecasts])
    add("of it", [_memory_parts(f) for f in forecasts])
    add("one user", [f"{_estimate(f.decode.user)} tok/s" for f in forecasts])
    add("all users", [f"{_estimate(f.decode.total)} tok/s" for f in forecasts])
    add("one step", [_step(f) for f in forecasts])
    add("bound", [f.decode.bound for f in forecasts])
    add("speculation", [f"{f.decode.gain:.2f} tokens a step, x{f.decode.speedup:.2f}" if f.decode.gain > 1 else ""
                        for f in forecasts])  # fmt: skip
    add("pipeline", [f"{f.decode.stages} stages, {f.decode.occupancy:.0%} full, {f.decode.group} a group"
                     if f.decode.stages > 1 else "" for f in forecasts])  # fmt: skip
    add("experts", [f"{f.decode.experts:.1f} distinct a layer and step" if f.decode.experts else "" for f in forecasts])
    add("first token", [_first(f) for f in forecasts])
    add(
        "energy",
        [f"{f.cost.joules_per_token:.3g} J/token" if f.cost.joules_per_token else "not known" for f in forecasts],
    )
    add("price", [_price(f) for f in forecasts])
    add("evidence", ["calibrated" if f.calibrated else "not calibrated" for f in forecasts])
    return lines


def compare_rows(compared: Sequence[Compared]) -> Rows:
    rows = forecast_rows([each.forecast for each in compared])
    rows.append(
        ["turn", *(f"{each.turn.seconds:.2f} s, {each.turn.decode_share:.0%} of it decode" for each in compared)]
    )
    rows.append(["money of a turn", *(_dollars(each.turn.dollars) for each in compared)])
    return rows


def turn_rows(turns: Sequence[Turn]) -> Rows:
    rows = [["", "tok/s", "turn", "network", "first token", "decode", "tools", "decode share", "$"]]
    rows += [
        [
            t.runner,
            f"{t.tok_s:,.0f}",
            f"{t.seconds:.2f} s",
            f"{t.network:.2f}",
            f"{t.first:.2f}",
            f"{t.decode:.2f}",
            f"{t.tools:.2f}",
            f"{t.decode_share:.0%}",
            _dollars(t.dollars),
        ]
        for t in turns
    ]
    return rows


def outcome_rows(outcomes: Sequence[Outcome], wait_hour: float) -> Rows:
    rows = [["", "seconds", "$", "attempts", "passes its check", "is right", "seconds / right edit", "$ / right edit"]]
    rows += [
        [
            o.strategy,
            f"{o.seconds:.1f}",
            _dollars(o.dollars),
            f"{o.attempts:.2f}",
            f"{o.delivered:.0%}",
            f"{o.right:.0%}",
            f"{o.seconds_per_accepted:.1f}",
            _dollars(o.per_accepted(wait_hour)),
        ]
        for o in outcomes
    ]
    return rows


def speech_rows(name: str, found: Sequence[Speech]) -> Rows:
    rows = [[name, "left for decoding", "tokens in time", "a sentence of 35 tokens"]]
    rows += [
        [f"window {s.window:g} s", f"{s.left * 1000:.0f} ms", str(s.tokens), "fits" if s.sentence else "does not fit"]
        for s in found
    ]
    return rows


def tier_rows(choice: Choice) -> Rows:
    rows = [["", "turns take", "money", "waiting", "together"]]
    rows += [
        [r.turn.runner, f"{r.seconds:.1f} s", _dollars(r.dollars), _dollars(r.waiting), _dollars(r.total)]
        for r in choice.ranked
    ]
    return rows


def inference_rows(inference: Inference) -> Rows:
    """5, 50 and 95 % of what is left, by assumption."""
    rows = [["assumption", "layers", "active", "total at 8 bits", "draft gain", "kept"]]
    for region in inference.regions:
        named = {m.name: m for m in region.marginals}
        gain = named.get("draft gain")
        rows.append(
            [
                region.assumption,
                _range(named["layers"].low, named["layers"].middle, named["layers"].high),
                _range(named["active"].low, named["active"].middle, named["active"].high),
                _range(*(getattr(named["total at 8 bits"], edge) for edge in ("low", "middle", "high"))),
                f"{gain.low:.1f} - {gain.middle:.1f} - {gain.high:.1f}" if gain else f"{inference.claim.gain[0]:g}",
                f"{region.kept:,} of {region.drawn:,}",
            ]
        )
    return rows


def identified_rows(inference: Inference) -> Rows:
    rows = [["as told", "before", "after", "", ""]]
    for m in inference.regions[0].marginals:
        rows.append(  # noqa: PERF401 - a comprehension would hide the cells
            [m.name, f"{short(m.prior_low)} - {short(m.prior_high)}", _range(m.low, m.middle, m.high),
             f"width x{m.narrowed:.2f}", m.verdict]
        )  # fmt: skip
    for form, (low, middle, high) in inference.regions[0].kv_resident.items():
        share = inference.regions[0].kv_feasible[form]
        rows.append([f"sequences, {form}", "", f"{low:.0f} - {middle:.0f} - {high:.0f}", "", f"{share:.0%} fill it"])
    return rows


def prior_rows(inference: Inference) -> Rows:
    rows = [["prior", "range", "drawn", "because"]]
    rows += [
        [p.name, " or ".join(f"{v:g}" for v in p.values) if p.values else f"{p.low:.3g} to {p.high:.3g} {p.unit}",
         {"even": "evenly", "log": "evenly in the logarithm", "choice": "one of them"}[p.scale], p.reason]
        for p in inference.priors
    ]  # fmt: skip
    return rows


def validation_rows(validation: Validation) -> Rows:
    rows = [["row", "role", "model", "setting", "measured", "predicted", "error", "90 % interval"]]
    for r in validation.rows:
        if r.predicted is None:
            implied = f"needs {r.implied_gain:.2f} tokens a step" if r.implied_gain else ""
            rows.append([r.id, r.role, r.model, r.setting, f"{r.measured:.4g} {r.quantity}", implied, "", r.reason])
            continue
        inside = (
            ""
            if r.low is None or r.high is None
            else f"{r.low:.3g} to {r.high:.3g}" + ("" if r.inside else ", outside")
        )
        rows.append(
            [r.id, r.role, r.model, r.setting, f"{r.measured:.4g} {r.quantity}", f"{r.predicted:.4g}",
             f"{r.error or 0.0:+.1%}", inside]
        )  # fmt: skip
    return rows


def class_rows(validation: Validation) -> Rows:
    rows = [["class", "rows", "mean error", "worst", "inside", "width", "target", ""]]
    for c in validation.classes:
        met = {True: "met", False: "MISSED", None: ""}[c.met]
        inside = f"{c.inside} of {c.rows}" if c.width > 1 else ""
        width = f"x{c.width:.2f}" if c.width > 1 else ""
        rows.append([c.kind, str(c.rows), f"{c.mean:.1%}", f"{c.worst:.1%}", inside, width, c.target, met])
    return rows


def checked_rows(found: Sequence[Predicted]) -> Rows:
    rows = [["pass", "context", "predicted", "measured", "error"]]
    rows += [
        [p.what, f"{p.context:,}", f"{p.predicted * 1e3:.1f} ms", f"{p.measured * 1e3:.1f} ms", f"{p.error:+.1%}"]
        for p in found
    ]
    return rows


def device_rows(devices: Sequence[Device]) -> Rows:
    rows = [["name", "device", "kind", "memory", "bandwidth", "bf16", "calibration"]]
    rows += [
        [d.name, d.title, d.kind, f"{number(d.memory.value / 1e9)} GB", f"{number(d.bandwidth.value / 1e12)} TB/s",
         f"{number(d.compute['bf16'].value / 1e12)} TFLOPS" if "bf16" in d.compute else "", d.calibration]
        for d in devices
    ]  # fmt: skip
    return rows


def model_rows(models: Sequence[Model]) -> Rows:
    rows = [["name", "model", "total", "active", "layers", "attention", "window", "missing"]]
    for m in models:
        gaps = [*m.shape.missing(), *m.unknown]
        rows.append(
            [m.name, m.title, "" if gaps else short(total_parameters(m.shape)),
             "" if gaps else short(active_parameters(m.shape)), str(m.shape.layers), m.shape.attention.upper(),
             f"{m.window.value:,.0f}" if m.window else "", ", ".join(gaps)]
        )  # fmt: skip
    return rows


def figure_rows(entry: object, library: Library) -> Rows:
    """Every figure of an entry with its interval, grade and source."""
    rows = [["figure", "value", "90 %", "grade", "date", "source", "note"]]
    for place, figure in figures(entry):
        source = library.sources.get(figure.source)
        where = source.title if source else figure.source
        if isinstance(figure, Evidence):
            rows.append([place, "", "", figure.grade, figure.date, where, figure.note])
        elif isinstance(figure, Figure):
            low, high = figure.span
            unit = UNITS.get(place.split(".")[0], "") if isinstance(entry, Device) else ""
            span = f"{sized(low, unit)} to {sized(high, unit)}" if low < high else ""
            rows.append([place, sized(figure.value, unit), span, figure.grade, figure.date, where, figure.note])
    return rows


UNITS = {"memory": "B", "bandwidth": "B/s", "link": "B/s", "compute": "op/s", "power": "W"}
"""Of the figures of a device, by the first part of their name; the others have none."""


def sized(value: float, unit: str) -> str:
    """A figure with its unit, if it has one: 80 GB, 3.35 TB/s, 700 W."""
    text = short(value)
    digits = text.rstrip("PTBMk")
    return f"{digits} {text[len(digits) :].replace('B', 'G')}{unit}" if unit else text


def shape_rows(model: Model) -> Rows:
    shape = msgspec.to_builtins(model.shape)
    return [["shape", ""], *([name, str(value)] for name, value in shape.items() if value not in (0, None, False))]


def number(value: float) -> str:
    """Three significant digits and no exponent."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def grades_line() -> str:
    return "; ".join(f"{letter} {meaning}" for letter, meaning in GRADES.items())


def _estimate(e: Estimate) -> str:
    return f"{number(e.value)} ({number(e.low)} to {number(e.high)})"


def _range(low: float, middle: float, high: float) -> str:
    return f"{short(low)} - {short(middle)} - {short(high)}"


def _dollars(value: float | None) -> str:
    return "not known" if value is None else f"${value:,.4f}" if value < 1 else f"${value:,.2f}"


def _dense(f: Forecast) -> str:
    return f", {f.dense_weights} beside the experts" if f.dense_weights != f.weights else ""


def _memory(f: Forecast) -> str:
    m = f.memory
    return f"{m.needed / 1e9:,.1f} of {m.usable / 1e9:,.1f} GB usable ({m.needed / m.usable:.0%})"


def _memory_parts(f: Forecast) -> str:
    parts = [("weights", f.memory.weights), ("KV", f.memory.kv), ("draft", f.memory.draft)]
    return ", ".join(f"{name} {value / 1e9:,.2f} GB" for name, value in parts if value)


def _step(f: Forecast) -> str:
    s = f.decode.step
    parts = {"fixed": s.fixed, "weights": s.weights, "KV": s.kv, "compute": s.compute, "link": s.link}
    told = ", ".join(f"{name} {value * 1e3:.2f}" for name, value in parts.items() if value >= s.total / 200)
    return f"{s.total * 1e3:.2f} ms: {told}"


def _first(f: Forecast) -> str:
    p = f.prefill
    behind = f" behind {p.cached:,}" if p.cached else ""
    return f"{_estimate(p.ttft)} s for {p.tokens:,} new tokens{behind} ({p.bound})"


def _price(f: Forecast) -> str:
    c = f.cost
    if c.dollars_per_million is None:
        return "not known"
    kind = "bought, over 4 years" if c.from_purchase else "rented"
    return f"${c.dollars_per_million:,.2f} per million tokens (${c.dollars_per_hour:,.2f} an hour, {kind})"

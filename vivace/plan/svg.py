"""Plots as inline SVG, drawn by hand: lines with bands, scattered points, bars. No library, nothing fetched."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from msgspec import Struct

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito's palette, told apart by every kind of colour vision."""
WIDTH, HEIGHT = 560, 340
LEFT, RIGHT, TOP, BOTTOM = 66, 16, 14, 46
NAMES = 140
"""Further room on the left for the names of ranges."""


class Series(Struct, frozen=True, kw_only=True):
    """Points in order of x; ``band`` gives low and high for each; ``marks`` are told when the mouse is on a point."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    band: Sequence[tuple[float, float]] = ()
    marks: Sequence[str] = ()
    line: bool = True


class Axis(Struct, frozen=True, kw_only=True):
    label: str
    low: float
    high: float
    log: bool = False

    def at(self, value: float) -> float:
        """Where between 0 and 1 a value lies."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        return _log_ticks(self.low, self.high) if self.log else _even_ticks(self.low, self.high)


def axis_for(label: str, values: Sequence[float], *, log: bool = False, from_zero: bool = True) -> Axis:
    """An axis that holds all values with a little air."""
    low, high = min(values), max(values)
    if log:
        factor = (high / low) ** 0.05 if high > low else 1.5
        return Axis(label=label, low=low / factor, high=high * factor, log=True)
    low = 0.0 if from_zero else low - (high - low) * 0.06
    return Axis(label=label, low=low, high=high + ((high - low) * 0.06 or abs(high) or 1.0))


def plot(series: Sequence[Series], x: Axis, y: Axis, alt: str) -> str:
    """One plot; the legend is left to the page."""
    parts = [*_frame(x, y)]
    for index, each in enumerate(series):
        colour = COLOURS[index % len(COLOURS)]
        to_x, to_y = _placing(x, y)
        if each.band:
            edge = [
                (to_x(at), to_y(min(max(low, y.low), y.high))) for at, (low, _) in zip(each.x, each.band, strict=True)
            ]
            back = [
                (to_x(at), to_y(min(max(high, y.low), y.high))) for at, (_, high) in zip(each.x, each.band, strict=True)
            ]
            corners = " ".join(f"{a:.1f},{b:.1f}" for a, b in [*edge, *reversed(back)])
            parts.append(f'<polygon class="band" points="{corners}" fill="{colour}" fill-opacity="0.14"/>')
        places = [(to_x(a), to_y(b)) for a, b in zip(each.x, each.y, strict=True)]
        if each.line and len(places) > 1:
            path = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
            parts.append(f'<polyline class="line" points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        radius, opacity = (3.2, 1.0) if each.line else (1.8, 0.45)
        for place, (a, b) in enumerate(places):
            told = f"<title>{escape(each.marks[place])}</title>" if each.marks else ""
            parts.append(
                f'<circle class="point" cx="{a:.1f}" cy="{b:.1f}" r="{radius}" fill="{colour}" '
                f'fill-opacity="{opacity}">{told}</circle>'
            )
    return _svg(parts, HEIGHT, alt)


def bars(rows: Sequence[tuple[str, Sequence[tuple[str, float]]]], unit: str, alt: str) -> str:
    """Stacked bars, one a row; the parts have the same order in every row."""
    longest = max(sum(value for _, value in parts) for _, parts in rows)
    height = 26 + 44 * len(rows)
    drawn = []
    for index, (name, parts) in enumerate(rows):
        top, left = 8 + 44 * index, 8.0
        drawn.append(f'<text class="label" x="8" y="{top + 12}">{escape(name)}</text>')
        for place, (part, value) in enumerate(parts):
            wide = (WIDTH - 90) * value / longest
            if wide > 0:
                drawn.append(
                    f'<rect class="part" x="{left:.1f}" y="{top + 17}" width="{wide:.1f}" height="15" '
                    f'fill="{COLOURS[place % len(COLOURS)]}"><title>{escape(part)} {value:.3g} {unit}</title></rect>'
                )
                left += wide
        total = sum(value for _, value in parts)
        drawn.append(f'<text class="tick" x="{left + 6:.1f}" y="{top + 29}">{total:.3g} {unit}</text>')
    return _svg(drawn, height, alt)


def ranges(rows: Sequence[tuple[str, tuple[float, float], tuple[float, float, float]]], axis: Axis, alt: str) -> str:
    """For each row what was possible before as a pale bar, and what is left with its middle as a dark one."""
    height = TOP + 36 * len(rows) + BOTTOM
    drawn = []
    for value in axis.ticks():
        at = LEFT + NAMES + axis.at(value) * (WIDTH - LEFT - NAMES - RIGHT)
        drawn.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{height - BOTTOM}"/>')
        drawn.append(
            f'<text class="tick" text-anchor="middle" x="{at:.1f}" y="{height - BOTTOM + 16}">{short(value)}</text>'
        )
    drawn.append(
        f'<text class="label" text-anchor="middle" x="{(WIDTH + LEFT + NAMES) / 2:.0f}" y="{height - 8}">'
        f"{escape(axis.label)}</text>"
    )
    for index, (name, before, after) in enumerate(rows):
        middle = TOP + 36 * index + 18
        drawn.append(f'<text class="label" x="4" y="{middle + 4}">{escape(name)}</text>')
        for (low, high), thick, colour in (
            (before, 14, "#b8c4cc"),
            ((after[0], after[2]), 8, COLOURS[0]),
        ):
            a, b = (LEFT + NAMES + axis.at(v) * (WIDTH - LEFT - NAMES - RIGHT) for v in (low, high))
            drawn.append(
                f'<rect class="range" x="{a:.1f}" y="{middle - thick / 2:.1f}" width="{max(1.0, b - a):.1f}" '
                f'height="{thick}" fill="{colour}"><title>{short(low)} to {short(high)}</title></rect>'
            )
        at = LEFT + NAMES + axis.at(after[1]) * (WIDTH - LEFT - NAMES - RIGHT)
        drawn.append(f'<rect class="middle" x="{at - 1.5:.1f}" y="{middle - 9}" width="3" height="18"/>')
    return _svg(drawn, height, alt)


def short(value: float) -> str:
    """A number as an axis tells it: 1.5k, 200B."""
    for size, letter in ((1e15, "P"), (1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size * 0.9995:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def _frame(x: Axis, y: Axis) -> list[str]:
    to_x, to_y = _placing(x, y)
    parts = []
    for value in x.ticks():
        at = to_x(value)
        parts.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
        parts.append(
            f'<text class="tick" text-anchor="middle" x="{at:.1f}" y="{HEIGHT - BOTTOM + 16}">{short(value)}</text>'
        )
    for value in y.ticks():
        at = to_y(value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text class="tick" text-anchor="end" x="{LEFT - 6}" y="{at + 4:.1f}">{short(value)}</text>')
    middle_x, middle_y = (LEFT + WIDTH - RIGHT) / 2, (TOP + HEIGHT - BOTTOM) / 2
    parts.append(
        f'<text class="label" text-anchor="middle" x="{middle_x:.0f}" y="{HEIGHT - 8}">{escape(x.label)}</text>'
    )
    parts.append(
        f'<text class="label" text-anchor="middle" transform="translate(14 {middle_y:.0f}) rotate(-90)">'
        f"{escape(y.label)}</text>"
    )
    return parts


def _placing(x: Axis, y: Axis) -> tuple[Callable[[float], float], Callable[[float], float]]:
    return (
        lambda value: LEFT + x.at(value) * (WIDTH - LEFT - RIGHT),
        lambda value: HEIGHT - BOTTOM - y.at(value) * (HEIGHT - TOP - BOTTOM),
    )


def _svg(parts: Sequence[str], height: int, alt: str) -> str:
    inner = "\n".join(parts)
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(alt, quote=True)}">\n{inner}\n</svg>'


def _even_ticks(low: float, high: float) -> list[float]:
    raw = (high - low) / 6
    size = 10 ** math.floor(math.log10(raw))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= raw)
    first = math.ceil(low / step - 1e-9)
    return [round(index * step, 12) for index in range(first, int(high / step + 1e-9) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    decades = math.log10(high / low)
    factors = (1,) if decades > 4 else (1, 3) if decades > 2 else (1, 2, 5)
    ticks = [
        factor * 10.0**power
        for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        for factor in factors
        if low <= factor * 10.0**power <= high
    ]
    return ticks if len(ticks) >= 2 else [low, math.sqrt(low * high), high]

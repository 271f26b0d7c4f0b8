"""The table of units. A value in a unit, times its factor, plus its offset, is the value in the base unit."""

from dataclasses import dataclass


class UnknownUnit(ValueError):
    """There is no unit of that name."""


@dataclass(frozen=True)
class Unit:
    symbol: str
    kind: str
    factor: float
    offset: float = 0.0


UNITS = {
    unit.symbol: unit
    for unit in [
        Unit("m", "length", 1.0),
        Unit("km", "length", 1000.0),
        Unit("cm", "length", 0.01),
        Unit("in", "length", 0.0254),
        Unit("ft", "length", 0.3048),
        Unit("mi", "length", 1609.344),
        Unit("g", "mass", 0.001),
        Unit("kg", "mass", 1.0),
        Unit("lb", "mass", 0.45359237),
        Unit("s", "time", 1.0),
        Unit("min", "time", 60.0),
        Unit("h", "time", 3600.0),
        Unit("d", "time", 86400.0),
        Unit("K", "temperature", 1.0),
        Unit("C", "temperature", 1.0, 273.15),
        Unit("F", "temperature", 5 / 9, 459.67 * 5 / 9),
    ]
}

ALIASES = {"meter": "m", "meters": "m", "mile": "mi", "miles": "mi", "hour": "h", "hours": "h", "pound": "lb"}


def find(name):
    """The unit of a symbol or an alias. Aliases may be written in any case, symbols may not."""
    symbol = name if name in UNITS else ALIASES.get(name.lower())
    if symbol is None:
        raise UnknownUnit(f"unknown unit: {name}")
    return UNITS[symbol]

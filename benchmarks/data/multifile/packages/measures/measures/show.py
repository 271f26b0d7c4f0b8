"""Quantities to text."""

from measures.units import UNITS


def show(quantity, digits=2):
    """``3.5 km``: trailing zeros are dropped, thousands are grouped by commas."""
    text = f"{quantity.value:,.{digits}f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return f"{'0' if text == '-0' else text} {quantity.unit}"


def best(quantity):
    """The same quantity in the largest unit of its kind in which it is at least 1; the smallest if there is none."""
    kin = sorted((unit for unit in UNITS.values() if unit.kind == quantity.kind), key=lambda unit: unit.factor)
    fitting = [unit for unit in kin if abs(quantity.to(unit.symbol).value) >= 1]
    return quantity.to((fitting or kin[:1])[-1].symbol)


def listing(quantities, digits=2):
    """One line a quantity, numbers aligned at their right."""
    rows = [show(quantity, digits).split(" ") for quantity in quantities]
    width = max((len(number) for number, _ in rows), default=0)
    return "\n".join(f"{number:>{width}} {unit}" for number, unit in rows)

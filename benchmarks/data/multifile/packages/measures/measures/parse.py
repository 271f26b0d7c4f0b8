"""Text to quantities."""

import re

from measures.quantity import Quantity
from measures.units import find

_ONE = re.compile(r"\s*([+-]?\d+(?:\.\d*)?|[+-]?\.\d+)\s*([A-Za-z]+)\s*")


def parse(text):
    """``"5 ft 3 in"`` as one quantity in the first unit. Later parts are added to the first."""
    position, total = 0, None
    while position < len(text):
        match = _ONE.match(text, position)
        if match is None:
            raise ValueError(f"not a quantity: {text!r}")
        part = Quantity(float(match[1]), find(match[2]).symbol)
        total = part if total is None else total + part
        position = match.end()
    if total is None:
        raise ValueError("not a quantity: nothing there")
    return total

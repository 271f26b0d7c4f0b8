"""From one unit to another of the same kind."""

from measures.units import find


class KindMismatch(ValueError):
    """The units measure different things."""


def convert(value, source, target):
    """``value`` in the unit ``source``, told in the unit ``target``."""
    old, new = find(source), find(target)
    if old.kind != new.kind:
        raise KindMismatch(f"{source} is {old.kind}, {target} is {new.kind}")
    base = value * old.factor + old.offset
    return (base - new.offset) / new.factor


def factor(source, target):
    """How many of ``target`` one ``source`` is; differences of values scale by it."""
    old, new = find(source), find(target)
    if old.kind != new.kind:
        raise KindMismatch(f"{source} is {old.kind}, {target} is {new.kind}")
    return old.factor / new.factor

"""How large a model is, as far as its name tells."""

from __future__ import annotations

import re

SMALL = 3.0
"""Billions of parameters below which a model is treated as small: it is asked for whole files, its answers race, and it
is not trusted with tools. Of the open models under 14B on the public boards none writes search and replace blocks as
reliably as whole files, and the smallest hardly at all."""

_SIZE = re.compile(r"(?<![\d.])(\d+(?:\.\d+)?)(b|m)(?![a-z0-9])", re.IGNORECASE)


def billions(name: str) -> float | None:
    """The size that a name tells (``coder-1.5b``, ``smollm2-135m``); of ``30b-a3b`` all of it counts."""
    found = [float(size) * (1.0 if unit in "bB" else 0.001) for size, unit in _SIZE.findall(name)]
    return max(found, default=None)

"""Defaults that are written out.

``omit_defaults`` leaves a field out that equals its default; some fields have a default and must be there all the same.
msgspec compares plain defaults, ``list`` and ``dict``, not what another factory made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def null() -> None:
    """Written as null."""


def empty() -> list[Any]:
    """Written as ``[]``."""
    return []


def empty_object() -> dict[str, Any]:
    """Written as ``{}``."""
    return {}


def written(value: T) -> Callable[[], T]:
    """A factory of ``value``, which must be immutable."""
    return lambda: value

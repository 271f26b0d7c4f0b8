"""Unions that stay open: an object of a known ``type`` becomes its Struct, any other is kept as it came.

Clients and servers of the Responses API are older and newer than each other; what one of them does not know must pass.
msgspec's own tagged unions refuse an unknown tag, so a union is a class of its own here, filled by :func:`dec_hook`.
A checker of types sees the plain union: ``Item = Message | ... | OtherItem``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct


class Other(dict[str, Any]):
    """An object of unknown ``type``, as it came; encodes unchanged."""

    @property
    def type(self) -> str:
        """Its ``type``, or an empty string when it says none."""
        kind = self.get("type")
        return kind if isinstance(kind, str) else ""

    @property
    def id(self) -> str | None:
        value = self.get("id")
        return value if isinstance(value, str) else None


class OpenUnion(type):
    """What stands for a union at run time; :func:`open_union` makes one. ``isinstance`` works on it."""

    structs: dict[str, type[Struct]]
    other: type[Other]
    untyped: Callable[[dict[str, Any]], str]

    def __instancecheck__(cls, value: object) -> bool:
        return type(value) is cls.other or type(value) in cls.structs.values()

    def parse(cls, value: Any) -> Any:
        """A builtin object -> its Struct. Raises :class:`msgspec.ValidationError` (path from this object on)."""
        if isinstance(value, Struct | Other):
            return value
        if not isinstance(value, dict):
            raise msgspec.ValidationError(f"Expected `object`, got `{_json_name(value)}`")
        tag = value.get("type")
        if tag is None and (tag := cls.untyped(value)):
            value = {**value, "type": tag}
        known = cls.structs.get(tag) if isinstance(tag, str) else None
        return cls.other(value) if known is None else msgspec.convert(value, known, dec_hook=dec_hook)


def open_union(
    name: str,
    known: tuple[type[Struct], ...],
    other: type[Other],
    untyped: Callable[[dict[str, Any]], str] | None = None,
) -> Any:
    """The open union of ``known``. ``untyped`` names the ``type`` of an object that says none ("" for: unknown)."""
    tags = {str(struct.__struct_config__.tag): struct for struct in known}
    return OpenUnion(
        name, (), {"structs": tags, "other": other, "untyped": staticmethod(untyped or (lambda value: ""))}
    )


def dec_hook(kind: type, value: Any) -> Any:
    """For every decoder of types that hold open unions."""
    if not isinstance(kind, OpenUnion):
        raise NotImplementedError(f"no way to decode {kind!r}")
    try:
        return kind.parse(value)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None  # msgspec adds the path so far to a ValueError, not to its own error


def _json_name(value: object) -> str:
    names = {str: "str", bool: "bool", int: "int", float: "float", list: "array", type(None): "null"}
    return names.get(type(value), type(value).__name__)

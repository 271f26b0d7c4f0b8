"""Configuration of backends, checked: an unknown or wrong key is said with its place and the nearest known names."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from vivace.errors import UsageError, did_you_mean

T = TypeVar("T")


def checked(value: Any, kind: type[T], where: str) -> T:
    """``value`` (tables as TOML and JSON give them) as ``kind``. Raises :class:`UsageError` that names the place."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        said, _, path = str(error).partition(" - at ")
        place = f"{where}: {path.strip('`').removeprefix('$').removeprefix('.') or 'the table'}"
        unknown = re.search(r"unknown field `(.*)`", said)
        if unknown is None:
            raise UsageError(f"{place}: {said}") from error
        hint = did_you_mean(unknown[1], _fields(kind, path))
        raise UsageError(f"{place} has an unknown key {unknown[1]!r}.", hint=hint, param=unknown[1]) from error


def _fields(kind: Any, path: str) -> list[str]:
    """The keys that the table at a path such as ``$.rules[...].when`` may have."""
    info = msgspec.inspect.type_info(kind)
    for name in re.findall(r"\.(\w+)", path):
        found = _struct(info)
        info = next((field.type for field in found.fields if field.encode_name == name), info) if found else info
    found = _struct(info)
    return [field.encode_name for field in found.fields] if found else []


def _struct(info: Any) -> msgspec.inspect.StructType | None:
    """The struct inside of lists and unions."""
    match info:
        case msgspec.inspect.StructType():
            return info
        case msgspec.inspect.ListType():
            return _struct(info.item_type)
        case msgspec.inspect.UnionType():
            return next(filter(None, map(_struct, info.types)), None)
        case _:
            return None

"""A TOML file read into structs; what is wrong in it is told with file, line and key."""

from __future__ import annotations

import re
import tomllib
from decimal import Decimal
from pathlib import Path
from typing import TypeVar

import msgspec

from vivace.errors import UsageError, did_you_mean

T = TypeVar("T")
Part = str | int

_KEY = re.compile(r'"([^"]*)"|\'([^\']*)\'|([A-Za-z0-9_-]+)')
_HEADER = re.compile(r"^\s*\[(\[?)\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?$")
_ASSIGNMENT = re.compile(
    r"""^\s*((?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+)(?:\s*\.\s*(?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+))*)\s*="""
)


class TomlFile:
    """One file. :meth:`read` converts it strictly: an unknown key is an error that names the nearest known ones."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"Cannot read {path}: {error}", code="settings_file_unreadable") from error

    def read(self, kind: type[T]) -> T:
        """The file as ``kind``. Numbers with a point are read as decimals, so that prices stay exact."""
        try:
            tree = tomllib.loads(self.text, parse_float=Decimal)
        except tomllib.TOMLDecodeError as error:
            raise UsageError(f"{self.path}: {error}", code="settings_file_invalid") from error
        try:
            return msgspec.convert(tree, kind)
        except msgspec.ValidationError as error:
            message, _, where = str(error).partition(" - at ")
            parts = _parts(where.strip("`"))
            unknown = re.fullmatch(r"Object contains unknown field `(.*)`", message)
            if unknown is None:
                raise self.wrong(parts, message) from error
            known = _known_keys(kind, parts)
            hint = did_you_mean(unknown[1], known) if known else ""
            raise self.wrong([*parts, unknown[1]], f"there is no key {unknown[1]!r}", hint) from error

    def wrong(self, parts: list[Part], message: str, hint: str = "") -> UsageError:
        """The error to raise for the value at ``parts``, such as ``["tier", 0, "weight"]``."""
        line = line_of(self.text, parts)
        place = f"{self.path}:{line}" if line else str(self.path)
        key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts).lstrip(".")
        return UsageError(
            f"{place}: {key}: {message}" if key else f"{place}: {message}", hint=hint, code="settings_file_invalid"
        )


def line_of(text: str, parts: list[Part]) -> int | None:
    """The line, from 1, of the key at ``parts``, or of the table nearest around it; None when there is neither."""
    seen: dict[tuple[Part, ...], int] = {}
    table: list[Part] = []
    best: tuple[int, int] | None = None

    for number, line in enumerate(text.splitlines(), 1):
        header = _HEADER.match(line)
        assignment = None if header else _ASSIGNMENT.match(line)
        if header:
            table = []
            keys = _keys(header[2])
            for position, key in enumerate(keys):
                table.append(key)
                if header[1] and position == len(keys) - 1:
                    seen[tuple(table)] = seen.get(tuple(table), -1) + 1
                if tuple(table) in seen:
                    table.append(seen[tuple(table)])
            here = table
        elif assignment:
            here = table + _keys(assignment[1])
        else:
            continue
        shared = min(len(here), len(parts))
        if here[:shared] == parts[:shared] and shared > (best[0] if best else 0):
            best = (shared, number)
    return best[1] if best else None


def _keys(text: str) -> list[Part]:
    return [first or second or third for first, second, third in _KEY.findall(text)]


def _parts(where: str) -> list[Part]:
    """``$.tier[0].backend[...]`` as parts; what msgspec does not name is left out."""
    found: list[Part] = []
    for index, name in re.findall(r"\[(\d+)\]|\.([^.\[\]]+)", where):
        found.append(int(index) if index else name)
    return found


def _known_keys(kind: object, parts: list[Part]) -> list[str]:
    """The keys of the struct at ``parts`` below ``kind``."""
    node = msgspec.inspect.type_info(kind)
    for part in parts:
        if isinstance(node, msgspec.inspect.StructType):
            node = next((f.type for f in node.fields if f.encode_name == part), msgspec.inspect.AnyType())
        elif isinstance(node, msgspec.inspect.ListType):
            node = node.item_type
        elif isinstance(node, msgspec.inspect.DictType):
            node = node.value_type
    return [f.encode_name for f in node.fields] if isinstance(node, msgspec.inspect.StructType) else []

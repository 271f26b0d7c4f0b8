"""Tables for a terminal and JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """The first row is the head; the last column folds, the others keep their width."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    head, *body = rows
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, name in enumerate(head):
        table.add_column(name, overflow="fold", no_wrap=index == 0 and len(head) > 2)
    for row in body:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)
    print()


def to_json(found: object) -> str:
    """Fields, and the properties that a reader would otherwise compute."""
    return json.dumps(plain(found), indent=2)


def plain(found: object) -> Any:
    if isinstance(found, msgspec.Struct):
        fields = {name: plain(getattr(found, name)) for name in found.__struct_fields__}
        computed = {
            name: plain(getattr(found, name))
            for name, member in vars(type(found)).items()
            if isinstance(member, property) and not name.startswith("_") and name not in fields
        }
        return {**fields, **computed}
    if isinstance(found, dict):
        return {str(key): plain(value) for key, value in found.items()}
    if isinstance(found, list | tuple):
        return [plain(value) for value in found]
    return found

"""Tables for a terminal and JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

GAP = 2
"""Spaces between columns."""


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """The first row is the head. No word is broken: where the columns do not fit, each row becomes a block of lines."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    head, *body = rows
    widths = fitted(rows, console.width)
    if widths is None:
        for block in blocks(rows):
            console.print(block[0], style="bold", markup=False, highlight=False)
            names = max((len(name) for name, _ in block[1:]), default=0)
            for name, cell in block[1:]:
                line = Table.grid(padding=(0, GAP, 0, 0))
                line.add_column(width=names + GAP)
                line.add_column(overflow="fold")
                line.add_row(Text(f"  {name}"), Text(cell))
                console.print(line)
        print()
        return
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, GAP, 0, 0))
    for name, width in zip(head, widths, strict=True):
        table.add_column(name, overflow="fold", width=width)
    for row in body:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)
    print()


def fitted(rows: Sequence[Sequence[str]], width: int) -> list[int] | None:
    """The width of each column so that no word is broken; None where ``width`` is too little for that."""
    columns = list(zip(*rows, strict=True))
    least = [max(len(word) for cell in column for word in cell.split() or [""]) for column in columns]
    if len(columns) > 2:
        least[0] = max(map(len, columns[0]))
    found = [max(map(len, column)) for column in columns]
    while sum(found) + GAP * len(columns) > width:
        room = [most - fewest for most, fewest in zip(found, least, strict=True)]
        if not any(room):
            return None
        widest = max(range(len(found)), key=lambda index: (room[index] > 0, found[index]))
        found[widest] -= 1
    return found


def blocks(rows: Sequence[Sequence[str]]) -> list[list[Any]]:
    """Each row as its first cell, and the names and contents of the others that have one."""
    head, *body = rows
    return [
        [row[0] or head[0], *((name, cell) for name, cell in zip(head[1:], row[1:], strict=True) if cell)]
        for row in body
    ]


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

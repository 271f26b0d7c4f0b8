"""Tables from data."""

import csv
import io

from gridtext.columns import Column
from gridtext.table import Table


def from_records(records, style="plain"):
    """A table of dictionaries: columns in the order in which keys first appear, numbers to the right."""
    titles = list(dict.fromkeys(key for record in records for key in record))
    rows = [[record.get(title) for title in titles] for record in records]
    columns = [Column(title, _align([row[n] for row in rows])) for n, title in enumerate(titles)]
    return Table(columns, rows, style)


def from_csv(text, style="plain"):
    """A table of CSV text with a line of titles. What looks like a number becomes one; empty cells are missing."""
    titles, *rows = list(csv.reader(io.StringIO(text)))
    return from_records([{t: _value(cell) for t, cell in zip(titles, row, strict=False)} for row in rows if row], style)


def _value(text):
    text = text.strip()
    if not text:
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _align(values):
    there = [value for value in values if value is not None]
    numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in there)
    return "right" if there and numbers else "left"

"""Rows and columns, drawn."""

from itertools import zip_longest

from gridtext.borders import STYLES
from gridtext.columns import Column


class Table:
    def __init__(self, columns, rows=(), style="plain"):
        self.columns = [column if isinstance(column, Column) else Column(column) for column in columns]
        self.rows = []
        self.style = style
        for row in rows:
            self.add(row)

    def add(self, row):
        """Raises ValueError for a row with more cells than there are columns; missing ones are filled up."""
        row = list(row)
        if len(row) > len(self.columns):
            raise ValueError(f"{len(row)} cells for {len(self.columns)} columns")
        self.rows.append(row + [None] * (len(self.columns) - len(row)))

    def sort(self, title, reverse=False):
        """Sort by a column. Missing values come last, whichever way is sorted."""
        at = self.index(title)
        there = [row for row in self.rows if row[at] is not None]
        missing = [row for row in self.rows if row[at] is None]
        self.rows = sorted(there, key=lambda row: row[at], reverse=reverse) + missing

    def index(self, title):
        for n, column in enumerate(self.columns):
            if column.title == title:
                return n
        raise KeyError(title)

    def total(self, title):
        """The sum of a column's numbers."""
        at = self.index(title)
        return sum(row[at] for row in self.rows if isinstance(row[at], (int, float)))

    def draw(self):
        border = STYLES[self.style]
        widths = [column.width([row[n] for row in self.rows]) for n, column in enumerate(self.columns)]
        rule = border.rule(widths)
        head = self._drawn([column.title for column in self.columns], widths, border)
        body = [line for row in self.rows for line in self._drawn(row, widths, border)]
        lines = [*head, rule, *body] if rule else [*head, *body]
        return "\n".join([rule, *lines, rule] if border.outer else lines)

    def _drawn(self, row, widths, border):
        """The lines of one row: as many as its tallest cell has."""
        cells = [column.lines(value) for column, value in zip(self.columns, row, strict=True)]
        drawn = []
        for texts in zip_longest(*cells, fillvalue=""):
            places = zip(self.columns, texts, widths, strict=True)
            drawn.append(border.row([column.pad(text, width) for column, text, width in places]))
        return drawn

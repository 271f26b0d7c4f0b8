"""Tables of plain text."""

from gridtext.columns import Column
from gridtext.reading import from_csv, from_records
from gridtext.table import Table

__all__ = ["Column", "Table", "from_csv", "from_records"]

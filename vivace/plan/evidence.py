"""Where a figure comes from. A figure without grade, source and date is not a figure, and its file is refused."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Grade = Literal["R", "T", "V", "S", "D", "M", "L"]

GRADES: dict[str, str] = {
    "R": "read in a repository or paper with its measurement conditions",
    "T": "measured by a third party",
    "V": "claimed by the vendor",
    "S": "a secondary page",
    "D": "derived; the note shows how",
    "M": "recalled, to be verified before it is cited",
    "L": "measured on this machine",
}


class Evidence(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``source`` is a key of data/sources.toml; ``date`` is when the figure was published or read, ``YYYY-MM[-DD]``."""

    grade: Grade
    source: str
    date: str
    note: str = ""


class Figure(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A number with its evidence. ``low`` and ``high`` bound it with 90 % probability; without them it is exact."""

    value: float
    grade: Grade
    source: str
    date: str
    low: float | None = None
    high: float | None = None
    note: str = ""

    @property
    def span(self) -> tuple[float, float]:
        return (self.value if self.low is None else self.low, self.value if self.high is None else self.high)

    def problems(self) -> list[str]:
        """What is wrong with the figure itself, in words."""
        low, high = self.span
        found = [] if low <= self.value <= high else [f"{self.value:g} is not within {low:g} to {high:g}"]
        if not self.source:
            found.append("no source")
        if len(self.date) < 7 or not self.date[:4].isdigit():
            found.append(f"date {self.date!r} is not YYYY-MM or YYYY-MM-DD")
        if self.grade == "D" and not self.note:
            found.append("derived, and no note says how")
        return found

"""One event: a title, a beginning, a length, and perhaps a rule by which it comes again."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta


@dataclass(frozen=True)
class Event:
    title: str
    start: datetime
    length: timedelta
    repeat: object = None
    tags: frozenset = frozenset()

    @property
    def end(self):
        return self.start + self.length

    def overlaps(self, other):
        """Events that only touch do not overlap."""
        return self.start < other.end and other.start < self.end

    def at(self, start):
        """The single occurrence of this event at ``start``."""
        return replace(self, start=start, repeat=None)

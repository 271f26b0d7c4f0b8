"""Rules of repetition: each gives the starts of an event, from its first one on."""

import calendar as _calendar
from dataclasses import dataclass
from datetime import date, timedelta


@dataclass(frozen=True)
class Daily:
    every: int = 1
    until: date | None = None

    def starts(self, first):
        at = first
        while self.until is None or at.date() <= self.until:
            yield at
            at += timedelta(days=self.every)


@dataclass(frozen=True)
class Weekly:
    """On these days of the week, 0 being Monday, in every ``every``-th week from that of the first."""

    days: tuple = ()
    every: int = 1
    until: date | None = None

    def starts(self, first):
        days = sorted(self.days) or [first.weekday()]
        monday = first - timedelta(days=first.weekday())
        while True:
            for day in days:
                at = monday + timedelta(days=day)
                if self.until is not None and at.date() > self.until:
                    return
                if at >= first:
                    yield at
            monday += timedelta(weeks=self.every)


@dataclass(frozen=True)
class Monthly:
    """On the same day of every month; in months that are too short, on their last day."""

    until: date | None = None

    def starts(self, first):
        year, month = first.year, first.month
        while True:
            last = _calendar.monthrange(year, month)[1]
            at = first.replace(year=year, month=month, day=min(first.day, last))
            if self.until is not None and at.date() > self.until:
                return
            yield at
            year, month = (year + 1, 1) if month == 12 else (year, month + 1)

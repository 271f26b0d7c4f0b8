"""A day or a week as text."""

from datetime import datetime, time, timedelta


def day(calendar, date):
    """One line an event: ``09:00-09:30 stand-up``. An event that goes on past midnight ends with ``24:00``."""
    start = datetime.combine(date, time())
    end = start + timedelta(days=1)
    lines = []
    for event in calendar.between(start, end):
        begins = max(event.start, start).strftime("%H:%M")
        ends = "24:00" if event.end >= end else event.end.strftime("%H:%M")
        lines.append(f"{begins}-{ends} {event.title}")
    return "\n".join(lines)


def week(calendar, monday):
    """The days that have events, each under a heading."""
    parts = []
    for n in range(7):
        date = monday + timedelta(days=n)
        if text := day(calendar, date):
            parts.append(f"{date:%a %Y-%m-%d}\n{text}")
    return "\n\n".join(parts)

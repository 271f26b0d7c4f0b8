"""A collection of events, seen through a window of time."""

from agenda.conflicts import conflicts
from agenda.free import gaps


class Calendar:
    def __init__(self, events=()):
        self._events = list(events)

    def add(self, event):
        self._events.append(event)

    def remove(self, title):
        """Remove all events of that title; tells how many there were."""
        kept = [event for event in self._events if event.title != title]
        removed = len(self._events) - len(kept)
        self._events = kept
        return removed

    def between(self, start, end):
        """Occurrences that lie at least partly in ``[start, end)``, by their start and then their title."""
        found = [one for event in self._events for one in _occurrences(event, end) if one.end > start]
        return sorted(found, key=lambda event: (event.start, event.title))

    def tagged(self, tag):
        """The events that carry ``tag``, in the order in which they were added."""
        return [event for event in self._events if tag in event.tags]

    def conflicts(self, start, end):
        return conflicts(self.between(start, end))

    def free(self, start, end, least=None):
        """The gaps of ``[start, end)`` in which nothing happens, those shorter than ``least`` left out."""
        return gaps(self.between(start, end), start, end, least)


def _occurrences(event, end):
    if event.repeat is None:
        if event.start < end:
            yield event
        return
    for start in event.repeat.starts(event.start):
        if start >= end:
            return
        yield event.at(start)

"""Events of the agent, handed on in bundles: the first at once, the rest at the pace of the screen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from vivace.agent.turns.events import Editing, Event, Said, Thought, ToolOutput

PACE = 1 / 30
"""Seconds between two bundles."""


class Pump:
    """Call it with each event, from any thread; ``take`` gets them in order, in the loop that the pump was made in."""

    def __init__(self, take: Callable[[list[Event]], None], pace: float = PACE) -> None:
        self._take = take
        self._pace = pace
        self._loop = asyncio.get_running_loop()
        self._waiting: list[Event] = []
        self._due = False
        self._last = 0.0

    def __call__(self, event: Event) -> None:
        self._waiting.append(event)
        if not self._due:
            self._due = True
            self._loop.call_soon_threadsafe(self._arrange)

    def flush(self) -> None:
        """Hand on what waits, now."""
        self._due, self._last = False, self._loop.time()
        bundle, self._waiting = self._waiting, []
        if bundle:
            self._take(joined(bundle))

    def _arrange(self) -> None:
        wait = self._last + self._pace - self._loop.time()
        if wait > 0:
            self._loop.call_later(wait, self.flush)
        else:
            self.flush()


def joined(events: list[Event]) -> list[Event]:
    """Neighbouring pieces of one text or diff as one event; nothing is lost and the order stays."""
    out: list[Event] = []
    at = 0
    while at < len(events):
        event = events[at]
        end = at + 1
        while end < len(events) and _goes_on(event, events[end]):
            end += 1
        out.append(_as_one(events[at:end]) if end - at > 1 else event)
        at = end
    return out


def _goes_on(event: Event, later: Event) -> bool:
    if type(event) is not type(later) or event.worker != later.worker or event.turn != later.turn:
        return False
    if isinstance(event, ToolOutput) and isinstance(later, ToolOutput):
        return event.call == later.call
    if isinstance(event, Editing) and isinstance(later, Editing):
        return event.path == later.path and later.lines != ()  # without lines the file is begun anew
    return isinstance(event, Said | Thought)


def _as_one(run: list[Event]) -> Event:
    """A new event: those that were given may be kept by others."""
    first = run[0]
    if isinstance(first, Editing):
        lines = tuple(line for event in run if isinstance(event, Editing) for line in event.lines)
        return msgspec.structs.replace(first, lines=lines)
    text = "".join(event.text for event in run if isinstance(event, Said | Thought | ToolOutput))
    return msgspec.structs.replace(first, text=text)

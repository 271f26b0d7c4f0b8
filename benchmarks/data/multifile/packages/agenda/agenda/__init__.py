"""Events that repeat, calendars of them, and the free time between."""

from agenda.calendar import Calendar
from agenda.event import Event
from agenda.repeat import Daily, Monthly, Weekly

__all__ = ["Calendar", "Daily", "Event", "Monthly", "Weekly"]

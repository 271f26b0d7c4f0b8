import unittest
from datetime import date, datetime, timedelta

from agenda import Calendar, Daily, Event, Monthly, Weekly
from agenda.text import day, week

HOUR = timedelta(hours=1)
MONDAY = datetime(2024, 1, 1, 9)


class Repeating(unittest.TestCase):
    def starts(self, repeat, first, count):
        found = []
        for at in repeat.starts(first):
            found.append(at.date().isoformat())
            if len(found) == count:
                break
        return found

    def test_daily_until_includes_the_day(self):
        found = self.starts(Daily(until=date(2024, 1, 3)), MONDAY, 9)
        self.assertEqual(found, ["2024-01-01", "2024-01-02", "2024-01-03"])

    def test_weekly_on_two_days(self):
        found = self.starts(Weekly(days=(0, 3)), MONDAY, 3)
        self.assertEqual(found, ["2024-01-01", "2024-01-04", "2024-01-08"])

    def test_monthly_in_short_months(self):
        found = self.starts(Monthly(), datetime(2024, 1, 31), 3)
        self.assertEqual(found, ["2024-01-31", "2024-02-29", "2024-03-31"])


class Window(unittest.TestCase):
    def setUp(self):
        self.calendar = Calendar(
            [
                Event("stand-up", MONDAY, timedelta(minutes=30), Daily()),
                Event("lunch", MONDAY.replace(hour=12), HOUR, tags=frozenset({"food"})),
            ]
        )
        self.start, self.end = datetime(2024, 1, 1), datetime(2024, 1, 2)

    def test_between(self):
        self.assertEqual([event.title for event in self.calendar.between(self.start, self.end)], ["stand-up", "lunch"])

    def test_conflicts(self):
        self.calendar.add(Event("call", MONDAY.replace(minute=15), HOUR))
        pairs = self.calendar.conflicts(self.start, self.end)
        self.assertEqual([(a.title, b.title) for a, b in pairs], [("stand-up", "call")])

    def test_free(self):
        found = self.calendar.free(MONDAY, MONDAY.replace(hour=14))
        hours = [(a.strftime("%H:%M"), b.strftime("%H:%M")) for a, b in found]
        self.assertEqual(hours, [("09:30", "12:00"), ("13:00", "14:00")])

    def test_day(self):
        self.assertEqual(day(self.calendar, date(2024, 1, 1)), "09:00-09:30 stand-up\n12:00-13:00 lunch")

    def test_week(self):
        self.assertTrue(week(self.calendar, date(2024, 1, 1)).startswith("Mon 2024-01-01\n09:00-09:30 stand-up"))

    def test_tagged(self):
        self.assertEqual([event.title for event in self.calendar.tagged("food")], ["lunch"])

    def test_remove(self):
        self.assertEqual(self.calendar.remove("lunch"), 1)
        self.assertEqual(self.calendar.remove("lunch"), 0)


if __name__ == "__main__":
    unittest.main()

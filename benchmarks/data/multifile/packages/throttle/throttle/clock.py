"""Where the time comes from. Seconds, from any beginning, never going back."""

import time


class SystemClock:
    def now(self):
        return time.monotonic()


class ManualClock:
    """For tests: time passes when it is told to."""

    def __init__(self, start=0.0):
        self._now = start

    def now(self):
        return self._now

    def advance(self, seconds):
        if seconds < 0:
            raise ValueError("time does not go back")
        self._now += seconds

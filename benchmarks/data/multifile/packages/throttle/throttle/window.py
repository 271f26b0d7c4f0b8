"""At most so much in any span of time."""

from collections import deque


class SlidingWindow:
    """At most ``limit`` in any ``seconds``."""

    def __init__(self, limit, seconds, clock):
        self.limit = limit
        self.seconds = seconds
        self._clock = clock
        self._taken = deque()

    @property
    def available(self):
        """What may be taken now."""
        self._forget()
        return self.limit - sum(cost for _, cost in self._taken)

    def take(self, cost=1):
        """Take ``cost`` if it is there; tells whether it was. Nothing is taken otherwise."""
        if self.available < cost:
            return False
        self._taken.append((self._clock.now(), cost))
        return True

    def wait(self, cost=1):
        """Seconds until ``cost`` may be taken; infinity for more than the limit."""
        if cost > self.limit:
            return float("inf")
        missing = cost - self.available
        for at, taken in self._taken:
            if missing <= 0:
                break
            missing -= taken
            last = at
        else:
            if missing > 0:
                return float("inf")
        if cost <= self.available:
            return 0.0
        return last + self.seconds - self._clock.now()

    def _forget(self):
        now = self._clock.now()
        while self._taken and now - self._taken[0][0] >= self.seconds:
            self._taken.popleft()

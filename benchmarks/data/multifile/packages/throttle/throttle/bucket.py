"""A bucket that fills at a steady rate and is emptied by use: bursts up to its size, its rate in the long run."""


class TokenBucket:
    """``rate`` tokens come every second, up to ``size``; it begins full."""

    def __init__(self, rate, size, clock):
        self.rate = rate
        self.size = size
        self._clock = clock
        self._tokens = float(size)
        self._at = clock.now()

    @property
    def available(self):
        """Tokens that are there now."""
        self._fill()
        return self._tokens

    def take(self, cost=1):
        """Take ``cost`` tokens if they are there; tells whether they were. Nothing is taken otherwise."""
        self._fill()
        if self._tokens < cost:
            return False
        self._tokens -= cost
        return True

    def wait(self, cost=1):
        """Seconds until ``cost`` tokens will be there; infinity for more than the bucket holds."""
        self._fill()
        if cost > self.size:
            return float("inf")
        return max(0.0, (cost - self._tokens) / self.rate)

    def _fill(self):
        now = self._clock.now()
        self._tokens = min(self.size, self._tokens + (now - self._at) * self.rate)
        self._at = now

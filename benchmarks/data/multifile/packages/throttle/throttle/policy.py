"""What is allowed, as text: ``100/minute burst 20``."""

import re
from dataclasses import dataclass

from throttle.bucket import TokenBucket
from throttle.window import SlidingWindow

SPANS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}
_TEXT = re.compile(r"(\d+)\s*/\s*(\w+?)s?(?:\s+burst\s+(\d+))?")


@dataclass(frozen=True)
class Policy:
    """``count`` every ``seconds``; with a ``burst`` as a bucket of that size, without one as a window."""

    count: int
    seconds: int
    burst: int | None = None

    def meter(self, clock):
        """A fresh meter that holds to this policy."""
        if self.burst is None:
            return SlidingWindow(self.count, self.seconds, clock)
        return TokenBucket(self.count / self.seconds, self.burst, clock)


def parse_policy(text):
    """Raises ValueError for text that is no policy."""
    match = _TEXT.fullmatch(text.strip().lower())
    if match is None or match[2] not in SPANS:
        raise ValueError(f"not a policy: {text!r}")
    return Policy(int(match[1]), SPANS[match[2]], int(match[3]) if match[3] else None)

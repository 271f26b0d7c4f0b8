"""Limits on how often something may happen."""

from throttle.bucket import TokenBucket
from throttle.limiter import Decision, Limiter
from throttle.policy import Policy, parse_policy
from throttle.window import SlidingWindow

__all__ = ["Decision", "Limiter", "Policy", "SlidingWindow", "TokenBucket", "parse_policy"]

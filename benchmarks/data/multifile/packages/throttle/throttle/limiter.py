"""Many keys, each with its meters."""

from dataclasses import dataclass

from throttle.clock import SystemClock


@dataclass(frozen=True)
class Decision:
    """``wait`` is in seconds; ``policy`` names what refused."""

    allowed: bool
    wait: float = 0.0
    policy: str = ""


class Limiter:
    """Every key has to hold to every policy. ``policies`` is ``{name: Policy}``."""

    def __init__(self, policies, clock=None):
        self._policies = dict(policies)
        self._clock = clock or SystemClock()
        self._meters = {}

    def check(self, key, cost=1):
        """Take ``cost`` for ``key`` from all of its meters, or from none where one refuses."""
        meters = self._of(key)
        waits = {name: meter.wait(cost) for name, meter in meters.items()}
        worst = max(waits, key=waits.get, default=None)
        if worst is not None and waits[worst] > 0:
            return Decision(False, waits[worst], worst)
        for meter in meters.values():
            meter.take(cost)
        return Decision(True)

    def remaining(self, key):
        """The least that any meter of ``key`` has left; None where there are no policies."""
        return min((meter.available for meter in self._of(key).values()), default=None)

    def reset(self, key):
        """Forget what ``key`` has used; tells whether there was anything."""
        return self._meters.pop(key, None) is not None

    def keys(self):
        """The keys that were ever checked, sorted."""
        return sorted(self._meters)

    def _of(self, key):
        if key not in self._meters:
            self._meters[key] = {name: policy.meter(self._clock) for name, policy in self._policies.items()}
        return self._meters[key]

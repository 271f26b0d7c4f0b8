"""Several servers with the same model: who gets a job, and who is left alone for a while.

A conversation stays with the replica that has its prefix in memory: rendezvous hashing (Thaler and Ravishankar, 1998)
of what belongs together. A replica with more than its share of the running jobs passes the next one on, to the second
of the same order (bounded loads, Mirrokni et al., 2018), and so does one that is down.
"""

from __future__ import annotations

import hashlib
import math
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec import Struct

from vivace.backends.faults import Fault

SHARE = 1.25
"""A replica takes at most this many times the average of running jobs, rounded up."""
FAILURES = 3
"""Failures in a row that open the circuit."""
LONGEST_REST = 30.0


class Replica(Struct, frozen=True):
    """``base_url`` as OpenAI's clients take it, usually ending in ``/v1``."""

    base_url: str
    api_key: str = ""

    @property
    def root(self) -> str:
        """The address without ``/v1``, where servers have their own routes."""
        return self.base_url.rstrip("/").removesuffix("/v1")

    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.api_key}"} if self.api_key else {}


class Health:
    """What is known of one replica. Its circuit is closed, open (left alone), or half open (one job may try)."""

    def __init__(self, replica: Replica, clock: Callable[[], float]) -> None:
        self.replica = replica
        self.active = 0
        self.reason = ""
        self._clock = clock
        self._failures = 0
        self._rest = 1.0
        self._until = 0.0
        self._busy_until = 0.0
        self._trying = False

    @property
    def open(self) -> bool:
        """Left alone: it failed too often, or it asked for rest."""
        return self.back_in > 0 or (self._failures >= FAILURES and self._trying)

    @property
    def failing(self) -> bool:
        """Its last job or probe failed."""
        return self._failures > 0

    @property
    def back_in(self) -> float:
        """Seconds until a job may try it again."""
        return max(0.0, max(self._until, self._busy_until) - self._clock())

    def succeeded(self) -> None:
        self._failures, self._rest, self._until, self._trying, self.reason = 0, 1.0, 0.0, False, ""

    def failed(self, reason: str) -> None:
        self._failures += 1
        self._trying = False
        self.reason = reason
        if self._failures >= FAILURES:
            self._until = self._clock() + self._rest * random.uniform(0.8, 1.2)
            self._rest = min(LONGEST_REST, self._rest * 2)

    def busy(self, seconds: float, reason: str) -> None:
        """It asked to be left alone for so long (a 429 or 503 with ``retry-after``)."""
        self.reason = reason
        self._busy_until = max(self._busy_until, self._clock() + min(seconds, LONGEST_REST))

    @contextmanager
    def job(self) -> Iterator[None]:
        """A job is running on it. The first one after a rest is the trial: others wait for how it goes."""
        self.active += 1
        self._trying = self._failures >= FAILURES
        try:
            yield
        finally:
            self.active -= 1
            self._trying = False


class Replicas:
    """The replicas of one upstream. Raises :class:`Fault` when none can be asked."""

    def __init__(self, replicas: list[Replica], clock: Callable[[], float] = time.monotonic) -> None:
        self.all = [Health(replica, clock) for replica in replicas]

    def choose(self, key: str, tried: set[str]) -> Health:
        """The replica for what belongs together under ``key``, none of ``tried`` (base addresses)."""
        up = [health for health in self.all if not health.open and health.replica.base_url not in tried]
        if not up:
            raise self._nobody(tried)
        running = sum(health.active for health in self.all)
        most = math.ceil(SHARE * (running + 1) / max(1, sum(not health.open for health in self.all)))
        order = sorted(up, key=lambda health: _score(key, health.replica.base_url), reverse=True)
        return next((health for health in order if health.active < most), order[0])

    def elsewhere(self, tried: set[str]) -> bool:
        """Whether somebody else could be asked now."""
        return any(not health.open and health.replica.base_url not in tried for health in self.all)

    def _nobody(self, tried: set[str]) -> Fault:
        reasons = [f"{health.replica.base_url}: {health.reason or 'failed this request'}" for health in self.all]
        wait = min(health.back_in for health in self.all)
        message = f"No replica can answer now ({'; '.join(reasons)})."
        return Fault(message, status=503, retry_after=wait, again=True)


def _score(key: str, url: str) -> bytes:
    return hashlib.blake2b(f"{key}\0{url}".encode("utf-8", "replace"), digest_size=8).digest()

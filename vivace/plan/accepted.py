"""The price of an accepted edit: retries, races and cascades around one attempt.

An attempt takes seconds and dollars and passes its check with some probability. Attempts are independent, which is
kind to retries and races: what a model cannot do it often cannot do twice (docs/plan.md).
"""

from __future__ import annotations

import math

from msgspec import Struct

from vivace.errors import UsageError


class Attempt(Struct, frozen=True, kw_only=True):
    """One try at a task up to the moment where its check may begin."""

    seconds: float
    dollars: float
    passes: float
    """Probability that its result is right."""

    def __post_init__(self) -> None:
        if not 0 < self.passes <= 1:
            raise UsageError(
                f"A pass rate of {self.passes:g} is not above 0 and at most 1.", code="impossible", param="pass"
            )


class Check(Struct, frozen=True, kw_only=True):
    """What decides: tests, a compiler, a person."""

    seconds: float = 0.0
    dollars: float = 0.0
    false_accept: float = 0.0
    """Probability that a wrong result passes."""


class Outcome(Struct, frozen=True, kw_only=True):
    """Of one task. ``delivered``: probability that something passes the check; ``right``: that it is right as well."""

    strategy: str
    seconds: float
    dollars: float
    attempts: float
    delivered: float
    right: float
    spread: float = 0.0
    """Standard deviation of the seconds of one attempt over their mean, where it matters."""

    def per_accepted(self, wait_hour: float) -> float:
        """Dollars for one right edit when an hour of waiting costs ``wait_hour``."""
        return (self.dollars + wait_hour / 3600 * self.seconds) / self.right

    @property
    def seconds_per_accepted(self) -> float:
        return self.seconds / self.right


def retried(attempt: Attempt, check: Check, tries: int = 1) -> Outcome:
    """One attempt after the other until one passes or ``tries`` are used up."""
    _at_least_one(tries, "tries")
    passing = _passing(attempt, check)
    delivered = 1 - (1 - passing) ** tries
    expected = delivered / passing
    return Outcome(
        strategy="one attempt" if tries == 1 else f"up to {tries} attempts",
        seconds=expected * (attempt.seconds + check.seconds),
        dollars=expected * (attempt.dollars + check.dollars),
        attempts=expected,
        delivered=delivered,
        right=delivered * attempt.passes / passing,
    )


def raced(attempt: Attempt, check: Check, candidates: int, spread: float = 0.3) -> Outcome:
    """``candidates`` at once; the first that passes wins and the others are cancelled.

    Seconds of an attempt are log-normal with the relative ``spread``. Nothing has passed at time t with probability
    (1 - p F(t))^N; money runs for each candidate until it ends or is cancelled. ``attempt.seconds`` has to be the
    time at this many candidates, since they share the device.
    """
    _at_least_one(candidates, "race")
    passing = _passing(attempt, check)
    mean = attempt.seconds + check.seconds
    sigma = math.sqrt(math.log(1 + spread * spread)) if spread else 0.0
    if not sigma:
        seconds, share = mean, 1.0
    else:
        seconds, share = _first_of(passing, candidates, mean, sigma)
    delivered = 1 - (1 - passing) ** candidates
    return Outcome(
        strategy=f"race of {candidates}",
        seconds=seconds,
        dollars=candidates * share * (attempt.dollars + check.dollars),
        attempts=candidates * share,
        delivered=delivered,
        right=delivered * attempt.passes / passing,
        spread=spread,
    )


def cascaded(fast: Attempt, deep: Attempt, check: Check) -> Outcome:
    """The fast model first; what its check refuses goes to the deep one, which is taken as it is."""
    passing = _passing(fast, check)
    to_deep = 1 - passing
    return Outcome(
        strategy="fast, then deep",
        seconds=fast.seconds + check.seconds + to_deep * deep.seconds,
        dollars=fast.dollars + check.dollars + to_deep * deep.dollars,
        attempts=1 + to_deep,
        delivered=1.0,
        right=fast.passes + to_deep * _deep_after_fast(fast, deep, check),
    )


def cascade_pays(fast: Attempt, deep: Attempt, check: Check) -> tuple[bool, bool]:
    """Whether it saves seconds, and whether it saves dollars, against the deep model alone."""
    passing = _passing(fast, check)
    return (
        passing * deep.seconds > fast.seconds + check.seconds,
        passing * deep.dollars > fast.dollars + check.dollars,
    )


def _deep_after_fast(fast: Attempt, deep: Attempt, check: Check) -> float:
    """Pass rate of the deep model on what is left, if it solves all that the fast one solves, and the rest evenly."""
    if fast.passes >= 1:
        return deep.passes
    return max(0.0, (deep.passes - fast.passes) / (1 - fast.passes))


def _passing(attempt: Attempt, check: Check) -> float:
    return attempt.passes + (1 - attempt.passes) * check.false_accept


def _first_of(passing: float, candidates: int, mean: float, sigma: float) -> tuple[float, float]:
    """Expected seconds until the race is over, and the share of an attempt that a candidate runs and is paid for.

    The race ends with the first pass, or with the last candidate when none passes. Both follow from integrals over
    time of what is still running.
    """
    steps, reach = 400, 8 * sigma
    width = 2 * reach / steps
    # Even steps of the logarithm of time; before the first of them all are still running.
    seconds = mean * math.exp(-reach)
    running = seconds
    for index in range(steps):
        at = mean * math.exp((index + 0.5) * width - reach)
        ended = _log_normal(at, mean, sigma)
        nobody = (1 - passing * ended) ** candidates
        all_ended = ((1 - passing) * ended) ** candidates
        seconds += (nobody - all_ended) * at * width
        others = (1 - passing * ended) ** (candidates - 1)
        running += (1 - ended) * others * at * width
    return seconds, running / mean


def _log_normal(value: float, mean: float, sigma: float) -> float:
    """Distribution function of a log-normal variable with this mean."""
    return 0.5 * (1 + math.erf((math.log(value / mean) + sigma * sigma / 2) / (sigma * math.sqrt(2))))


def _at_least_one(value: int, name: str) -> None:
    if value < 1:
        raise UsageError(f"--{name} {value} is below 1, the least there is.", code="impossible", param=name)

"""Two runs on the same tasks, pair by pair: what the second gains, how sure that is, and what it costs in time."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from vivace.bench.tasksets.record import Record, Report
from vivace.errors import UsageError

RESAMPLES = 10_000


class Interval(Struct, frozen=True):
    """A value with its 95 % bootstrap interval."""

    value: float
    low: float
    high: float


class Comparison(Struct, frozen=True, kw_only=True):
    """The second run against the first; ``pairs`` are tasks with seeds that both have."""

    first: str
    second: str
    pairs: int
    tasks: int
    left_out: int
    """Records of either run without a counterpart."""
    both: int
    only_first: int
    only_second: int
    neither: int
    gain: Interval
    """Percentage points that the second passes more."""
    p: float | None
    """McNemar's exact test, two-sided; None where tasks were run with several seeds: such pairs are not independent."""
    time_ratio: Interval | None
    """Total seconds of the second over those of the first."""
    median_ratio: float | None
    """Median of the same ratio pair by pair."""
    warnings: tuple[str, ...]


def compare(first: Report, second: Report) -> Comparison:
    """Raises :class:`UsageError` when the runs share no task, or have different editions of one."""
    for name in first.tasks.keys() & second.tasks.keys():
        if first.tasks[name] != second.tasks[name]:
            raise UsageError(f"{name} is not the same file in both results.", hint="Run one of them again.")
    mine, theirs = _by_key(first), _by_key(second)
    keys = [key for key in mine if key in theirs]
    if not keys:
        raise UsageError("The results have no task with the same seed in common.")
    pairs = [(mine[key], theirs[key]) for key in keys]
    won = [(a.passed, b.passed) for a, b in pairs]
    names = sorted({a.id for a, _ in pairs})
    # Whole tasks are drawn, with all their seeds: what is hard is hard for every seed.
    place = {name: n for n, name in enumerate(names)}
    table = np.zeros((len(names), 4))
    for a, b in pairs:
        table[place[a.id]] += (1, int(b.passed) - int(a.passed), a.seconds, b.seconds)
    drawn = _resampled(table)
    gain = Interval(
        *(
            round(100 * float(value), 2)
            for value in (
                table[:, 1].sum() / len(pairs),
                *np.quantile(drawn[:, 1] / drawn[:, 0], (0.025, 0.975)),
            )
        )
    )
    only_first, only_second = won.count((True, False)), won.count((False, True))
    return Comparison(
        first=first.options.name,
        second=second.options.name,
        pairs=len(pairs),
        tasks=len(names),
        left_out=len(mine) + len(theirs) - 2 * len(pairs),
        both=won.count((True, True)),
        only_first=only_first,
        only_second=only_second,
        neither=won.count((False, False)),
        gain=gain,
        p=mcnemar(only_first, only_second) if len(names) == len(pairs) else None,
        time_ratio=_time_ratio(table, drawn),
        median_ratio=_median_ratio(pairs),
        warnings=_warnings(first, second, len(names)),
    )


def mcnemar(only_first: int, only_second: int) -> float:
    """Two-sided exact p: the chance of flips at least so uneven if either way were equally likely."""
    flips, few = only_first + only_second, min(only_first, only_second)
    at_most = sum(math.comb(flips, k) for k in range(few + 1))
    return min(1.0, 2 * at_most / (1 << flips))


def _by_key(report: Report) -> dict[tuple[str, int], Record]:
    return {(record.id, record.seed): record for record in report.records}


def _resampled(table: np.ndarray) -> np.ndarray:
    """Column sums of :data:`RESAMPLES` samples of the rows, with replacement; the same every time."""
    random = np.random.default_rng(0)
    counts = random.multinomial(len(table), np.full(len(table), 1 / len(table)), RESAMPLES)
    return np.asarray(counts @ table)


def _time_ratio(table: np.ndarray, drawn: np.ndarray) -> Interval | None:
    if not (table[:, 2] > 0).all():
        return None
    low, high = np.quantile(drawn[:, 3] / drawn[:, 2], (0.025, 0.975))
    return Interval(*(round(float(x), 3) for x in (table[:, 3].sum() / table[:, 2].sum(), low, high)))


def _median_ratio(pairs: Sequence[tuple[Record, Record]]) -> float | None:
    ratios = [b.seconds / a.seconds for a, b in pairs if a.seconds > 0]
    return round(float(np.median(ratios)), 3) if ratios else None


def _warnings(first: Report, second: Report, tasks: int) -> tuple[str, ...]:
    told = []
    if tasks < 100:
        told.append(f"{tasks} tasks are few: bootstrap intervals are unreliable below about 100")
    if first.options.parallel > 1 or second.options.parallel > 1:
        told.append("several turns shared the engine in one of the runs: its times are not one user's")
    if first.machine != second.machine:
        told.append("the runs were made on different machines: their times do not compare")
    if first.engine != second.engine and first.options.model == second.options.model:
        told.append("the runs had different engines")
    return tuple(told)


def described(found: Comparison) -> str:
    """The comparison for people."""
    lines = [
        f"first:  {found.first}",
        f"second: {found.second}",
        f"{found.pairs} pairs over {found.tasks} tasks: both pass {found.both}, only the first {found.only_first}, "
        f"only the second {found.only_second}, neither {found.neither}",
        f"gain: {found.gain.value:+.1f} points ({found.gain.low:+.1f} to {found.gain.high:+.1f})"
        + (f", McNemar p = {found.p:.3g}" if found.p is not None else ""),
    ]
    if found.time_ratio is not None:
        ratio = found.time_ratio
        lines.append(
            f"time: {ratio.value:.2f} times the first's ({ratio.low:.2f} to {ratio.high:.2f}); "
            f"median of the pairs {found.median_ratio:.2f}"
        )
    if found.left_out:
        lines.append(f"left out: {found.left_out} records without a counterpart")
    lines += [f"note: {warning}" for warning in found.warnings]
    return "\n".join(lines)

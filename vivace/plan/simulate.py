"""The same pipeline, event by event: what the formula of :mod:`vivace.plan.occupancy` is checked against."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence

from msgspec import Struct


class Simulated(Struct, frozen=True):
    passes_per_second: float
    occupancy: float
    """Of the slowest stage, over the measured part of the run."""
    laps: int


def simulate(
    stage_time: Callable[[int, int], float],
    stages: int,
    groups: Sequence[int],
    links: Sequence[float] = (),
    *,
    laps: int = 60,
    warm: int = 20,
    slowest: int = 0,
) -> Simulated:
    """Let ``groups`` (their sizes) circle. Each stage serves one group at a time, first come first served.

    ``stage_time(stage, size)``: seconds; ``links[i]``: seconds from stage i to the next. The first ``warm`` laps of
    the last group to do them are not counted.
    """
    waiting: list[deque[int]] = [deque() for _ in range(stages)]
    busy = [False] * stages
    done = [0] * len(groups)
    events: list[tuple[float, int, int, int, bool]] = []  # time, order, stage, group, whether it leaves
    order = 0
    worked = passes = 0.0
    began: float | None = None
    now = 0.0

    def start(stage: int, group: int) -> None:
        nonlocal order, worked
        busy[stage] = True
        seconds = stage_time(stage, groups[group])
        if began is not None and stage == slowest:
            worked += seconds
        order += 1
        heapq.heappush(events, (now + seconds, order, stage, group, True))

    for group in range(len(groups)):
        heapq.heappush(events, (0.0, group - len(groups), 0, group, False))
    while min(done) < laps:
        now, _, stage, group, leaves = heapq.heappop(events)
        if leaves:
            busy[stage] = False
            if waiting[stage]:
                start(stage, waiting[stage].popleft())
            if stage == stages - 1:
                done[group] += 1
                passes += began is not None
                if began is None and min(done) >= warm:
                    began = now
            order += 1
            delay = links[stage] if links else 0.0
            heapq.heappush(events, (now + delay, order, (stage + 1) % stages, group, False))
        elif busy[stage]:
            waiting[stage].append(group)
        else:
            start(stage, group)
    assert began is not None
    span = now - began
    return Simulated(passes / span, worked / span, min(done))

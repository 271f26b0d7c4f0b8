"""How full a ring of stages is: decoding lets every group of sequences circle through all stages, token after token.

Groups cannot overtake each other, so that all of them need the same time for a lap. With fixed times it is the longer
of two: the largest group's way through all stages and links with nobody before it, and the work of all groups that
waits at the slowest stage. From it

    passes per second = groups / lap,    occupancy = work of all groups at the slowest stage / lap

It is checked against an event-by-event simulation (:mod:`vivace.plan.simulate`); times that scatter lower it where the
pipe is just full.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Times = Mapping[int, Sequence[float]]
"""Seconds of every stage, by the number of sequences in a group."""


def lap(times: Times, groups: Sequence[int], links: Sequence[float] = ()) -> float:
    """Seconds until a group is where it was. ``links``: seconds after each stage; ``groups``: their sizes."""
    return max(sum(times[max(groups)]) + sum(links), slowest_work(times, groups))


def slowest_work(times: Times, groups: Sequence[int]) -> float:
    """Seconds that the slowest stage works in one lap."""
    counted = {size: groups.count(size) for size in set(groups)}
    stages = range(len(times[max(groups)]))
    return max(sum(count * times[size][stage] for size, count in counted.items()) for stage in stages)


def occupancy(times: Times, groups: Sequence[int], links: Sequence[float] = ()) -> float:
    """Share of the time that the slowest stage works; 0 without a group."""
    return slowest_work(times, groups) / lap(times, groups, links) if groups else 0.0


def group_sizes(sequences: int, stages: int) -> list[int]:
    """Sequences travel singly until every stage has one, then in as many equal groups as there are stages."""
    groups = min(sequences, stages)
    return [sequences // groups + (index < sequences % groups) for index in range(groups)]

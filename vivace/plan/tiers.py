"""Which tier for this work: the one whose money and waiting together cost least, and where the answer turns."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from vivace.plan.turn import Turn


class Ranked(Struct, frozen=True, kw_only=True):
    turn: Turn
    seconds: float
    dollars: float
    waiting: float
    """Dollars of the seconds that somebody waits."""

    @property
    def total(self) -> float:
        return self.dollars + self.waiting


class Choice(Struct, frozen=True, kw_only=True):
    """``ranked``: cheapest first. ``turns``: value of an hour at which the best tier changes, and to which."""

    wait_hour: float
    turns: int
    ranked: list[Ranked]
    changes: list[tuple[float, str]]
    unpriced: list[str]


def choose(candidates: Sequence[Turn], wait_hour: float, turns: int = 1) -> Choice:
    """Rank the tiers for ``turns`` turns of the same work at ``wait_hour`` dollars for an hour of waiting."""
    priced = [each for each in candidates if each.dollars is not None]
    ranked = [
        Ranked(
            turn=each,
            seconds=each.seconds * turns,
            dollars=(each.dollars or 0.0) * turns,
            waiting=each.seconds * turns * wait_hour / 3600,
        )
        for each in priced
    ]
    return Choice(
        wait_hour=wait_hour,
        turns=turns,
        ranked=sorted(ranked, key=lambda each: each.total),
        changes=_changes(priced),
        unpriced=[each.runner for each in candidates if each.dollars is None],
    )


def _changes(turns: Sequence[Turn]) -> list[tuple[float, str]]:
    """The lower envelope of money + value x seconds over the value of an hour, from nothing upwards."""
    left = sorted(turns, key=lambda each: (each.dollars or 0.0, each.seconds))
    if not left:
        return []
    best, value = left[0], 0.0
    found = [(0.0, best.runner)]
    while True:
        crossings = [
            (((each.dollars or 0.0) - (best.dollars or 0.0)) / (best.seconds - each.seconds) * 3600, each)
            for each in left
            if each.seconds < best.seconds
        ]
        later = [crossing for crossing in crossings if crossing[0] >= value]
        if not later:
            return found
        value, best = min(later, key=lambda crossing: (crossing[0], crossing[1].seconds))
        found.append((value, best.runner))

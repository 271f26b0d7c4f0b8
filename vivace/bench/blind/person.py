"""A person as the judge: two diffs on the terminal, one key."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table

from vivace.bench.blind.pairs import Pair
from vivace.bench.blind.verdicts import Won

SIDE_BY_SIDE = 160
"""Columns of the terminal from which the two stand beside each other."""
KEYS: dict[str, Won] = {"1": "first", "2": "second", "t": "tie", "=": "tie", "s": "skip"}
QUESTION = "Which is better? [1] [2] [t]ie [s]kip [q]uit "


class Person:
    """``key`` gives one pressed key. Neither names nor figures of the contenders are shown."""

    def __init__(self, key: Callable[[], str], console: Console | None = None) -> None:
        self._key = key
        self._console = console or Console(highlight=False)

    def decide(self, pair: Pair, place: str) -> Won | None:
        """The verdict, or None to end. ``place`` says how far the session is."""
        self.show(pair, place)
        self._console.print(QUESTION, end="", markup=False)
        while True:
            pressed = self._key().lower()
            if pressed in KEYS:
                self._console.print(KEYS[pressed])
                return KEYS[pressed]
            if pressed in ("q", "\x03", "\x04", ""):
                self._console.print()
                return None

    def show(self, pair: Pair, place: str) -> None:
        """The instruction, then both diffs."""
        self._console.rule(f"{pair.task}  {place}")
        self._console.print(pair.instruction, markup=False)
        sides = [
            Panel(self._diff(side.diff), title=str(number)) for number, side in enumerate((pair.first, pair.second), 1)
        ]
        if self._console.width < SIDE_BY_SIDE:
            self._console.print(*sides, sep="\n")
            return
        beside = Table.grid(expand=True)
        beside.add_column(ratio=1)
        beside.add_column(ratio=1)
        beside.add_row(*sides)
        self._console.print(beside)

    def _diff(self, text: str) -> Syntax | str:
        return Syntax(text, "diff", word_wrap=True, background_color="default") if text else "(nothing was changed)"

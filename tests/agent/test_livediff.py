"""The diff while it is made: nothing is held back for long, and both sides can be told from what was shown."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vivace.agent.livediff import HELD, LiveDiff, Shown

LINES = st.lists(st.sampled_from(["a", "b", "one more line", "", "x = 1"]), max_size=14)


def test_a_long_insertion_is_shown_while_it_comes() -> None:
    live = LiveDiff(["def f():", "    return 1"])
    new = ["def f():", "    return 1", "", *(f"line number {n}" for n in range(9))]
    shown: list[Shown] = []
    for n, line in enumerate(new):
        shown += live.feed([line])
        assert n + 1 - len(shown) <= HELD
    assert shown + live.finish() == [(" ", new[0]), (" ", new[1]), *(("+", line) for line in new[2:])]
    assert live.changed == 10


def test_a_long_replacement_counts_each_line_once() -> None:
    old = ["first line", *(f"old {n}" for n in range(7)), "the last line"]
    live = LiveDiff(old)
    shown = live.feed(["first line", *(f"new {n}" for n in range(7)), "the last line"]) + live.finish()
    assert live.changed == 7
    assert sorted(line for mark, line in shown if mark == "-") == old[1:-1]


@given(LINES, LINES)
def test_both_sides_are_in_what_is_shown(old: list[str], new: list[str]) -> None:
    live = LiveDiff(old)
    shown = live.feed(new) + live.finish()
    assert [line for mark, line in shown if mark != "-"] == new
    assert [line for mark, line in shown if mark != "+"] == old
    assert live.changed <= max(len(old), len(new)) + len(old)

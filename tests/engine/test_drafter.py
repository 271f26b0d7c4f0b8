"""The drafter's promises: bounded proposals, a place that the tokens decide, and a quick way back after an edit."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from vivace.engine.costs import CostCurve
from vivace.engine.drafter import AHEAD, Drafter

LENGTH = 400
FREE = CostCurve({1: 1.0, 4096: 1.000001})
"""Wide passes cost nothing more, so whatever may be right is proposed."""
tokens = st.integers(0, 12)
hunks = st.lists(st.tuples(st.integers(20, 60), st.integers(0, 8), st.integers(0, 8)), max_size=6)


def emit(drafter: Drafter, new: list[int], drafted: int = 0, agreed: int = 0) -> None:
    drafter.tokens += new
    drafter.observe(new, drafted, agreed)


def write(drafter: Drafter, output: list[int], widths: list[int]) -> int:
    """What verification does: propose, emit what agrees and one more, tell the drafter. Returns how often it did."""
    at = passes = 0
    while at < len(output):
        draft = drafter.propose(widths[passes % len(widths)], FREE)
        agreed = 0
        while agreed < len(draft) and at + agreed < len(output) - 1 and draft[agreed] == output[at + agreed]:
            agreed += 1
        new = output[at : at + agreed + 1]
        emit(drafter, new, len(draft), agreed)
        at += len(new)
        passes += 1
    return passes


def edited(wanted: list[tuple[int, int, int]]) -> tuple[list[int], list[int], int]:
    """A reference without repetition, its text after hunks of (copied, removed, added), and the tokens added."""
    reference = list(range(LENGTH))
    output: list[int] = []
    at = new = 0
    for copied, removed, added in wanted:
        output += reference[at : at + copied] + list(range(1000 + new, 1000 + new + added))
        at += copied + removed
        new += added
    return reference, output + reference[at:], new


@settings(max_examples=200, deadline=None)
@given(st.lists(tokens, max_size=60), st.lists(tokens, max_size=60), st.integers(0, 200))
def test_proposals_are_never_longer_than_asked(reference: list[int], output: list[int], limit: int) -> None:
    drafter = Drafter([], reference)
    assert len(drafter.propose(limit, FREE)) <= limit
    for token in output:
        draft = drafter.propose(limit, FREE)
        assert len(draft) <= limit and set(draft) <= {*reference, *drafter.tokens}
        agreed = int(draft[:1] == [token])
        emit(drafter, [token], len(draft), agreed)
    assert drafter.propose(0, FREE) == []


@settings(max_examples=200, deadline=None)
@given(st.lists(tokens, max_size=60), st.lists(tokens, max_size=60), st.lists(st.integers(0, 40), min_size=1))
def test_every_output_is_written_whatever_was_proposed(
    reference: list[int], output: list[int], widths: list[int]
) -> None:
    drafter = Drafter([1, 2, 3], reference)
    assert write(drafter, output, widths) <= len(output)
    assert drafter.tokens == [1, 2, 3, *output]


@settings(max_examples=200, deadline=None)
@given(hunks, st.lists(st.integers(0, 40), min_size=1, max_size=5), st.integers(0, 60))
def test_the_tokens_alone_decide_the_place(wanted: list[tuple[int, int, int]], widths: list[int], rest: int) -> None:
    """In one pass, token by token or drafted: after the same output the same place of the reference is next."""
    reference, output, _ = edited(wanted)
    output = output[: len(output) - rest - 4]
    assume(output[-3:] == list(range(output[-1] - 2, output[-1] + 1)) and output[-1] < LENGTH)
    drafted, at_once, one_by_one = (Drafter([], reference) for _ in range(3))
    write(drafted, output, widths)
    emit(at_once, output)
    for token in output:
        emit(one_by_one, [token])
    assert drafted.cursor == at_once.cursor == one_by_one.cursor == output[-1] + 1


@settings(max_examples=200, deadline=None)
@given(st.integers(0, LENGTH - 10), st.integers(0, AHEAD - 60), st.lists(st.integers(1000, 1010), max_size=50))
def test_three_copied_tokens_after_one_hunk_it_copies_again(at: int, removed: int, added: list[int]) -> None:
    """Delete, insert and replace of any length, over a reference without repetition."""
    reference = list(range(LENGTH))
    resume = at + removed
    assume(resume + 10 <= LENGTH)
    drafter = Drafter([], reference)
    write(drafter, reference[:at] + added + reference[resume : resume + 3], [127])
    draft = drafter.propose(7, FREE)
    assert draft and draft == reference[resume + 3 :][: len(draft)]
    assert drafter.cursor == resume + 3


@settings(max_examples=100, deadline=None)
@given(hunks)
def test_a_handful_of_hunks_costs_a_handful_of_passes(wanted: list[tuple[int, int, int]]) -> None:
    """Each hunk costs at most its own new tokens and a few passes to be sure of the place; copying is drafted."""
    reference, output, new = edited(wanted)
    assert write(Drafter([], reference), output, [127]) <= LENGTH // 127 + 2 + new + 6 * len(wanted)


def test_what_was_moved_is_found_and_what_follows_it_too() -> None:
    reference = list(range(LENGTH))
    output = reference[:50] + reference[300:350] + reference[50:300] + reference[350:]
    assert write(Drafter([], reference), output, [127]) < 30


def test_nothing_is_drafted_when_switched_off_or_past_the_end_of_new_text() -> None:
    off = Drafter([], [1, 2, 3], enabled=False)
    emit(off, [1, 2])
    assert off.propose(10, FREE) == []
    assert Drafter([], []).propose(10, FREE) == []
    ended = Drafter([], [1, 2, 3])
    emit(ended, [1, 2, 3])
    assert ended.propose(10, FREE) == []

"""Tables at any width: no word is broken, and nothing is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.plan.printing import GAP, blocks, fitted, print_table

WORD = st.text("abcdefgh", min_size=1, max_size=9)
CELL = st.lists(WORD, max_size=4).map(" ".join)
ROWS = st.integers(1, 5).flatmap(
    lambda columns: st.lists(st.lists(CELL, min_size=columns, max_size=columns), min_size=1, max_size=5)
)


@given(ROWS, st.integers(10, 120))
def test_columns_hold_their_longest_word_and_fit(rows: list[list[str]], width: int) -> None:
    found = fitted(rows, width)
    least = [
        max([len(word) for cell in column for word in cell.split()], default=0) for column in zip(*rows, strict=True)
    ]
    if len(least) > 2:
        least[0] = max(len(row[0]) for row in rows)
    if found is None:
        assert sum(least) + GAP * len(least) > width
    else:
        assert all(got >= wanted for got, wanted in zip(found, least, strict=True))
        assert sum(found) + GAP * len(found) <= width


@pytest.mark.parametrize("width", ["50", "80", "200"])
def test_no_word_is_broken_on_any_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: str
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    head = ["name", "architecture", "calibration", "what is missing of it"]
    body = ["deepseek-v4-flash", "mixture-of-experts", "gpu-generic-2026", "parameters, low-rank projections, layers"]
    print_table([head, body])
    told = capsys.readouterr().out
    assert all(len(line) <= int(width) for line in told.splitlines())
    for word in " ".join([*head[1:], *body]).split():  # a block needs no name for its first line
        assert word in told.split(), word


def test_blocks_leave_out_what_is_empty() -> None:
    rows = [["", "speed", "note"], ["a", "1", ""], ["b", "", "slow"]]
    assert blocks(rows) == [["a", ("speed", "1")], ["b", ("note", "slow")]]

"""The block table against a model of it: random takes, registrations, matches and releases."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vivace.engine.kv import BLOCK, BlockTable, OutOfBlocks


def tokens_of(word: list[int]) -> list[int]:
    """A chain of blocks, each filled with one number."""
    return [number for number in word for _ in range(BLOCK)]


def fill(table: BlockTable, word: list[int]) -> list[int]:
    """What a sequence does: reuse what is there, take the rest, register all."""
    blocks = table.match(tokens_of(word))
    for index in range(len(blocks), len(word)):
        blocks.append(table.take())
        table.register(blocks, index, tokens_of(word[index : index + 1]))
    return blocks


def test_equal_prefixes_share_blocks_and_survive_release() -> None:
    table = BlockTable(8)
    first = fill(table, [1, 2, 3])
    second = fill(table, [1, 2, 4])
    assert second[:2] == first[:2] and second[2] != first[2]
    assert table.held == 4
    table.release(first)
    table.release(second)
    assert table.held == 0 and table.idle == 4
    assert fill(table, [1, 2, 3]) == first


def test_same_content_computed_twice_is_kept_once() -> None:
    table = BlockTable(8)
    mine, yours = [table.take()], [table.take()]
    table.register(mine, 0, tokens_of([7]))
    table.register(yours, 0, tokens_of([7]))
    assert mine == yours and table.held == 1


def test_same_tokens_after_another_prefix_are_another_block() -> None:
    table = BlockTable(8)
    assert fill(table, [1, 9])[1] != fill(table, [2, 9])[1]


def test_tails_are_evicted_before_heads_and_old_before_new() -> None:
    table = BlockTable(4)
    old = fill(table, [1, 2])
    table.release(old)
    new = fill(table, [3, 4])
    table.release(new)
    assert table.take() == old[1]
    assert table.peek(tokens_of([1, 2])) == BLOCK
    assert table.peek(tokens_of([3, 4])) == 2 * BLOCK


def test_full_memory_is_refused() -> None:
    table = BlockTable(2)
    table.take(), table.take()
    with pytest.raises(OutOfBlocks):
        table.take()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 2), min_size=1, max_size=5)), max_size=40))
def test_books_balance_and_matches_are_true(steps: list[tuple[bool, list[int]]]) -> None:
    table = BlockTable(10)
    content: dict[int, tuple[int, ...]] = {}
    held: list[list[int]] = []
    for release, word in steps:
        if release and held:
            table.release(held.pop(0))
        else:
            blocks = table.match(tokens_of(word))
            for index, block in enumerate(blocks):
                assert content[block] == tuple(word[: index + 1])
            try:
                for index in range(len(blocks), len(word)):
                    blocks.append(table.take())
                    content[blocks[-1]] = tuple(word[: index + 1])
                    table.register(blocks, index, tokens_of(word[index : index + 1]))
            except OutOfBlocks:
                table.release(blocks)
            else:
                held.append(blocks)
        table.check()
        assert table.held == len({block for blocks in held for block in blocks})

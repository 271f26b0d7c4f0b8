"""KV memory of sequences: giving blocks, sharing them, taking them back."""

from __future__ import annotations

from collections.abc import Callable

from vivace.engine.kv import BLOCK, BlockTable, OutOfBlocks
from vivace.engine.sequence import Sequence

CopyBlock = Callable[[int, int], None]
"""Copies a block's contents: from, to."""


class Memory:
    """The blocks of all sequences over one :class:`BlockTable`."""

    def __init__(self, table: BlockTable, copy_block: CopyBlock) -> None:
        self.table = table
        self._copy_block = copy_block

    @property
    def positions(self) -> int:
        return self.table.count * BLOCK

    def holds(self, tokens: list[int]) -> int:
        """How many leading tokens need not be computed, were they asked for now."""
        return self.table.peek(tokens[:-1])

    def has_room_for(self, tokens: list[int]) -> bool:
        """Whether a prompt and a first draft fit now."""
        return -(-len(tokens) // BLOCK) + 2 <= self.table.available

    def begin(self, sequence: Sequence) -> None:
        """Give a sequence what memory holds of its tokens.

        The last token is never taken from memory: its row gives the next output.
        """
        sequence.blocks = self.table.match(sequence.tokens[:-1])
        sequence.computed = len(sequence.blocks) * BLOCK
        sequence.registered = len(sequence.blocks)

    def grow(self, sequence: Sequence, length: int) -> bool:
        """Give a sequence blocks for ``length`` positions; False when memory is full (what it got it keeps)."""
        while len(sequence.blocks) * BLOCK < length:
            try:
                sequence.blocks.append(self.table.take())
            except OutOfBlocks:
                return False
        return True

    def register(self, sequence: Sequence) -> None:
        """Make a sequence's complete blocks known, so that others find them."""
        for index in range(sequence.registered, sequence.computed // BLOCK):
            tokens = sequence.tokens[index * BLOCK : (index + 1) * BLOCK]
            self.table.register(sequence.blocks, index, tokens)
        sequence.registered = sequence.computed // BLOCK

    def part(self, leader: Sequence, follower: Sequence) -> None:
        """Give a follower memory of its own: the leader's complete blocks shared, what follows them copied.

        Both have the same tokens up to the follower's ``computed``, and the leader's blocks hold their KV.
        """
        shared = min(leader.registered, follower.computed // BLOCK)
        follower.blocks = self.table.hold(leader.blocks[:shared])
        follower.registered = shared
        for block in leader.blocks[shared : -(-follower.computed // BLOCK)]:
            if not self.grow(follower, len(follower.blocks) * BLOCK + 1):
                follower.computed = len(follower.blocks) * BLOCK
                break
            self._copy_block(block, follower.blocks[-1])
        self.register(follower)

    def free(self, sequence: Sequence) -> None:
        self.table.release(sequence.blocks)
        sequence.blocks = []
        sequence.computed = sequence.registered = 0

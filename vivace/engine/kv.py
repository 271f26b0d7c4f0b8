"""KV memory by blocks: who holds which block, and which tokens a block's contents were computed from.

A block holds :data:`BLOCK` positions of every layer. A block whose tokens are known and complete is *cached*: it is
found again by its tokens and those before it, whichever request asks. Blocks are shared by counting holders; a cached
block without a holder stays until the memory is needed, the longest unused one going first.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence

BLOCK = 32
"""Positions per block."""

Key = tuple[int, bytes]


class OutOfBlocks(Exception):
    """Every block is held by a running sequence."""


class BlockTable:
    """The block pool. Block ids are ``0 .. count - 1``; the memory itself belongs to the runner."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._free: deque[int] = deque(range(count))
        self._holders = [0] * count
        self._key_of: list[Key | None] = [None] * count
        self._uid_of = [0] * count
        self._cached: dict[Key, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._next_uid = 1

    @property
    def available(self) -> int:
        """Blocks that can be taken now, evicting idle ones."""
        return len(self._free) + len(self._idle)

    @property
    def held(self) -> int:
        return self.count - self.available

    @property
    def idle(self) -> int:
        """Cached blocks that nobody holds."""
        return len(self._idle)

    def take(self) -> int:
        """A block of one's own, evicting the longest unused idle block if none is free."""
        if self._free:
            block = self._free.popleft()
        elif self._idle:
            block, _ = self._idle.popitem(last=False)
            self._forget(block)
        else:
            raise OutOfBlocks
        self._holders[block] = 1
        return block

    def match(self, tokens: Sequence[int]) -> list[int]:
        """Hold and return the cached blocks of the longest prefix of ``tokens``, in order."""
        return self.hold(self._find(tokens))

    def hold(self, blocks: list[int]) -> list[int]:
        """Hold blocks that somebody holds already, or idle ones; returns them as a new list."""
        for block in blocks:
            self._hold(block)
        return list(blocks)

    def peek(self, tokens: Sequence[int]) -> int:
        """How many leading tokens are cached, in whole blocks; holds nothing."""
        return len(self._find(tokens)) * BLOCK

    def register(self, blocks: list[int], index: int, tokens: Sequence[int]) -> None:
        """State that ``blocks[index]`` is complete and holds ``tokens`` (its own :data:`BLOCK` ones).

        If the same tokens after the same prefix are cached already, the sequence gives its block up for that one, so
        that equal content is kept once.
        """
        key = (self._uid_of[blocks[index - 1]] if index else 0, array("i", tokens).tobytes())
        block = blocks[index]
        known = self._cached.get(key)
        if known is not None:
            if known != block:
                self._hold(known)
                self.release([block])
                blocks[index] = known
            return
        self._cached[key] = block
        self._key_of[block] = key
        self._uid_of[block] = self._next_uid
        self._next_uid += 1

    def release(self, blocks: Iterable[int]) -> None:
        """Let go of blocks, given first to last; their tails are evicted before their heads."""
        for block in reversed(list(blocks)):
            self._holders[block] -= 1
            if self._holders[block]:
                continue
            if self._key_of[block] is None:
                self._free.append(block)
            else:
                self._idle[block] = None

    def check(self) -> None:
        """Raise AssertionError if the books do not balance. Cheap enough for idle time."""
        free, idle = set(self._free), set(self._idle)
        assert not free & idle and len(free) == len(self._free)
        for block in range(self.count):
            holders, key = self._holders[block], self._key_of[block]
            assert holders >= 0
            assert (holders == 0) == (block in free or block in idle), block
            assert (block in idle) <= (key is not None), block
            assert key is None or self._cached.get(key) == block, block
        assert len(self._cached) == sum(key is not None for key in self._key_of)

    def _find(self, tokens: Sequence[int]) -> list[int]:
        whole = array("i", tokens)
        found: list[int] = []
        for start in range(0, len(whole) - BLOCK + 1, BLOCK):
            parent = self._uid_of[found[-1]] if found else 0
            block = self._cached.get((parent, whole[start : start + BLOCK].tobytes()))
            if block is None:
                break
            found.append(block)
        return found

    def _hold(self, block: int) -> None:
        self._holders[block] += 1
        self._idle.pop(block, None)

    def _forget(self, block: int) -> None:
        key = self._key_of[block]
        if key is not None:
            del self._cached[key]
            self._key_of[block] = None
            self._uid_of[block] = 0

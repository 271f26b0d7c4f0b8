"""Where the last tokens stood before: an index over a growing list of tokens, O(1) per token."""

from __future__ import annotations

GRAM = 2
"""Tokens that must agree before a place counts."""
LONGEST = 16
"""How much of an agreement is measured."""


class SuffixIndex:
    """Remembers the last place of every :data:`GRAM` tokens in a row in ``tokens``, which may only grow."""

    def __init__(self, tokens: list[int]) -> None:
        self._tokens = tokens
        self._after: dict[tuple[int, ...], int] = {}
        self._indexed = GRAM - 1

    def continuation(self) -> tuple[int, int]:
        """The place after the last earlier occurrence of the final tokens, and how many of them agree there.

        ``(-1, 0)`` where there is none.
        """
        tokens = self._tokens
        # The final gram itself is left out until something follows it.
        for end in range(self._indexed + 1, len(tokens)):
            self._after[tuple(tokens[end - GRAM : end])] = end
        self._indexed = max(self._indexed, len(tokens) - 1)
        place = self._after.get(tuple(tokens[-GRAM:]), -1) if len(tokens) >= GRAM else -1
        if place < 0:
            return -1, 0
        length = GRAM
        while length < min(LONGEST, place) and tokens[place - length - 1] == tokens[-length - 1]:
            length += 1
        return place, length

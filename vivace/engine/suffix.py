"""Where the last tokens stood before: an index over a growing list of tokens, O(1) per token."""

from __future__ import annotations

GRAM = 3
"""Tokens that must agree before a place counts."""


class SuffixIndex:
    """Remembers the last place of every :data:`GRAM` tokens in a row in ``tokens``, which may only grow."""

    def __init__(self, tokens: list[int]) -> None:
        self._tokens = tokens
        self._after: dict[tuple[int, ...], int] = {}
        self._indexed = GRAM - 1

    def continuation(self) -> int:
        """The place after the last earlier occurrence of the final tokens, or -1."""
        tokens = self._tokens
        # The final gram itself is left out until something follows it.
        for end in range(self._indexed + 1, len(tokens)):
            self._after[tuple(tokens[end - GRAM : end])] = end
        self._indexed = max(self._indexed, len(tokens) - 1)
        return self._after.get(tuple(tokens[-GRAM:]), -1) if len(tokens) >= GRAM else -1

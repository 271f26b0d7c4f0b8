"""The cursor drafter: propose what comes next in the reference, and find the way back after an edit.

While the output copies the reference the cursor says what comes next; nothing is searched. When the model writes
something else, the next tokens decide between three readings of what happened, and the draft follows the best one:

- *delete*: the new token stands a little further on in the reference,
- *replace*: it stands for the reference's token, so the one after it comes next,
- *insert*: it was added, so the reference's token still comes next.

A draft only ever changes speed. State belongs to one request.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

AHEAD = 256
"""How far in front of the place of divergence a near match is looked for, in tokens."""
BEHIND = 64
"""How far behind it: text that was repeated."""
SYNCED = 3
"""So many copied tokens in a row mean that the output copies again."""
WIDTHS = {0: 7, 1: 15, 2: 31}
"""Draft length by how many tokens speak for the cursor's place; more of them allow the full width."""


class Drafter:
    """Drafts for one request from ``reference`` (token ids). An empty reference never drafts."""

    def __init__(self, reference: Sequence[int]) -> None:
        self.reference = list(reference)
        self.cursor = 0
        self._evidence = SYNCED
        self._anchor = 0
        self._tail: list[int] = []
        self._places: dict[int, list[int]] = defaultdict(list)
        for place, token in enumerate(self.reference):
            self._places[token].append(place)

    def propose(self, limit: int) -> list[int]:
        """At most ``limit`` tokens that may come next."""
        width = min(limit, WIDTHS.get(self._evidence, limit))
        return self.reference[self.cursor : self.cursor + width]

    def observe(self, new: Sequence[int], drafted: int, agreed: int) -> None:
        """Learn the tokens that were emitted after the last proposal, oldest first."""
        if self.reference:
            for token in new:
                self._follow(token)

    def _follow(self, token: int) -> None:
        if self.cursor < len(self.reference) and self.reference[self.cursor] == token:
            self.cursor += 1
            self._evidence += 1
            if self._evidence >= SYNCED:
                self._tail.clear()
            else:
                self._tail.append(token)
            return
        if not self._tail:
            self._anchor = self.cursor
        self._tail.append(token)
        self.cursor, self._evidence = self._resume(token)

    def _resume(self, token: int) -> tuple[int, int]:
        """Where the reference goes on after ``token``, and how many tokens speak for that place."""
        best_score, best, evidence = 0.0, -1, 0
        near = 0
        for place in self._places.get(token, ()):
            distance = place - self._anchor
            length = self._match_length(place)
            if not -BEHIND <= distance <= AHEAD and length < 4:
                continue
            near += 1
            score = length - abs(distance) / AHEAD
            if score > best_score:
                best_score, best, evidence = score, place + 1, length
        if best >= 0 and (evidence > 1 or near <= 2 or best - self._anchor <= 16):
            return best, evidence
        # No trace of the token: the first one probably replaces, a longer run probably inserts.
        if len(self._tail) == 1:
            return min(self._anchor + 1, len(self.reference)), 0
        return self._anchor, 0

    def _match_length(self, place: int) -> int:
        """How many of the last tokens since the divergence equal the reference's up to ``place``."""
        limit = min(len(self._tail), place + 1)
        length = 0
        while length < limit and self.reference[place - length] == self._tail[-1 - length]:
            length += 1
        return length

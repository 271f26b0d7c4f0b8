"""The cursor drafter: propose what comes next in the reference, and find the way back after an edit.

While the output copies the reference the cursor says what comes next; nothing is searched. When the model writes
something else, the next tokens decide between three readings of what happened, and the draft follows the best one:

- *delete*: the new token stands a little further on in the reference,
- *replace*: it stands for the reference's token, so the one after it comes next,
- *insert*: it was added, so the reference's token still comes next.

A short replacement is remembered and made in later drafts by itself, so that a rename costs its surprise once. Where
the reference says nothing, what followed the same tokens earlier in the prompt or the output is proposed.

A draft only ever changes speed. State belongs to one request.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from vivace.engine.costs import Acceptance, CostCurve, best_width
from vivace.engine.suffix import SuffixIndex

AHEAD = 256
"""How far in front of the place of divergence a near match is looked for, in tokens."""
BEHIND = 64
"""How far behind it: text that was repeated."""
FAR = 4
"""So many tokens in a row must agree before a place further away is believed: moved text."""
SYNCED = 3
"""So many copied tokens in a row mean that the output copies again."""
LONGEST = 6
"""Tokens of a hunk that is remembered."""


class Drafter:
    """Drafts for one request.

    ``tokens`` is the request's own growing list of prompt and output, ``reference`` what the output will mostly be.
    With ``enabled`` false nothing is ever proposed.
    """

    def __init__(self, tokens: list[int], reference: Sequence[int], enabled: bool = True) -> None:
        self.tokens = tokens
        self.reference = list(reference) if enabled else []
        self.cursor = 0
        self.enabled = enabled
        self._run = SYNCED
        """Tokens in a row that agreed with the reference; they speak for the cursor's place."""
        self._anchor = 0
        self._home = 0
        self._tail: list[int] = []
        self._renames: dict[int, tuple[list[int], list[int]]] = {}
        """Replacements made before, by the first token that they replace: (old, new)."""
        self._hunks: dict[int, tuple[list[int], list[int]]] = {}
        """Replacements and insertions made before, by the first token that they wrote: (old, new)."""
        self._ahead: list[int] = []
        """What is left of a hunk that has begun like an earlier one; the reference goes on at the cursor after it."""
        self._path: list[tuple[int, int, int]] = []
        """The reference's proposal: token, cursor after it, and the first token of the rename that made it, or -1."""
        self._places: dict[int, list[int]] = defaultdict(list)
        for place, token in enumerate(self.reference):
            self._places[token].append(place)
        self._suffix = SuffixIndex(tokens)
        self._acceptance = {
            "copy": Acceptance(40, 1),
            "resync": Acceptance(4, 1),
            "guess": Acceptance(1, 2),
            "suffix": Acceptance(2, 1),
        }
        self._source = "copy"

    def propose(self, limit: int, cost: CostCurve, rows: int = 0, tokens: int = 0) -> list[int]:
        """At most ``limit`` tokens that may come next, as many as pay; see :func:`vivace.engine.costs.best_width`."""
        self._path = []
        if not self.enabled or limit <= 0:
            return []
        start = -1
        self._source = "copy" if self._run >= SYNCED else "resync" if self._run or self._ahead else "guess"
        if self.cursor >= len(self.reference):
            self._source = "suffix"
        if self._source in ("guess", "suffix"):
            start = self._suffix.continuation()
            if start >= 0 and self._odds("suffix") > self._odds("guess"):
                self._source = "suffix"
        if self._source == "suffix" and start < 0:
            return []
        width = best_width(self._odds(self._source), limit, cost, rows, tokens)
        if not width:
            self._acceptance[self._source].forget()
            return []
        if self._source == "suffix":
            return self.tokens[start : start + width]
        self._walk(width)
        return [token for token, _, _ in self._path]

    def observe(self, new: Sequence[int], drafted: int, agreed: int) -> None:
        """Learn the tokens that were emitted after the last proposal, oldest first."""
        if drafted:
            self._acceptance[self._source].learn(drafted, agreed)
        if not self.reference:
            return
        for index, token in enumerate(new):
            if index < len(self._path) and not self._ahead:
                expected, after, rename = self._path[index]
                if token == expected:
                    self._copied(token, after)
                    continue
                if rename >= 0:
                    self._renames.pop(rename, None)
                self._path = []
            self._follow(token)

    def _odds(self, source: str) -> float:
        return self._acceptance[source].probability

    def _walk(self, width: int) -> None:
        """The next ``width`` tokens of the reference with the learned replacements made."""
        place = self.cursor
        self._path = [(token, place, -1) for token in self._ahead]
        while len(self._path) < width and place < len(self.reference):
            token = self.reference[place]
            old, new = self._renames.get(token, ([], []))
            # Right after a surprise the plain text is proposed: the replacement has just been made or refused.
            if old and self._run and self.reference[place : place + len(old)] == old:
                for index, mapped in enumerate(new):
                    # Inside a replacement the cursor stays in front of it.
                    self._path.append((mapped, place + len(old) if index == len(new) - 1 else place, token))
                place += len(old)
            else:
                place += 1
                self._path.append((token, place, -1))
        del self._path[width:]

    def _copied(self, token: int, cursor: int) -> None:
        self.cursor = cursor
        self._run += 1
        if not self._tail:
            return
        self._tail.append(token)
        if self._run >= SYNCED:
            self._close_hunk()

    def _close_hunk(self) -> None:
        """The output copies again: what stands between the anchor and here was replaced."""
        new = self._tail[: len(self._tail) - self._run]
        old = self.reference[self._anchor : self.cursor - self._run]
        self._tail.clear()
        if not 0 < len(new) <= LONGEST or len(old) > LONGEST:
            return
        self._hunks[new[0]] = (old, new)
        if old and old[0] != new[0]:
            self._renames[old[0]] = (old, new)

    def _follow(self, token: int) -> None:
        if self._ahead:
            if token == self._ahead[0]:
                self._tail.append(self._ahead.pop(0))
                return
            self._hunks.pop(self._tail[0], None)
            self._ahead, self._path = [], []
        if self.cursor < len(self.reference) and self.reference[self.cursor] == token:
            self._copied(token, self.cursor + 1)
            return
        if not self._tail:
            # A place of long agreement is where the output comes back to after text that was moved.
            self._home = self._anchor if abs(self.cursor - self._anchor) < FAR else self.cursor
            self._anchor = self.cursor
        self._tail.append(token)
        self.cursor, self._run = self._resume(token)
        old, written = self._hunks.get(token, ([], []))
        if len(self._tail) == 1 and len(written) > 1 and self._run <= 1 and self._at_anchor(old):
            self._ahead = written[1:]
            self.cursor, self._run = self._anchor + len(old), 0

    def _at_anchor(self, old: list[int]) -> bool:
        return self.reference[self._anchor : self._anchor + len(old)] == old

    def _resume(self, token: int) -> tuple[int, int]:
        """Where the reference goes on after ``token``, and how many tokens speak for that place."""
        best_score, best, evidence = 0.0, -1, 0
        places = self._places.get(token, ())
        for place in places:
            length = self._agreement(place)
            distance = min(abs(place - self._anchor), abs(place - self._home))
            near = -BEHIND <= place - self._anchor <= AHEAD or -BEHIND <= place - self._home <= AHEAD
            if not near and length < FAR:
                continue
            score = length - distance / AHEAD
            if score > best_score:
                best_score, best, evidence = score, place + 1, length
        if best >= 0 and (evidence > 1 or len(places) <= 2 or abs(best - self._anchor) <= 16):
            return best, evidence
        # No trace of the token: the first one probably replaces, a longer run probably inserts.
        if len(self._tail) == 1:
            return min(self._anchor + 1, len(self.reference)), 0
        return self._anchor, 0

    def _agreement(self, place: int) -> int:
        """How many of the last tokens since the divergence equal the reference's up to ``place``."""
        limit = min(len(self._tail), place + 1)
        length = 0
        while length < limit and self.reference[place - length] == self._tail[-1 - length]:
            length += 1
        return length

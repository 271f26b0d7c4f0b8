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
NEAR = 16
"""A single agreeing token further away than this is worth less."""
FAR = 4
"""So many tokens in a row must agree before a place further away is believed: moved text."""
SYNCED = 3
"""So many copied tokens in a row mean that the output copies again."""
SUFFIXES = ((8, "suffix8"), (4, "suffix4"), (3, "suffix3"), (2, "suffix2"))
"""How sure a continuation from earlier text is, by how many tokens agree."""
LONGEST = 6
"""Tokens of a hunk that is remembered."""


class Replacement:
    """Text that the output put in the place of some of the reference's, and how often it did so again."""

    def __init__(self, old: list[int], new: list[int]) -> None:
        self.old = old
        self.new = new
        self._by_context: dict[int, int] = {}
        self._balance = 0

    def likely(self, context: int) -> bool:
        """Whether it is made again after ``context``, the reference's token before it."""
        return self._by_context.get(context, self._balance) > 0

    def refused(self, context: int) -> bool:
        """Whether it was begun but not finished there the last time."""
        return self._by_context.get(context, self._balance) < 0

    def learn(self, context: int, made: bool) -> None:
        """The latest case counts most, here and in places that were never seen."""
        for_context = self._by_context.get(context, 0)
        self._by_context[context] = max(for_context, 0) + 1 if made else min(for_context, 0) - 1
        self._balance = max(-2, min(2, self._balance + (1 if made else -1)))


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
        self._renames: dict[int, Replacement] = {}
        """Replacements made before, by the first token that they replace."""
        self._hunks: dict[int, Replacement] = {}
        """Replacements and insertions made before, by the first token that they wrote."""
        self._endings: dict[int, int] = {}
        """The last token of a replacement by the last one that it replaced: ``):`` may go on as ``) -> int:``."""
        self._ahead: list[int] = []
        """What is left of a hunk that has begun like an earlier one; the reference goes on at the cursor after it."""
        self._hunk: Replacement | None = None
        """The earlier one, and where it has begun again."""
        self._hunk_at = 0
        self._path: list[tuple[int, int, Replacement | None, int]] = []
        """The reference's proposal: token, cursor after it, the replacement that made it and where that begins."""
        self._places: dict[int, list[int]] = defaultdict(list)
        for place, token in enumerate(self.reference):
            self._places[token].append(place)
        self._suffix = SuffixIndex(tokens)
        self._acceptance = {
            "copy": Acceptance(40, 1),
            "ahead": Acceptance(4, 1),
            "resync2": Acceptance(8, 1),
            "resync1": Acceptance(4, 1),
            "far": Acceptance(1, 1),
            "resync0": Acceptance(1, 2),
            "suffix8": Acceptance(10, 1),
            "suffix4": Acceptance(4, 1),
            "suffix3": Acceptance(2, 1),
            "suffix2": Acceptance(1, 1),
        }
        self._source = "copy"

    def propose(self, limit: int, cost: CostCurve, rows: int = 0, tokens: int = 0) -> list[int]:
        """At most ``limit`` tokens that may come next, as many as pay; see :func:`vivace.engine.costs.best_width`."""
        self._path = []
        if not self.enabled or limit <= 0:
            return []
        source, start = self._choose()
        if not source:
            return []
        self._source = source
        width = best_width(self._odds(source), limit, cost, rows, tokens, len(self.tokens))
        if not width:
            self._acceptance[source].forget()
            return []
        if start >= 0:
            return self.tokens[start : start + width]
        self._walk(width)
        return [step[0] for step in self._path]

    def observe(self, new: Sequence[int], drafted: int, agreed: int) -> None:
        """Learn the tokens that were emitted after the last proposal, oldest first."""
        if drafted:
            self._acceptance[self._source].learn(drafted, agreed)
        if not self.reference:
            return
        for index, token in enumerate(new):
            if index < len(self._path) and not self._ahead:
                expected, after, replacement, start = self._path[index]
                if token == expected:
                    self._copied(token, after)
                    if replacement is not None and after > start:
                        replacement.learn(self._before(start), made=True)
                    continue
                if replacement is not None:
                    replacement.learn(self._before(start), made=False)
                self._path = []
            self._follow(token)

    def _choose(self) -> tuple[str, int]:
        """The source that promises most, and where it starts in ``tokens`` (-1: the reference). "" for none."""
        source = ""
        if self.cursor < len(self.reference) or self._ahead:
            source = "copy" if self._run >= SYNCED else "ahead" if self._ahead else f"resync{self._run}"
            if self._run == 1 and abs(self.cursor - self._anchor) > NEAR:
                source = "far"
            if source == "copy":
                return source, -1
        start, length = self._suffix.continuation()
        if start < 0:
            return source, -1
        other = next(name for least, name in SUFFIXES if length >= least)
        if source and self._odds(source) >= self._odds(other):
            return source, -1
        return other, start

    def _odds(self, source: str) -> float:
        return self._acceptance[source].probability

    def _walk(self, width: int) -> None:
        """The next ``width`` tokens of the reference with the learned replacements made."""
        place = self.cursor
        self._path = [(token, place, None, place) for token in self._ahead]
        if not self._path and not self._run and place == self._anchor and place < len(self.reference):
            # Something was put in; a token that was split by that before ends as it did then.
            ending = self._endings.get(self.reference[place])
            if ending is not None:
                place += 1
                self._path = [(ending, place, None, place)]
        while len(self._path) < width and place < len(self.reference):
            token = self.reference[place]
            known = self._renames.get(token)
            # Right after a surprise the plain text is proposed: the replacement has just been made or refused.
            if known and self._run and self._stands_at(known.old, place) and known.likely(self._before(place)):
                after = place + len(known.old)
                # Inside a replacement the cursor stays in front of it.
                self._path += [(mapped, place, known, place) for mapped in known.new[:-1]]
                self._path.append((known.new[-1], after, known, place))
                place = after
            else:
                place += 1
                self._path.append((token, place, None, place))
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
        known = self._hunks.get(new[0])
        if known is None or (known.old, known.new) != (old, new):
            known = self._hunks[new[0]] = Replacement(old, new)
        known.learn(self._before(self._anchor), made=True)
        if len(new) > 1 and old and old[-1] != new[-1]:
            self._endings[old[-1]] = new[-1]
        if old and old[0] != new[0]:
            self._renames[old[0]] = known

    def _follow(self, token: int) -> None:
        if self._ahead:
            if token == self._ahead[0]:
                self._tail.append(self._ahead.pop(0))
                return
            if self._hunk is not None:
                self._hunk.learn(self._before(self._hunk_at), made=False)
            self._ahead, self._path = [], []
        if self.cursor < len(self.reference) and self.reference[self.cursor] == token:
            self._copied(token, self.cursor + 1)
            return
        if not self._tail:
            # A place of long agreement is where the output comes back to after text that was moved.
            self._home = self._anchor if abs(self.cursor - self._anchor) < FAR else self.cursor
            self._anchor = self.cursor
        self._tail.append(token)
        before, agreed = self.cursor, self._run
        self.cursor, self._run = self._resume(token)
        known = self._hunks.get(token)
        fresh = (agreed or len(self._tail) == 1) and self._run <= 1
        if known and fresh and self._goes_on(known, before):
            self._hunk, self._hunk_at = known, before
            self._ahead = known.new[1:]
            self.cursor, self._run = before + len(known.old), 0

    def _goes_on(self, known: Replacement, place: int) -> bool:
        """Whether a replacement whose first token was just written at ``place`` probably goes on as it did before."""
        return len(known.new) > 1 and self._stands_at(known.old, place) and not known.refused(self._before(place))

    def _stands_at(self, old: list[int], place: int) -> bool:
        return self.reference[place : place + len(old)] == old

    def _before(self, place: int) -> int:
        return self.reference[place - 1] if 0 < place <= len(self.reference) else -1

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

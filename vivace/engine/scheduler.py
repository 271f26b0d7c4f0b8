"""Which rows enter the next pass, and what its results mean.

Every sequence is in one of two lists: *waiting* (holds no memory) or *running*. A running sequence has pending tokens:
a slice of its prompt, or the last token that it emitted. When the pending tokens fit into the pass, a draft follows
them in the same pass, so that the end of a prompt and the first draft are one step.

Requests with the same prompt and reference are *twins*: one leads, the others follow without rows or memory of their
own and choose from the same results, until they choose differently.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from vivace.engine.costs import CostCurve
from vivace.engine.kv import BLOCK
from vivace.engine.memory import Memory
from vivace.engine.messages import Finish, FinishReason, Progress
from vivace.engine.runner import Rows, Span
from vivace.engine.sequence import Sequence, choices_of


@dataclass(frozen=True)
class Limits:
    """Rows per pass. A prompt's slice is smaller while somebody decodes, so that nobody waits for long."""

    slice_alone: int = 256
    slice_beside: int = 64
    background: int = 48
    """Rows of a pass that has nobody but the background in it (priority below 0), while somebody may come at any
    moment: who comes waits for the pass that is on its way."""
    attended: float = 30.0
    """Seconds after the last request of another priority in which somebody may."""
    alone: float = 2.0
    """Seconds for which the background stands still beside a prompt that has just come: its tokens would have to be
    handled, too, by the processors that read the prompt."""
    draft: int = 127
    running: int = 64
    patience: float = 1.1
    """How much longer a pass may take by rows of a lower priority."""

    @property
    def most_rows(self) -> int:
        """No pass has more rows than this."""
        return max(self.slice_alone, self.slice_beside) + self.draft + self.running


@dataclass
class Planned:
    """A sequence's part of a pass: its span, the prompt slice in it and the draft after that."""

    sequence: Sequence
    span: Span
    pending: int
    draft: list[int]


class Scheduler:
    """Holds every sequence from its arrival to its end."""

    def __init__(self, memory: Memory, limits: Limits, cost: CostCurve) -> None:
        self.memory = memory
        self.limits = limits
        self.cost = cost
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self._passes = 0
        self._attended = 0.0

    def add(self, sequence: Sequence) -> Finish | None:
        """Queue a sequence; a :class:`Finish` back means that it can never run."""
        if not sequence.tokens:
            return sequence.finish("error", "The prompt is empty.")
        if len(sequence.tokens) >= sequence.window:
            return sequence.finish("error", f"The prompt has {len(sequence.tokens)} tokens; {sequence.window} fit.")
        if len(sequence.tokens) >= self.memory.positions:
            return sequence.finish("error", f"KV memory holds {self.memory.positions} positions.")
        self.waiting.append(sequence)
        if sequence.request.priority >= 0:
            self._attended = time.monotonic()
        return None

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do until a message comes, a grammar is ready or somebody's time is over."""
        return not self.running and not any(s.ready or s.problem or s.aborted for s in self.waiting)

    def find(self, request_id: int) -> Sequence | None:
        return next((s for s in self.running + self.waiting if s.request.id == request_id), None)

    def plan(self) -> list[Planned]:
        """The next pass: every decoding sequence, then prompt slices, by priority and while rows are left."""
        self._admit()
        self._passes += 1
        planned: list[Planned] = []
        above, below = self._ranks()
        slice_rows = self.limits.slice_beside if any(s.missing == 1 for s in above) else self.limits.slice_alone
        draft_rows = self.limits.draft
        if above and above[0].request.priority < 0 and time.monotonic() - self._attended < self.limits.attended:
            slice_rows, draft_rows = min(slice_rows, self.limits.background), self.limits.background
        rows = self._fill(above, slice_rows, draft_rows, self.limits.most_rows, planned)
        if any(s.missing > 1 and time.monotonic() - s.arrived < self.limits.alone for s in above):
            below = [s for s in below if s.request.priority >= 0]
        if below:
            # Those below get what costs those above little time, the longest unserved first, and the background least.
            patience = self.limits.patience if any(s.request.priority >= 0 for s in below) else 1.0
            spare = max(1, min(self.cost.affordable(rows, patience), self.limits.most_rows - rows))
            below.sort(key=lambda s: (-s.request.priority, s.served))
            self._fill(below, spare, spare, spare, planned)
        return planned

    def settle(self, planned: list[Planned], results: list[Rows]) -> list[Progress]:
        """Take a pass's results in, and end what has ended."""
        progress: list[Progress] = []
        for part, rows in zip(planned, results, strict=True):
            leader = part.sequence
            if not part.span.outputs:
                leader.computed += part.pending
                self.memory.register(leader)
                if not leader.missing:
                    progress.append(self._end(leader, "stop"))  # Its prompt was all that was wanted.
                continue
            choices = choices_of(rows)
            reasons = [(s, s.verify(part.draft, choices)) for s in (leader, *leader.followers)]
            self.memory.register(leader)
            for follower, reason in reasons[1:]:
                if reason is not None or reasons[0][1] is not None or follower.fresh != leader.fresh:
                    self._part(follower, needs_memory=reason is None)
            for sequence, reason in reasons:
                if reason is not None:
                    progress.append(self._end(sequence, reason))
                else:
                    progress.append(Progress(sequence.request.id, sequence.fresh))
                    sequence.fresh = []
        return progress

    def sweep(self) -> list[Progress]:
        """End what was aborted, has run out of time or has no grammar to run in, running or waiting."""
        now = time.monotonic()
        return [
            self._end(sequence, "aborted" if sequence.aborted else "error" if sequence.problem else "time")
            for sequence in self.running + self.waiting
            if sequence.aborted or sequence.problem or sequence.expired(now)
        ]

    def _admit(self) -> None:
        for sequence in sorted((s for s in self.waiting if s.ready), key=_rank):
            if len(self.running) >= self.limits.running:
                return
            twin = next((other for other in self.running if other.is_twin(sequence)), None)
            if twin is not None:
                sequence.leader = twin
                twin.followers.append(sequence)
                sequence.cached = len(sequence.tokens) - 1
            elif self._somebody_computes_its_prefix(sequence):
                continue
            elif self.running and not self.memory.has_room_for(sequence.tokens):
                return
            else:
                self.memory.begin(sequence)
                if not sequence.steps:
                    sequence.cached = sequence.computed
            self.waiting.remove(sequence)
            self.running.append(sequence)

    def _somebody_computes_its_prefix(self, sequence: Sequence) -> bool:
        """Whether waiting spares work: a running prompt shares more with this one than memory holds already."""
        known = self.memory.holds(sequence.tokens)
        for other in self.running:
            if other.leader is None and other.computed < len(other.tokens) - 1:
                shared = _common_prefix(sequence.tokens, other.tokens) // BLOCK * BLOCK
                if shared > known and shared > other.computed // BLOCK * BLOCK:
                    return True
        return False

    def _ranks(self) -> tuple[list[Sequence], list[Sequence]]:
        """Who has a claim on the pass, decoding sequences first, and who must not lengthen it.

        A sequence is below when there is one of a higher priority, whether that decodes or reads its prompt.
        """
        leaders = [s for s in self.running if s.leader is None]
        top = max((s.request.priority for s in leaders), default=0)
        above = [s for s in leaders if s.request.priority == top]
        above.sort(key=lambda s: (s.missing > 1, *_rank(s)))
        return above, [s for s in leaders if s.request.priority < top]

    def _fill(
        self, sequences: list[Sequence], slice_rows: int, draft_rows: int, limit: int, planned: list[Planned]
    ) -> int:
        """Add sequences to a pass: at most ``limit`` rows, of which so many of prompts and of drafts.

        Returns the rows that were added. Drafts share theirs evenly; what one leaves goes to those after it.
        """
        counts: list[tuple[Sequence, int]] = []
        for sequence in sequences:
            count = min(limit, 1 if sequence.missing == 1 else min(sequence.missing, slice_rows))
            if count > 0:
                counts.append((sequence, count))
                slice_rows -= count if sequence.missing > 1 else 0
                limit -= count
        rows = sum(count for _, count in counts)
        decoding = sum(sequence.missing == 1 for sequence, _ in counts)
        draft_rows = min(draft_rows, limit)
        for index, (sequence, count) in enumerate(counts):
            sequence.served = self._passes
            share = draft_rows // (len(counts) - index)
            drafted = self._place(sequence, count, share, planned, rows - count, decoding - (count == 1))
            draft_rows -= drafted
            rows += drafted
        return rows

    def _place(
        self, sequence: Sequence, pending: int, draft_limit: int, planned: list[Planned], rows: int, tokens: int
    ) -> int:
        """Add a sequence to the pass, making room in KV memory for its rows; returns the length of its draft.

        ``rows`` of others are in the pass too and yield ``tokens``.
        """
        if sequence not in self.running:
            return 0  # gave way to somebody of a higher rank in this very pass
        last = pending == sequence.missing
        limit = min(draft_limit, sequence.room - 1)
        draft = sequence.propose(limit, self.cost, rows + pending - 1, tokens) if last else []
        if not self.memory.grow(sequence, sequence.computed + pending + len(draft)):
            draft = []
            if not self._make_room(sequence, sequence.computed + pending, planned):
                return 0
        start = sequence.computed
        together = (sequence, *sequence.followers)
        temperatures = [max(0.0, s.request.sampling.temperature) for s in together]
        span = Span(
            tokens=sequence.tokens[start : start + pending] + draft,
            start=start,
            blocks=sequence.blocks,
            outputs=len(draft) + 1 if last and not sequence.request.prefill_only else 0,
            logits=any(s.wants_logits for s in together),
            # Followers with another one fetch logits.
            temperature=max(temperatures, key=temperatures.count) or max(temperatures),
        )
        planned.append(Planned(sequence, span, pending, draft))
        return len(draft)

    def _make_room(self, sequence: Sequence, length: int, planned: list[Planned]) -> bool:
        """Give a sequence room for ``length`` positions; while there is none, the lowest in rank steps back."""
        while not self.memory.grow(sequence, length):
            placed = {id(part.sequence) for part in planned}
            others = [s for s in self.running if s is not sequence and id(s) not in placed and s.blocks]
            victim = max(others, key=_rank, default=None)
            if victim is None or _rank(victim) < _rank(sequence):
                self._step_back(sequence)
                return False
            self._step_back(victim)
        return True

    def _step_back(self, sequence: Sequence) -> None:
        """Free a sequence's memory and let it and its followers wait; they go on from what is still cached."""
        for member in (sequence, *sequence.followers):
            member.leader = None
            self.memory.free(member)
            self.running.remove(member)
            self.waiting.append(member)
        sequence.followers.clear()

    def _part(self, follower: Sequence, needs_memory: bool) -> None:
        """From here on a follower goes its own way."""
        leader, follower.leader = follower.leader, None
        if leader is None:
            return
        leader.followers.remove(follower)
        if not needs_memory:
            follower.computed = 0
        elif follower.steps:
            self.memory.part(leader, follower)
        else:
            # Nothing was decided yet: it starts anew and finds what the leader has computed.
            self.running.remove(follower)
            self.waiting.append(follower)

    def _end(self, sequence: Sequence, reason: FinishReason) -> Progress:
        for follower in list(sequence.followers):
            self._part(follower, needs_memory=True)
        if sequence.leader is not None:
            self._part(sequence, needs_memory=False)
        self.memory.free(sequence)
        (self.running if sequence in self.running else self.waiting).remove(sequence)
        return Progress(sequence.request.id, sequence.fresh, sequence.finish(reason))


def _rank(sequence: Sequence) -> tuple[int, float, int]:
    """Order of service: higher priority first, then who came first."""
    return -sequence.request.priority, sequence.arrived, sequence.request.id


def _common_prefix(a: list[int], b: list[int]) -> int:
    length = 0
    for mine, theirs in zip(a, b, strict=False):
        if mine != theirs:
            break
        length += 1
    return length

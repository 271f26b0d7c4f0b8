"""Which rows enter the next pass, and what its results mean.

Every sequence is in one of two lists: *waiting* (holds no memory) or *running*. A running sequence has pending tokens:
a slice of its prompt, or the last token that it emitted. When the pending tokens fit into the pass, a draft follows
them in the same pass, so that the end of a prompt and the first draft are one step.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from vivace.engine.costs import CostCurve
from vivace.engine.kv import BLOCK, BlockTable, OutOfBlocks
from vivace.engine.messages import Finish, FinishReason, Progress
from vivace.engine.runner import Rows, Span
from vivace.engine.sequence import Sequence


@dataclass(frozen=True)
class Limits:
    """Rows per pass. A prompt's slice is smaller while somebody decodes, so that nobody waits for long."""

    slice_alone: int = 256
    slice_beside: int = 128
    draft: int = 127
    running: int = 64

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
    def __init__(self, blocks: BlockTable, limits: Limits, cost: CostCurve) -> None:
        self.blocks = blocks
        self.limits = limits
        self.cost = cost
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []

    def add(self, sequence: Sequence) -> Finish | None:
        """Queue a sequence; a :class:`Finish` back means that it can never run."""
        if not sequence.tokens:
            return sequence.finish("error", "The prompt is empty.")
        if len(sequence.tokens) >= sequence.window:
            return sequence.finish("error", f"The prompt has {len(sequence.tokens)} tokens; {sequence.window} fit.")
        if _blocks_for(len(sequence.tokens) + 1) > self.blocks.count:
            return sequence.finish("error", f"KV memory holds {self.blocks.count * BLOCK} positions.")
        self.waiting.append(sequence)
        return None

    def find(self, request_id: int) -> Sequence | None:
        return next((s for s in self.running + self.waiting if s.request.id == request_id), None)

    def plan(self) -> list[Planned]:
        """The next pass: every decoding sequence, then prompt slices by priority while rows are left."""
        self._admit()
        by_priority = sorted(self.running, key=_rank)
        decoding = [s for s in by_priority if len(s.tokens) - s.computed == 1]
        prefilling = [s for s in by_priority if len(s.tokens) - s.computed > 1]
        slice_rows = self.limits.slice_beside if decoding else self.limits.slice_alone
        pending: list[tuple[Sequence, int]] = [(sequence, 1) for sequence in decoding]
        for sequence in prefilling:
            if slice_rows > 0:
                pending.append((sequence, min(slice_rows, len(sequence.tokens) - sequence.computed)))
                slice_rows -= pending[-1][1]
        planned: list[Planned] = []
        rows = sum(count for _, count in pending)
        drafts = self.limits.draft
        for index, (sequence, count) in enumerate(pending):
            # Drafts share their rows evenly; what one leaves goes to those after it.
            share = drafts // (len(pending) - index)
            drafted = self._place(sequence, count, share, planned, rows - count, len(decoding) - (count == 1))
            drafts -= drafted
            rows += drafted
        return planned

    def settle(self, planned: list[Planned], results: list[Rows]) -> list[Progress]:
        """Take a pass's results in, and end what has ended."""
        progress: list[Progress] = []
        for part, rows in zip(planned, results, strict=True):
            sequence = part.sequence
            reason: FinishReason | None = None
            if part.span.outputs:
                reason = sequence.verify(part.draft, rows)
            else:
                sequence.computed += part.pending
            self._register(sequence)
            if reason is not None:
                progress.append(self._end(sequence, reason))
            elif sequence.fresh:
                progress.append(Progress(sequence.request.id, sequence.fresh))
                sequence.fresh = []
        return progress

    def sweep(self) -> list[Progress]:
        """End what was aborted or has run out of time, running or waiting."""
        now = time.monotonic()
        return [
            self._end(sequence, "aborted" if sequence.aborted else "time")
            for sequence in self.running + self.waiting
            if sequence.aborted or sequence.expired(now)
        ]

    def _admit(self) -> None:
        for sequence in sorted(self.waiting, key=_rank):
            if len(self.running) >= self.limits.running:
                return
            if self._somebody_computes_its_prefix(sequence):
                continue
            # Room for the prompt and a first draft; what is still to come is met by taking turns, see _place.
            if _blocks_for(len(sequence.tokens)) + 2 > self.blocks.available and self.running:
                return
            # The last prompt token is always computed: its row gives the first output.
            sequence.blocks = self.blocks.match(sequence.tokens[:-1])
            sequence.computed = len(sequence.blocks) * BLOCK
            sequence.registered = len(sequence.blocks)
            if not sequence.steps:
                sequence.cached = sequence.computed
            self.waiting.remove(sequence)
            self.running.append(sequence)

    def _somebody_computes_its_prefix(self, sequence: Sequence) -> bool:
        """Whether waiting spares work: a running prompt shares more with this one than memory holds already."""
        known = self.blocks.peek(sequence.tokens[:-1])
        for other in self.running:
            if other.computed >= len(other.tokens) - 1:
                continue
            shared = _common_prefix(sequence.tokens, other.tokens) // BLOCK * BLOCK
            if shared > known and shared > other.computed // BLOCK * BLOCK:
                return True
        return False

    def _place(
        self, sequence: Sequence, pending: int, draft_limit: int, planned: list[Planned], rows: int, tokens: int
    ) -> int:
        """Add a sequence to the pass, making room in KV memory for its rows; returns the length of its draft.

        ``rows`` of others are in the pass too and yield ``tokens``.
        """
        if sequence not in self.running:
            return 0  # gave way to somebody of a higher rank in this very pass
        last = sequence.computed + pending == len(sequence.tokens)
        limit = min(draft_limit, sequence.room - 1)
        draft = sequence.drafter.propose(limit, self.cost, rows + pending - 1, tokens) if last else []
        if not self._make_room(sequence, sequence.computed + pending + len(draft), planned):
            draft = []
            if not self._make_room(sequence, sequence.computed + pending, planned, give_way=True):
                return 0
        start = sequence.computed
        span = Span(
            tokens=sequence.tokens[start : start + pending] + draft,
            start=start,
            blocks=sequence.blocks,
            outputs=len(draft) + 1 if last else 0,
            logits=sequence.wants_logits,
        )
        planned.append(Planned(sequence, span, pending, draft))
        return len(draft)

    def _make_room(self, sequence: Sequence, length: int, planned: list[Planned], give_way: bool = False) -> bool:
        """Give ``sequence`` blocks for ``length`` positions; with ``give_way`` the lowest in rank steps back for it."""
        while len(sequence.blocks) * BLOCK < length:
            try:
                sequence.blocks.append(self.blocks.take())
            except OutOfBlocks:
                if not give_way:
                    return False
                placed = {id(part.sequence) for part in planned}
                others = [s for s in self.running if s is not sequence and id(s) not in placed and s.blocks]
                victim = max(others, key=_rank, default=None)
                if victim is None or _rank(victim) < _rank(sequence):
                    self._step_back(sequence)
                    return False
                self._step_back(victim)
        return True

    def _step_back(self, sequence: Sequence) -> None:
        """Free a sequence's memory and let it wait; its tokens are computed again from what is still cached."""
        self.blocks.release(sequence.blocks)
        sequence.blocks = []
        sequence.computed = sequence.registered = 0
        self.running.remove(sequence)
        self.waiting.append(sequence)

    def _register(self, sequence: Sequence) -> None:
        for index in range(sequence.registered, sequence.computed // BLOCK):
            tokens = sequence.tokens[index * BLOCK : (index + 1) * BLOCK]
            self.blocks.register(sequence.blocks, index, tokens)
        sequence.registered = sequence.computed // BLOCK

    def _end(self, sequence: Sequence, reason: FinishReason) -> Progress:
        self.blocks.release(sequence.blocks)
        sequence.blocks = []
        (self.running if sequence in self.running else self.waiting).remove(sequence)
        return Progress(sequence.request.id, sequence.fresh, sequence.finish(reason))


def _rank(sequence: Sequence) -> tuple[int, float, int]:
    """Order of service: higher priority first, then who came first."""
    return -sequence.request.priority, sequence.arrived, sequence.request.id


def _blocks_for(positions: int) -> int:
    return -(-positions // BLOCK)


def _common_prefix(a: list[int], b: list[int]) -> int:
    length = 0
    for mine, theirs in zip(a, b, strict=False):
        if mine != theirs:
            break
        length += 1
    return length

"""One running request: its tokens, its place in KV memory, its draft, its limits."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from vivace.engine.constraint import Constraint, GrammarError
from vivace.engine.costs import CostCurve
from vivace.engine.drafter import Drafter
from vivace.engine.messages import Finish, FinishReason, Start
from vivace.engine.runner import Likeliest, Rows
from vivace.engine.sampler import LikelyRows, LogitRows

Choices = LogitRows | LikelyRows | NDArray[np.int32]
"""What a pass says about some rows: ids that were chosen, the likeliest ones, or logits."""

SLOW = 0.02
"""Seconds after which the rest of a draft is left unread: a grammar's mask may take milliseconds a row."""

TokenBytes = Callable[[int], bytes]


@dataclass
class Sequence:
    """Prompt and output so far in ``tokens``; KV of the first ``computed`` of them lies in ``blocks``."""

    request: Start
    end_tokens: frozenset[int]
    window: int
    token_bytes: TokenBytes
    constraint: Constraint | None = None
    arrived: float = field(default_factory=time.monotonic)
    tokens: list[int] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)
    computed: int = 0
    registered: int = 0
    """Blocks whose tokens were made known to the block table."""
    cached: int = 0
    drafted: int = 0
    accepted: int = 0
    steps: int = 0
    aborted: bool = False
    leader: Sequence | None = None
    """The twin whose rows serve this sequence too, while both have the same tokens."""
    followers: list[Sequence] = field(default_factory=list)
    served: int = 0
    """The last pass that this sequence was in."""
    trim: int = 0
    fresh: list[int] = field(default_factory=list)
    """Output tokens that were not sent yet."""

    def __post_init__(self) -> None:
        self.tokens = list(self.request.tokens)
        self.drafter = Drafter(self.tokens, self.request.reference, enabled=self.request.draft)
        self._seen = set(self.tokens) if self.request.sampling.repetition_penalty != 1.0 else set()
        self._forced = False
        """Whether the last draft is the grammar's and says nothing about the drafter."""
        self._tail = b""
        self._longest_stop = max(map(len, self.request.stop), default=0)

    @property
    def prompt_length(self) -> int:
        return len(self.request.tokens)

    @property
    def output_length(self) -> int:
        return len(self.tokens) - self.prompt_length

    @property
    def room(self) -> int:
        """Output tokens that the limits still allow."""
        room = self.window - len(self.tokens)
        if self.request.max_tokens:
            room = min(room, self.request.max_tokens - self.output_length)
        return room

    @property
    def missing(self) -> int:
        """Tokens whose KV is still to be computed: 1 while decoding."""
        return len(self.tokens) - self.computed

    def is_twin(self, other: Sequence) -> bool:
        """Whether ``other`` may follow this running sequence: nothing was put out yet, and all that decides a draft is
        equal."""
        mine, theirs = self.request, other.request
        return (
            self.leader is None
            and not (self.steps or other.steps or self.aborted)
            and not (mine.prefill_only or theirs.prefill_only)
            and mine.grammar == theirs.grammar
            and mine.draft == theirs.draft
            and mine.priority == theirs.priority
            and mine.tokens == theirs.tokens
            and mine.reference == theirs.reference
        )

    @property
    def wants_logits(self) -> bool:
        """Whether the likeliest token and its probability are seldom enough."""
        return self.constraint is not None or self.request.sampling.repetition_penalty != 1.0

    @property
    def ready(self) -> bool:
        """Whether it may run: its grammar, if it has one, is compiled."""
        return self.constraint is None or self.constraint.ready

    @property
    def problem(self) -> str:
        """Why it cannot go on, or nothing."""
        return self.constraint.problem if self.constraint is not None else ""

    def expired(self, now: float) -> bool:
        return self.request.max_seconds > 0 and now - self.arrived >= self.request.max_seconds

    def propose(self, limit: int, cost: CostCurve, rows: int, tokens: int) -> list[int]:
        """A draft as of :meth:`Drafter.propose`, within the grammar; where that leaves no choice, what it forces."""
        if self.request.prefill_only:
            return []
        draft = self.drafter.propose(limit, cost, rows, tokens)
        self._forced = False
        if self.constraint is None or not self.request.draft or limit <= 0:
            return draft
        allowed = self.constraint.draft(draft, limit)
        self._forced = allowed != draft[: len(allowed)]
        return allowed

    def verify(self, draft: list[int], rows: Choices) -> FinishReason | None:
        """Accept what the model itself chose, in order, up to its first disagreement with the draft.

        ``rows`` has ``len(draft) + 1`` rows: the chosen ids, or logits to choose from. Returns why the sequence ended,
        if it did.
        """
        before = len(self.tokens)
        reason: FinishReason | None = None
        started = time.perf_counter()
        for index in range(len(draft) + 1):
            try:
                token = self._choose(rows, index)
                reason = self._append(token)
            except GrammarError:
                reason = "error"
                break
            if reason is not None or index == len(draft) or token != draft[index]:
                break
            if self.constraint is not None and time.perf_counter() - started > SLOW:
                break
        new = self.tokens[before:]
        agreed = sum(1 for mine, drafted in zip(new, draft, strict=False) if mine == drafted)
        self.steps += 1
        self.drafted += len(draft)
        self.accepted += agreed
        self.computed = len(self.tokens) - 1
        self.fresh += new
        self.drafter.observe(new, 0 if self._forced else len(draft), agreed)
        return reason

    def finish(self, reason: FinishReason, message: str = "") -> Finish:
        return Finish(
            reason=reason,
            prompt_tokens=self.prompt_length,
            cached_tokens=self.cached,
            output_tokens=self.output_length,
            drafted=self.drafted,
            accepted=self.accepted,
            steps=self.steps,
            trim=self.trim,
            message=message or self.problem,
        )

    def _choose(self, rows: Choices, index: int) -> int:
        if self.constraint is not None:
            assert isinstance(rows, LogitRows)
            return self.constraint.choose(rows, index, self.request.sampling, len(self.tokens), self._seen)
        if isinstance(rows, LogitRows | LikelyRows):
            return rows.choose(index, self.request.sampling, len(self.tokens), self._seen)
        return int(rows[index])

    def _append(self, token: int) -> FinishReason | None:
        complete = self.constraint is not None and self.constraint.accept(token)
        self.tokens.append(token)
        if self.request.sampling.repetition_penalty != 1.0:
            self._seen.add(token)
        if token in self.end_tokens:
            return "stop"
        if self._longest_stop and self._meets_stop(token):
            return "stop"
        if complete:
            return "stop"
        if self.room <= 0:
            return "length" if len(self.tokens) < self.window else "window"
        return None

    def _meets_stop(self, token: int) -> bool:
        self._tail += self.token_bytes(token)
        places = [place for stop in self.request.stop if (place := self._tail.find(stop)) >= 0]
        if places:
            self.trim = len(self._tail) - min(places)
            return True
        self._tail = self._tail[-(self._longest_stop - 1) :] if self._longest_stop > 1 else b""
        return False


def choices_of(rows: Rows) -> Choices:
    """A runner's rows as what :meth:`Sequence.verify` takes."""
    if isinstance(rows, Likeliest):
        return LikelyRows(rows)
    if rows.dtype == np.float32:
        return LogitRows(rows.astype(np.float32, copy=False))
    return rows.astype(np.int32, copy=False)

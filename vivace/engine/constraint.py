"""What a grammar lets a sequence write next, and the thread that makes grammars ready.

A row's choice is the token that the model finds likeliest (or draws) among those that the grammar allows. Three cases,
the cheapest first:

1. The grammar forces the next token: it is taken, whatever the logits say. Forced text comes in the tokens that the
   model would write it in.
2. The model's own choice is allowed: it stands. Asking about one token takes microseconds.
3. Else the mask of all tokens is computed, and a choice made among those, with a random number of its own: so drawing
   gives each allowed token t the probability p(t) + (1 - p(allowed)) p(t) / p(allowed) = p(t) / p(allowed), as masking
   at once would.

Each depends on the text so far alone, not on what was drafted or computed together, so that drafting changes speed and
nothing else. A state only goes forward, by accepted tokens; drafts are tried on a copy.
"""

from __future__ import annotations

import re
import threading
import time
import weakref
from collections.abc import Callable
from queue import SimpleQueue

import msgspec
import numpy as np
from numpy.typing import NDArray

from vivace.engine.llg import Limits, Matcher, Tokens
from vivace.engine.messages import Grammar, Sampling
from vivace.engine.sampler import LogitRows
from vivace.engine.spelling import Spelling
from vivace.errors import VivaceError

LIMITS = Limits(
    max_items_in_row=2000,
    initial_lexer_fuel=250_000,
    step_lexer_fuel=200_000,
    step_max_items=50_000,
    max_lexer_states=50_000,
    max_grammar_size=500_000,
    precompute_large_lexemes=True,
    verbose_errors=False,
)
"""llguidance's defaults but for the lexer's fuel (a quarter) and its states (a fifth).

No step takes more than some 50 ms then, which is what a forced constant of 100,000 characters costs. Schemas of 80 kB
with 800 alternatives fit.
"""

LONGEST = 256 * 1024
"""Characters of a grammar."""
MOST_RULES = 4000
"""Rules and terminals. A chain of terminals takes 44 kB of stack each while it is compiled."""
STACK = 256 * 1024 * 1024
"""Of the compiling thread, in bytes; only what is used becomes memory."""
REMEMBERED = 16
"""Compiled grammars that are kept."""
SECOND = 0x5DEECE66D
"""Makes another seed of a seed, for a second draw."""
FORCED = 128
"""Forced tokens that are asked for at once."""
PATIENCE = 0.005
"""Seconds for trying a draft; what does not get its turn is not drafted."""

_RULE = re.compile(r"^[ \t]*[?!]*[\w.]+(\[[^\]\n]*\])?(\{[^}\n]*\})?[ \t]*:", re.MULTILINE)


class GrammarError(VivaceError):
    """A sequence cannot go on in its grammar."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="grammar")


class Constraint:
    """One sequence's place in its grammar. It starts out not :attr:`ready`; :attr:`problem` says why it never is."""

    def __init__(self) -> None:
        self.problem = ""
        self._matcher: Matcher | None = None
        self._forced: list[int] | None = None
        """What must come next, where that is known."""

    @property
    def ready(self) -> bool:
        return self._matcher is not None

    def begin(self, matcher: Matcher) -> None:
        """``matcher`` stands at the start of the text and is this constraint's own."""
        self._matcher = matcher

    def draft(self, proposed: list[int], limit: int) -> list[int]:
        """``proposed`` as far as the grammar allows it, or what is forced, at most ``limit`` tokens of it."""
        forced = self._ask_forced()[:limit]
        tried = self._allowed(proposed, time.perf_counter() + PATIENCE)
        return tried if len(tried) > len(forced) and tried[: len(forced)] == forced else forced or tried

    def choose(self, rows: LogitRows, row: int, sampling: Sampling, position: int, seen: set[int]) -> int:
        """The next token; arguments as of :meth:`LogitRows.choose`. Raises :class:`GrammarError`."""
        forced = self._ask_forced()
        if forced:
            return forced[0]
        own = rows.choose(row, sampling, position, seen)
        if self._state.fitting([own]):
            return own
        allowed = rows.allowed(row, lambda: self._mask(rows.logits.shape[1]))
        return allowed.choose(0, msgspec.structs.replace(sampling, seed=sampling.seed ^ SECOND), position, seen)

    def accept(self, token: int) -> bool:
        """Go on by a chosen token. True when the text is complete. Raises :class:`GrammarError`."""
        if not self._state.consume(token):
            raise self._failed()
        # The rest is still forced; when nothing is left, it is to be asked again.
        self._forced = (self._forced[1:] or None) if self._forced and self._forced[0] == token else None
        if not self._state.stopped:
            return False
        if self._state.error:
            raise self._failed()
        return True

    @property
    def _state(self) -> Matcher:
        assert self._matcher is not None, "a sequence runs before its grammar is compiled"
        return self._matcher

    def _ask_forced(self) -> list[int]:
        if self._forced is None:
            self._forced = self._state.forced(FORCED)
        return self._forced

    def _allowed(self, draft: list[int], deadline: float) -> list[int]:
        if not draft:
            return []
        trial = self._state.clone()
        for count, token in enumerate(draft):
            if not trial.consume(token) or time.perf_counter() > deadline:
                return draft[:count]
        return draft

    def _mask(self, vocab: int) -> NDArray[np.bool_]:
        mask = self._state.mask()
        if mask is None or not mask.any():
            raise self._failed()
        assert mask.size == vocab
        return mask

    def _failed(self) -> GrammarError:
        what = _first_lines(self._state.error) or "nothing that the model can write may come next"
        self.problem = f"The output cannot go on in the grammar: {what}"
        return GrammarError(self.problem)


class Grammars:
    """Compiles grammars in a thread of its own, which is there from the first one on.

    ``spell`` loads the vocabulary, ``size`` is the number of the model's logits.
    """

    def __init__(self, spell: Callable[[], Spelling], size: int) -> None:
        self._spell = spell
        self._size = size
        self._tokens: Tokens | None = None
        self._compiled: dict[str, Matcher | str] = {}
        """The last ones that were used, the newest at the end: a state at the start, or what is wrong."""
        self._asked: SimpleQueue[tuple[Grammar, weakref.ref[Constraint], Callable[[], None]]] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self.seconds = 0.0
        """What loading the vocabulary and making llguidance's tokenizer took."""

    def constrain(self, grammar: Grammar, done: Callable[[], None]) -> Constraint:
        """A place at the start of ``grammar``; ``done`` is called, in another thread, when it is ready or hopeless."""
        constraint = Constraint()
        constraint.problem = _refusal(grammar.text)
        if not constraint.problem:
            if self._thread is None:
                self._thread = _start(self._work)
            # Only whoever waits for it keeps it alive, so that nothing is compiled for sequences that have ended.
            self._asked.put((grammar, weakref.ref(constraint), done))
        return constraint

    def _work(self) -> None:
        while True:
            grammar, reference, done = self._asked.get()
            constraint = reference()
            if constraint is not None:
                found = self._find(grammar.text)
                if isinstance(found, Matcher):
                    constraint.begin(found.clone())
                else:
                    constraint.problem = found
                done()

    def _find(self, text: str) -> Matcher | str:
        found = self._compiled.pop(text, None)
        if found is None:
            try:
                found = self._compile(text)
            except VivaceError as error:
                return error.message
        self._compiled[text] = found
        while len(self._compiled) > REMEMBERED:
            del self._compiled[next(iter(self._compiled))]
        return found

    def _compile(self, text: str) -> Matcher | str:
        if self._tokens is None:
            started = time.perf_counter()
            spelling = self._spell()
            if not spelling.ends:
                raise VivaceError("Grammars need a model with a token that ends an answer; this one names none.")
            self._tokens = Tokens(spelling.marked_bytes(self._size), spelling.ends, spelling.encode)
            spelling.encode("a")  # Its tables are made for the first word, and should not be in the engine's loop.
            self.seconds = time.perf_counter() - started
        matcher = Matcher.of_lark(self._tokens, text, LIMITS)
        if not matcher.error:
            matcher.forced(1)
            matcher.mask()  # What the first step costs most is worked out here rather than in the engine's loop.
        return f"The grammar cannot be used: {_first_lines(matcher.error)}" if matcher.error else matcher


def _refusal(text: str) -> str:
    if len(text) > LONGEST:
        return f"The grammar has {len(text)} characters; {LONGEST} are the most."
    if "\0" in text:
        return f"The grammar has a NUL character at offset {text.index(chr(0))}."
    rules = sum(1 for _ in _RULE.finditer(text))
    if rules > MOST_RULES:
        return f"The grammar has {rules} rules and terminals; {MOST_RULES} are the most."
    return ""


def _first_lines(error: str) -> str:
    """Messages quote the grammar, whose lines may be of any length."""
    lines = [line for line in error.replace("<non-verbose/>", "").splitlines() if line.strip()]
    return "\n".join(line if len(line) <= 300 else line[:300] + " ..." for line in lines[:8])


def _start(work: Callable[[], None]) -> threading.Thread:
    before = threading.stack_size(STACK)
    try:
        thread = threading.Thread(target=work, name="grammars", daemon=True)
        thread.start()
    finally:
        threading.stack_size(before)
    return thread

"""Engines with grammars for tests: a vocabulary of a few words, and a run to the end without a process."""

from __future__ import annotations

from tests.engine.paperrunner import VOCAB, PaperRunner
from vivace.engine import messages as m
from vivace.engine.constraint import Grammars
from vivace.engine.costs import DEFAULT_COSTS, CostCurve
from vivace.engine.kv import BLOCK
from vivace.engine.loop import Engine
from vivace.engine.scheduler import Limits
from vivace.engine.spelling import Spelling
from vivace.models.vocabulary import Vocabulary

LETTERS = [*'abcdefghijklmnop0123456789{}[]":,.\\-', "Ġ", "Ċ"]  # Space and newline in the byte alphabet.
WORDS = ["ab", "abc", "Ġab", "de", "deĠab"]
ADDED = ["<|end|>", "<|start|>", "<call>"]
TEXTS = LETTERS + WORDS + ADDED
END, START, CALL = (TEXTS.index(text) for text in ADDED)

WORDBOOK = Vocabulary(
    pre="gpt-2",
    tokens=TEXTS + [f"[PAD{number}]" for number in range(VOCAB - len(TEXTS))],
    merges=["a", "b", "ab", "c", "Ġ", "ab", "d", "e"],
    control=[END, START],
    user_defined=[CALL],
    unused=list(range(len(TEXTS), VOCAB)),
    ends=[END],
    bos=None,
    add_bos=False,
    chat_template=None,
)


def spelled() -> Spelling:
    return Spelling(WORDBOOK)


def text_of(tokens: list[int]) -> str:
    """What an answer says, without the token that ends it."""
    spelling = spelled()
    return b"".join(spelling.token_bytes(token) for token in tokens if token != END).decode()


class Room:
    """An engine on the paper runner that keeps what it says; its loop runs in the caller's thread."""

    def __init__(
        self,
        blocks: int = 64,
        limits: Limits = Limits(),  # noqa: B008
        grammars: Grammars | None = None,
    ) -> None:
        self.runner = PaperRunner(blocks)
        self.tokens: dict[int, list[int]] = {}
        self.ends: dict[int, m.Finish] = {}
        self._expected = 0
        self.engine = Engine(
            self.runner,
            VOCAB,
            blocks * BLOCK,
            limits,
            CostCurve(DEFAULT_COSTS),
            spelled().token_bytes,
            self.take,
            grammars or Grammars(spelled, VOCAB),
        )

    def take(self, message: m.Up) -> None:
        if isinstance(message, m.Report):
            assert message.kv_blocks_held == 0
            self.engine.deliver(m.Shutdown())
            return
        assert isinstance(message, m.Step)
        for progress in message.progress:
            self.tokens[progress.id] += progress.tokens
            if progress.finish is not None:
                assert progress.id not in self.ends
                self.ends[progress.id] = progress.finish
        if len(self.ends) == self._expected:
            self.engine.deliver(m.Inspect())

    def deliver(self, *requests: m.Start) -> None:
        for request in requests:
            self._expected += 1
            self.tokens[request.id] = []
            self.engine.deliver(request)

    def answer(self, *requests: m.Start) -> dict[int, tuple[list[int], m.Finish]]:
        """Tokens and end of every request by id, all in the engine at once."""
        self.deliver(*requests)
        self.engine.run()
        return {number: (self.tokens[number], self.ends[number]) for number in self.tokens}

"""Which token ids an answer had, for clients that send whole conversations: their own text would be cut otherwise."""

from __future__ import annotations

from array import array
from collections import OrderedDict

from vivace.dialects.chat import Given


class AnswerMemory:
    """The answers used last, by the digest of the conversation that ends with them; bounded by their tokens."""

    def __init__(self, max_tokens: int = 1_000_000) -> None:
        self._max_tokens = max_tokens
        self._tokens = 0
        self._answers: OrderedDict[bytes, Given] = OrderedDict()

    def keep(self, place: bytes, answer: Given) -> None:
        """Keep the answer that ends the conversation ``place``."""
        if (former := self._answers.pop(place, None)) is not None:
            self._tokens -= len(former.tokens)
        self._answers[place] = Given(array("i", answer.tokens), answer.opening)
        self._tokens += len(answer.tokens)
        while self._tokens > self._max_tokens:
            _, oldest = self._answers.popitem(last=False)
            self._tokens -= len(oldest.tokens)

    def recall(self, place: bytes) -> Given | None:
        """The answer that ends this conversation, if it was given here."""
        if place in self._answers:
            self._answers.move_to_end(place)
        return self._answers.get(place)

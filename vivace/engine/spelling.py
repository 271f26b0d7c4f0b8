"""The bytes of tokens and the tokens of short texts, without the tokenizers library.

The library takes a fifth of a second to take a vocabulary in and lets no other thread run meanwhile. The engine needs
the bytes of tokens, for stop strings and grammars, and the tokens of the few words that a grammar forces.
"""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from vivace.engine.llg import SPECIAL
from vivace.models.pretokenizers import WHOLE_WORDS, pre_tokenizer
from vivace.models.tokenizer import _BYTES as BYTES
from vivace.models.vocabulary import Vocabulary

if TYPE_CHECKING:
    from tokenizers.pre_tokenizers import PreTokenizer

LONGEST = 256
"""Characters of a word that are merged together; longer ones (no spaces at all) are cut."""
AHEAD = 1024
"""Characters of a text that are looked at; what a grammar forces further on is asked for again when it is near."""
REMEMBERED = 20_000
"""Words whose tokens are kept."""


class Spelling:
    """One vocabulary. Safe from several threads."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._words: dict[str, list[int]] = {}
        added = (*vocabulary.control, *vocabulary.user_defined)
        self._added = {id: vocabulary.tokens[id].encode() for id in added}
        self._added.update(dict.fromkeys(vocabulary.unused, b""))
        self.ends = vocabulary.ends
        markers = (id for id in vocabulary.user_defined if self._is_marker(id))
        self.special = frozenset((*vocabulary.control, *vocabulary.ends, *markers))
        """Tokens that grammars name and that never stand for text: of control, and markers like ``<tool_call>``."""

    def _is_marker(self, id: int) -> bool:
        name = self._vocabulary.tokens[id]
        return name.startswith("<") and name.endswith(">")

    def token_bytes(self, id: int) -> bytes:
        """As :meth:`vivace.models.tokenizer.Tokenizer.token_bytes`."""
        known = self._added.get(id)
        if known is not None:
            return known
        text = self._vocabulary.tokens[id]
        try:
            return bytes([BYTES[char] for char in text])
        except KeyError:  # Not in the byte alphabet: some converters leave added tokens marked as normal.
            return text.encode()

    def marked_bytes(self, size: int) -> list[bytes]:
        """The bytes of ``size`` tokens as llguidance wants them; those that the vocabulary lacks are empty."""
        count = min(size, len(self._vocabulary.tokens))
        known = [SPECIAL + self.token_bytes(id) if id in self.special else self.token_bytes(id) for id in range(count)]
        return known + [b""] * (size - count)

    def encode(self, text: str) -> list[int]:
        """As :meth:`vivace.models.tokenizer.Tokenizer.encode` of a text that names no added token.

        Of a text longer than :data:`AHEAD` the first words. A character that the model has no token for is left out.
        """
        words = [word for word, _ in self._cut.pre_tokenize_str(text[:AHEAD])]
        if len(text) > AHEAD and len(words) > 1:
            words.pop()  # It may go on behind the cut.
        return [id for word in words for id in self._tokens_of(word)]

    def _tokens_of(self, word: str) -> list[int]:
        known = self._words.get(word)
        if known is None:
            parts = [part for at in range(0, len(word), LONGEST) for part in self._merge(word[at : at + LONGEST])]
            known = [self._ids[part] for part in parts if part in self._ids]
            if len(self._words) < REMEMBERED:
                self._words[word] = known
        return known

    def _merge(self, word: str) -> list[str]:
        """Byte pair encoding: the pair that was merged earliest in training first, the leftmost of equals."""
        if self._vocabulary.pre in WHOLE_WORDS and word in self._ids:
            return [word]
        parts = list(word)
        never = len(self._ranks)
        ranks = [self._ranks.get(f"{a} {b}", never) for a, b in pairwise(parts)]
        while ranks and (rank := min(ranks)) < never:
            at = ranks.index(rank)
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
            del ranks[at]
            for near in (at - 1, at):
                if 0 <= near < len(ranks):
                    ranks[near] = self._ranks.get(f"{parts[near]} {parts[near + 1]}", never)
        return parts

    @cached_property
    def _cut(self) -> PreTokenizer:
        return pre_tokenizer(self._vocabulary.pre)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {token: id for id, token in enumerate(self._vocabulary.tokens) if id not in self._added}

    @cached_property
    def _ranks(self) -> dict[str, int]:
        """Merges by rank. No part has a space in it: in the byte alphabet that is another character."""
        pairs = iter(self._vocabulary.merges)
        ranks: dict[str, int] = {}
        for rank, (left, right) in enumerate(zip(pairs, pairs, strict=True)):
            ranks.setdefault(f"{left} {right}", rank)
        return ranks

"""Text to token ids and back, byte-exact.

Byte-level BPE on the tokenizers library, built from the vocabulary in the model file. Special tokens are this module's
own business: the library would find them in any text, and text from a user must never turn into a control token.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Self

from vivace.errors import VivaceError
from vivace.models.pretokenizers import WHOLE_WORDS, pre_tokenizer
from vivace.models.vocabulary import Vocabulary, load_vocabulary

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library

    from vivace.settings import Settings


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-ins for bytes (``bytes_to_unicode`` in its encoder.py), character to byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in set(printable))
    alphabet.update((chr(0x100 + number), byte) for number, byte in enumerate(others))
    return alphabet


_BYTES = _byte_alphabet()


class Tokenizer:
    """The tokenizer of one model. Encoding is safe from several threads."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._tokens = vocabulary.tokens
        self._library = _build(vocabulary)
        self._unspellable = _bytes_without_token(vocabulary)
        self._bytes: list[bytes | None] = [None] * len(vocabulary.tokens)
        for id in (*vocabulary.control, *vocabulary.user_defined):
            self._bytes[id] = vocabulary.tokens[id].encode()
        for id in vocabulary.unused:
            self._bytes[id] = b""  # Padding of the vocabulary; a model that samples it has said nothing.
        self._added = {vocabulary.tokens[id]: id for id in (*vocabulary.control, *vocabulary.user_defined)}
        self._in_text = _any_of(vocabulary.tokens[id] for id in vocabulary.user_defined)
        self._in_prompt = _any_of(self._added)
        self.vocab_size = len(vocabulary.tokens)
        self.special_ids = frozenset(vocabulary.control)
        self.eos_ids = frozenset(vocabulary.ends)
        self.bos_id = vocabulary.bos
        self.add_bos = vocabulary.add_bos and vocabulary.bos is not None
        self.chat_template = vocabulary.chat_template

    @classmethod
    def load(cls, gguf_path: Path | str, settings: Settings) -> Self:
        """The tokenizer of a GGUF file; its vocabulary is kept under ``cache_dir/tokenizers`` for the next start.

        Raises :class:`VivaceError` where the file is damaged or its tokenizer is of an unsupported kind.
        """
        return cls(load_vocabulary(Path(gguf_path), settings))

    def encode(self, text: str, allow_special: bool = False) -> list[int]:
        """Token ids of ``text``; no BOS is added (see ``add_bos``).

        Control tokens written out in ``text`` stay text unless ``allow_special``, which is for chat templates and never
        for what a user wrote. User-defined tokens (``<tool_call>``) are ordinary vocabulary and found in both, as in
        llama.cpp. Raises :class:`VivaceError`: ``text_not_unicode`` for a lone surrogate, ``text_not_encodable`` for a
        character that the model has no tokens for (small vocabularies lack some control characters).
        """
        pattern = self._in_prompt if allow_special else self._in_text
        try:
            if pattern is None:
                return self._merge(text)
            ids: list[int] = []
            start = 0
            for match in pattern.finditer(text):
                ids += self._merge(text[start : match.start()])
                ids.append(self._added[match.group()])
                start = match.end()
            return ids + self._merge(text[start:])
        except (UnicodeEncodeError, TypeError) as error:
            raise VivaceError(f"The text cannot be encoded: {error}", code="text_not_unicode") from error

    def encode_parts(self, parts: Iterable[tuple[str, bool]]) -> list[int]:
        """Token ids of texts that follow each other; control tokens are found only in those marked True.

        The texts between control tokens are encoded as one, as the model saw them in training: a template's newline
        and the text of a message after it may share a token.
        """
        ids: list[int] = []
        plain: list[str] = []
        for text, allow_special in parts:
            start = 0
            for match in self._in_prompt.finditer(text) if allow_special and self._in_prompt else ():
                plain.append(text[start : match.start()])
                ids += self.encode("".join(plain))
                plain.clear()
                ids.append(self._added[match.group()])
                start = match.end()
            plain.append(text[start:])
        return ids + self.encode("".join(plain))

    def _merge(self, text: str) -> list[int]:
        if self._unspellable:  # The library would drop these bytes from the text without a word.
            data = text.encode()
            for byte in self._unspellable:
                if byte in data:
                    where = len(data[: data.index(byte)].decode(errors="ignore"))
                    raise VivaceError(
                        f"The model has no token for the character {text[where]!a} at offset {where} of the text",
                        hint="Remove it, or use another model.",
                        code="text_not_encodable",
                    )
        return self._library.encode(text, add_special_tokens=False).ids if text else []

    def decode(self, ids: Iterable[int], skip_special: bool = False) -> str:
        """The text of ``ids``; bytes that are not UTF-8 become U+FFFD. ``skip_special`` leaves control tokens out."""
        return self.decode_bytes(ids, skip_special).decode(errors="replace")

    def decode_bytes(self, ids: Iterable[int], skip_special: bool = False) -> bytes:
        """The exact bytes of ``ids``."""
        hidden = self.special_ids if skip_special else frozenset()
        return b"".join(self.token_bytes(id) for id in ids if id not in hidden)

    def token_bytes(self, id: int) -> bytes:
        """The bytes that one token stands for; those of its name for a special token. Raises IndexError if unknown."""
        if id < 0:
            raise IndexError(f"token id {id} is negative")
        known = self._bytes[id]
        if known is None:
            text = self._tokens[id]
            try:
                known = bytes([_BYTES[char] for char in text])
            except KeyError:  # Not in the byte alphabet: some converters leave added tokens marked as normal.
                known = text.encode()
            self._bytes[id] = known
        return known

    def special_id(self, text: str) -> int | None:
        """The id of the control or user-defined token that is written ``text``."""
        return self._added.get(text)


class IncrementalDecoder:
    """Token ids in, text out, as soon as it is certain.

    The deltas joined are what :meth:`Tokenizer.decode` gives for all ids. A code point spread over several tokens
    comes with its last byte; U+FFFD comes when bytes cannot become valid any more, or at :meth:`finish`.
    """

    def __init__(self, tokenizer: Tokenizer, skip_special: bool = False) -> None:
        self._tokenizer = tokenizer
        self._hidden = tokenizer.special_ids if skip_special else frozenset()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, *ids: int) -> str:
        """The text that ``ids`` complete; often empty in the middle of a CJK character or emoji."""
        return self._decoder.decode(b"".join(self._tokenizer.token_bytes(id) for id in ids if id not in self._hidden))

    def finish(self) -> str:
        """U+FFFD for an unfinished code point, else nothing; the decoder then starts afresh."""
        rest = self._decoder.decode(b"", True)
        self._decoder.reset()
        return rest


def _any_of(texts: Iterable[str]) -> re.Pattern[str] | None:
    # Longest first, so that a token which begins another one does not hide it.
    choices = sorted((text for text in texts if text), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, choices))) if choices else None


def _bytes_without_token(vocabulary: Vocabulary) -> list[int]:
    """The bytes that occur in UTF-8 and that this vocabulary cannot spell."""
    known = set(vocabulary.tokens)
    never = {0xC0, 0xC1, *range(0xF5, 0x100)}
    return [byte for char, byte in _BYTES.items() if char not in known and byte not in never]


def _build(vocabulary: Vocabulary) -> Library:
    from tokenizers import Tokenizer as Library
    from tokenizers.models import BPE

    apart = {*vocabulary.control, *vocabulary.user_defined, *vocabulary.unused}
    ids = {token: id for id, token in enumerate(vocabulary.tokens) if id not in apart}
    pairs = iter(vocabulary.merges)
    try:
        model = BPE(ids, list(zip(pairs, pairs, strict=True)), ignore_merges=vocabulary.pre in WHOLE_WORDS)
    except Exception as error:  # The library raises nothing narrower: a merge of tokens that do not exist.
        raise VivaceError(f"The tokenizer in the model file is damaged: {error}", code="model_file_invalid") from error
    library = Library(model)
    library.pre_tokenizer = pre_tokenizer(vocabulary.pre)
    return library

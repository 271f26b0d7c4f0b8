"""llguidance through its C interface (parser/llguidance.h in its repository), which every wheel of it exports.

Not through its Python classes: making their tokenizer holds the interpreter's lock for half a second with a vocabulary
of 152,000 tokens, and for so long no other sequence would decode and no stop be seen. Here every call lets go of it.
"""

from __future__ import annotations

import ctypes as c
import itertools
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from vivace.errors import VivaceError

Encode = Callable[[str], list[int]]

SPECIAL = b"\xff"
"""Begins the bytes of a token that never stands for text (``TokTrie::SPECIAL_TOKEN_MARKER``)."""

_TOKENIZE = c.CFUNCTYPE(c.c_size_t, c.c_void_p, c.POINTER(c.c_ubyte), c.c_size_t, c.POINTER(c.c_uint32), c.c_size_t)


class Limits(c.Structure):
    """``LlgParserLimits``. All fields are to be given: 0 allows nothing."""

    _fields_ = (
        ("max_items_in_row", c.c_size_t),
        ("initial_lexer_fuel", c.c_uint64),
        ("step_lexer_fuel", c.c_uint64),
        ("step_max_items", c.c_size_t),
        ("max_lexer_states", c.c_size_t),
        ("max_grammar_size", c.c_size_t),
        ("precompute_large_lexemes", c.c_bool),
        ("verbose_errors", c.c_bool),
    )


class _MatcherInit(c.Structure):
    """``LlgConstraintInit``."""

    _fields_ = (
        ("tokenizer", c.c_void_p),
        ("log_buffer_level", c.c_uint32),
        ("log_stderr_level", c.c_uint32),
        ("ff_tokens_ok", c.c_bool),
        ("backtrack_ok", c.c_bool),
        ("limits", Limits),
        ("later", c.c_uint64 * 16),  # Fields of later versions, which the header asks to be zero.
    )


class _TokenizerInit(c.Structure):
    """``LlgTokenizerInitV2``."""

    _fields_ = (
        ("struct_size", c.c_size_t),
        ("vocab_size", c.c_uint32),
        ("tok_eos", c.c_uint32),
        ("token_lens", c.c_void_p),
        ("token_bytes", c.c_char_p),
        ("tokenizer_json", c.c_char_p),
        ("tokenize_assumes_string", c.c_bool),
        ("tokenize_fn", _TOKENIZE),
        ("use_approximate_greedy_tokenize_fn", c.c_bool),
        ("tokenize_user_data", c.c_void_p),
        ("slices", c.POINTER(c.c_char_p)),
        ("tok_eos_extra", c.c_void_p),
        ("tok_eos_extra_count", c.c_uint32),
    )


@cache
def library() -> c.CDLL:
    """llguidance's library with the functions used here declared. Raises :class:`VivaceError` where it lacks them."""
    found = find_spec("llguidance._lib")
    try:
        if found is None or found.origin is None:
            raise OSError("the package is not installed")
        loaded = c.CDLL(found.origin)
        for name, (result, *arguments) in _FUNCTIONS.items():
            function = getattr(loaded, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError, ImportError) as error:
        raise VivaceError(
            f"Grammars need llguidance 1.9 or later: {error}",
            hint="Install it: pip install 'llguidance>=1.9'.",
            code="no_grammars",
        ) from error
    return loaded


_FUNCTIONS: dict[str, tuple[object, ...]] = {
    "llg_new_tokenizer_v2": (c.c_void_p, c.POINTER(_TokenizerInit), c.c_char_p, c.c_size_t),
    "llg_free_tokenizer": (None, c.c_void_p),
    "llg_new_matcher": (c.c_void_p, c.POINTER(_MatcherInit), c.c_char_p, c.c_char_p),
    "llg_clone_matcher": (c.c_void_p, c.c_void_p),
    "llg_free_matcher": (None, c.c_void_p),
    "llg_matcher_get_error": (c.c_char_p, c.c_void_p),
    "llg_matcher_is_accepting": (c.c_bool, c.c_void_p),
    "llg_matcher_is_stopped": (c.c_bool, c.c_void_p),
    "llg_matcher_compute_mask_into": (c.c_int32, c.c_void_p, c.c_void_p, c.c_size_t),
    "llg_matcher_consume_token": (c.c_int32, c.c_void_p, c.c_uint32),
    "llg_matcher_validate_tokens": (c.c_int32, c.c_void_p, c.c_void_p, c.c_size_t),
    "llg_matcher_compute_ff_tokens": (c.c_int32, c.c_void_p, c.c_void_p, c.c_size_t),
}


class Tokens:
    """A vocabulary as llguidance knows it: a trie of the tokens' bytes. Making one takes half a second and 50 MB.

    Half of each goes into llguidance's slices, which make the masks of long strings four times cheaper.
    """

    def __init__(self, tokens: Sequence[bytes], ends: Sequence[int], encode: Encode) -> None:
        """``tokens`` by id, those of control begun with :data:`SPECIAL`; ``ends`` at least one id that ends an answer.

        ``encode`` gives the tokens that the model would write a text in.
        """
        self.size = len(tokens)
        lengths = np.array([len(token) for token in tokens], dtype=np.uint32)
        more = np.array(ends[1:], dtype=np.uint32)
        self._encode = _TOKENIZE(_writer(encode))  # Must live as long as the tokenizer.
        init = _TokenizerInit(
            struct_size=c.sizeof(_TokenizerInit),
            vocab_size=len(tokens),
            tok_eos=ends[0],
            token_lens=lengths.ctypes.data,
            token_bytes=b"".join(tokens),
            tokenize_assumes_string=True,
            tokenize_fn=self._encode,
            tok_eos_extra=more.ctypes.data,
            tok_eos_extra_count=len(more),
        )
        problem = c.create_string_buffer(1024)
        self.handle: int | None = library().llg_new_tokenizer_v2(c.byref(init), problem, len(problem))
        if not self.handle:
            raise VivaceError(
                f"No grammar can be made for this vocabulary: {problem.value.decode(errors='replace')}",
                code="no_grammars",
            )
        self._free = library().llg_free_tokenizer

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self._free(self.handle)


def _writer(encode: Encode) -> Callable[..., int]:
    def write(_: object, data: object, length: int, output: object, room: int) -> int:
        ids = encode(c.string_at(data, length).decode()) if length else []  # type: ignore[arg-type]
        for place, token in enumerate(itertools.islice(ids, room)):
            output[place] = token  # type: ignore[index]
        return len(ids)

    return write


class Matcher:
    """The state of one text in a grammar. An error stays; see :attr:`error`. For one thread at a time."""

    def __init__(self, tokens: Tokens, handle: int) -> None:
        self._tokens = tokens  # Must outlive the matcher.
        self._handle = handle
        self._library = library()
        self._free = self._library.llg_free_matcher

    @classmethod
    def of_lark(cls, tokens: Tokens, grammar: str, limits: Limits) -> Matcher:
        """``grammar`` in llguidance's dialect of Lark, without NUL. :attr:`error` says where it is wrong."""
        init = _MatcherInit(tokenizer=tokens.handle, limits=limits)
        return cls(tokens, library().llg_new_matcher(c.byref(init), b"lark", grammar.encode()))

    def __del__(self) -> None:
        self._free(self._handle)

    def clone(self) -> Matcher:
        """The same state, to go on by itself. The two share nothing that changes."""
        return Matcher(self._tokens, self._library.llg_clone_matcher(self._handle))

    @property
    def error(self) -> str:
        """What went wrong, or nothing."""
        message = self._library.llg_matcher_get_error(self._handle)
        return str(message.decode(errors="replace")).strip() if message else ""

    @property
    def accepting(self) -> bool:
        """Whether the text may end here."""
        return bool(self._library.llg_matcher_is_accepting(self._handle))

    @property
    def stopped(self) -> bool:
        """Whether the text must end here; true after an error too."""
        return bool(self._library.llg_matcher_is_stopped(self._handle))

    def consume(self, token: int) -> bool:
        """Go on by one token; False where that is an error."""
        return bool(self._library.llg_matcher_consume_token(self._handle, token) == 0)

    def fitting(self, tokens: Sequence[int]) -> int:
        """How many of ``tokens``, from the first on, the grammar allows here one after the other."""
        ids = np.array(tokens, dtype=np.uint32)
        return max(0, int(self._library.llg_matcher_validate_tokens(self._handle, ids.ctypes.data, len(ids))))

    def forced(self, most: int) -> list[int]:
        """The tokens that must come next, at most ``most`` of them; none where there is a choice."""
        ids = np.empty(most, dtype=np.uint32)
        count = self._library.llg_matcher_compute_ff_tokens(self._handle, ids.ctypes.data, most)
        return [int(token) for token in ids[: max(0, count)]]

    def mask(self) -> NDArray[np.bool_] | None:
        """Which tokens may come next, by id; None after an error."""
        words = np.zeros(-(-self._tokens.size // 32), dtype=np.uint32)
        if self._library.llg_matcher_compute_mask_into(self._handle, words.ctypes.data, words.nbytes) != 0:
            return None
        return np.unpackbits(words.view(np.uint8), bitorder="little", count=self._tokens.size).view(np.bool_)

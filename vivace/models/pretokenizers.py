"""How each family cuts text into words before the merges, keyed by ``tokenizer.ggml.pre``.

The expressions are llama.cpp's (``llama_vocab::impl::load`` in ``src/llama-vocab.cpp``), which follow the families'
own ``tokenizer.json``; only those whose ids were compared with llama.cpp's are here. A wrong cut gives a model text it
never saw in training, and no error, so an unknown family is refused rather than approximated.

Each stage splits what the stage before it left. Nothing normalises: Qwen2's own tokenizer applies NFC, but an edit has
to give back the bytes that it was given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vivace.errors import VivaceError

if TYPE_CHECKING:
    from tokenizers.pre_tokenizers import PreTokenizer

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# Spelled out rather than (?i:...), whose Unicode folding also takes the long s for an s.
_CONTRACTIONS = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_WORDS = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_QWEN2 = _WORDS % r"\p{N}"
_LLAMA3 = _WORDS % r"\p{N}{1,3}"

_STAGES = {
    "qwen2": (_QWEN2,),
    "deepseek-r1-qwen": (_QWEN2,),
    "smollm": (r"\p{N}", _GPT2),
    "starcoder": (r"\p{N}", _GPT2),
    "gpt-2": (_GPT2,),
    "llama-bpe": (_LLAMA3,),
}

WHOLE_WORDS = frozenset({"llama-bpe"})
"""Families that take a word which is itself a token before they try any merge."""

BEGINS_WITH_BOS = frozenset({"llama-bpe"})
"""Families that begin with the BOS token where the file does not say."""


def check_known(pre: object) -> str:
    """The name of a supported family; raises :class:`VivaceError` (``tokenizer_unsupported``) otherwise."""
    if isinstance(pre, str) and pre in _STAGES:
        return pre
    what = "names no pre-tokenizer" if pre is None else f"needs the pre-tokenizer {ascii(pre)[:60]}"
    raise VivaceError(
        f"The model file {what}, so its text cannot be cut into tokens the way it was trained",
        hint=f"Supported: {', '.join(_STAGES)}.",
        code="tokenizer_unsupported",
    )


def pre_tokenizer(pre: str) -> PreTokenizer:
    """The stages of a known family, then the byte-level alphabet, for the tokenizers library."""
    from tokenizers import Regex, pre_tokenizers

    splits: list[PreTokenizer] = [pre_tokenizers.Split(Regex(stage), behavior="isolated") for stage in _STAGES[pre]]
    return pre_tokenizers.Sequence([*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])

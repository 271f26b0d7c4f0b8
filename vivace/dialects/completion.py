"""Prompts without a conversation: text that goes on, and a gap between two texts that is filled."""

from __future__ import annotations

from typing import Any

from vivace.errors import UsageError
from vivace.models.tokenizer import Tokenizer

MARKS = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder, SmolLM
    ("<|fim_begin|>", "<|fim_hole|>", "<|fim_end|>"),  # DeepSeek Coder, ASCII spelling
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # DeepSeek Coder
    ("▁<PRE>", "▁<SUF>", "▁<MID>"),  # Code Llama
)
"""The control tokens before the text that precedes the gap, before the text that follows it, and before the answer."""

ENDS = ("<|fim_pad|>", "<|file_sep|>", "<|repo_name|>", "<|cursor|>", "<file_sep>", "<filename>", "<reponame>")
"""What a model writes when it goes on to another file: the answer is over."""

FENCE = "```"
ENOUGH = 8
"""Letters and digits of a line that an answer repeats by no accident."""


def completion_prompt(tokenizer: Tokenizer, prompt: dict[str, Any]) -> list[int]:
    """Token ids of ``{"raw": text}`` or ``{"fim": {"prefix": text, "suffix": text}}``.

    Raises :class:`UsageError` for another shape, and for a gap where the model has no tokens for one.
    """
    raw, gap = prompt.get("raw"), prompt.get("fim")
    if isinstance(raw, str):
        ids = tokenizer.encode(raw)
    elif isinstance(gap, dict) and isinstance(gap.get("prefix"), str) and isinstance(gap.get("suffix"), str):
        before, after, middle = _marks(tokenizer)
        prefix, suffix = tokenizer.encode(gap["prefix"]), tokenizer.encode(gap["suffix"])
        ids = [before, *prefix, after, *suffix, middle]
    else:
        raise UsageError('\'prompt\' takes {"raw": text} or {"fim": {"prefix": text, "suffix": text}}.', param="prompt")
    if tokenizer.add_bos and tokenizer.bos_id is not None:
        ids = [tokenizer.bos_id, *ids]
    if not ids:
        raise UsageError("The prompt is empty.", param="prompt")
    return ids


def completion_ends(tokenizer: Tokenizer) -> list[int]:
    """Tokens that end a completion besides the end of an answer."""
    marks = [mark for triple in MARKS for mark in triple]
    found = (tokenizer.special_id(mark) for mark in (*ENDS, *marks))
    return [id for id in found if id is not None]


def completion_stops(prompt: dict[str, Any]) -> list[str]:
    """Texts that end what fills a gap: a code fence, and where the text behind the gap begins once more.

    A model that was trained to chat closes a fence that it never opened, and goes on to explain; one that overlooks the
    text behind the gap writes it again. Neither is a stop where it could be part of the answer: a fence in a text that
    has fences, lines of few letters unless they close the block of the gap. Text that only goes on has no such end.
    """
    gap = prompt.get("fim")
    if not isinstance(gap, dict):
        return []
    before, after = str(gap.get("prefix", "")), str(gap.get("suffix", ""))
    stops = [] if FENCE in before or FENCE in after else [f"\n{FENCE}", FENCE]
    echo = _beginning(after)
    if not after.partition("\n")[0].strip() and not (before.endswith("\n") or not before):
        echo = f"\n{echo}"  # the answer ends the line that it begins in
    if (sum(map(str.isalnum, echo)) >= ENOUGH or _closes(before, echo)) and echo not in before:
        stops.append(echo)
    return stops


def _beginning(after: str) -> str:
    """The first lines behind a gap, from the first one that says something, as far as needed to know them again."""
    lines = after.lstrip("\n").splitlines(keepends=True) if not after.partition("\n")[0].strip() else []
    lines = lines or after.splitlines(keepends=True)
    taken = ""
    for line in lines:
        taken += line
        if sum(map(str.isalnum, taken)) >= ENOUGH:
            break
    return taken


def _closes(before: str, echo: str) -> bool:
    """A line that ends the block in which the gap lies: a closing bracket that is less indented than the gap."""
    bare = echo.strip("\n")
    here = before.rpartition("\n")[2]
    return bare.strip()[:1] in (")", "]", "}") and echo.startswith("\n") and _indent(bare) < _indent(here)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" \t"))


def _marks(tokenizer: Tokenizer) -> tuple[int, int, int]:
    for triple in MARKS:
        ids = [tokenizer.special_id(mark) for mark in triple]
        before, after, middle = ids
        if before is not None and after is not None and middle is not None:
            return before, after, middle
    raise UsageError(
        "The model has no tokens for filling a gap in a text.",
        hint="Leave 'suffix' out, or take a coder model.",
        param="suffix",
    )

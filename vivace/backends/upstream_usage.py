"""Tokens of an upstream's answer: as it counted them, or estimated where it did not come to that."""

from __future__ import annotations

from typing import Any

from vivace.backends.base import Job
from vivace.protocol.items import InputTokensDetails, Item, OutputTokensDetails, Usage, item_text

CHARS_PER_TOKEN = 4


def estimate(text_length: int) -> int:
    """Tokens of so many characters, rounded up. An estimate, for reservations and for answers without a count."""
    return -(-text_length // CHARS_PER_TOKEN)


def prompt_estimate(job: Job) -> int:
    """Tokens of a job's prompt, estimated from its characters, tools included."""
    chars = sum(len(item_text(item)) + len(_name(item)) for item in job.items)
    chars += len(job.request.completed_text)
    for tool in job.tools.tools:
        chars += len(tool.name) + len(tool.description) + len(str(tool.parameters))
    return estimate(chars)


class Tally:
    """What an answer came to so far. Every delta is at least one token."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._chars = self._deltas = self._thought_chars = self._thoughts = 0

    def said(self, text: str) -> None:
        self._chars += len(text)
        self._deltas += 1

    def thought(self, text: str) -> None:
        self._thought_chars += len(text)
        self._thoughts += 1

    def estimate(self) -> Usage:
        thought = max(self._thoughts, estimate(self._thought_chars))
        output = max(self._deltas, estimate(self._chars)) + thought
        prompt = prompt_estimate(self._job)
        details = OutputTokensDetails(reasoning_tokens=thought)
        return Usage(
            input_tokens=prompt, output_tokens=output, output_tokens_details=details, total_tokens=prompt + output
        )


def chat_usage(said: dict[str, Any]) -> Usage:
    """The ``usage`` of Chat Completions; DeepSeek counts its cache in a field of its own."""
    given, made = _table(said, "prompt_tokens_details"), _table(said, "completion_tokens_details")
    cached = _count(given, "cached_tokens") or _count(said, "prompt_cache_hit_tokens")
    return _usage(_count(said, "prompt_tokens"), cached, _count(said, "completion_tokens"), made)


def responses_usage(said: dict[str, Any]) -> Usage:
    """The ``usage`` of a Responses server."""
    given, made = _table(said, "input_tokens_details"), _table(said, "output_tokens_details")
    return _usage(_count(said, "input_tokens"), _count(given, "cached_tokens"), _count(said, "output_tokens"), made)


def _usage(prompt: int, cached: int, output: int, made: dict[str, Any]) -> Usage:
    details = OutputTokensDetails(
        reasoning_tokens=_count(made, "reasoning_tokens"),
        accepted_prediction_tokens=_count(made, "accepted_prediction_tokens"),
        rejected_prediction_tokens=_count(made, "rejected_prediction_tokens"),
    )
    return Usage(
        input_tokens=prompt,
        input_tokens_details=InputTokensDetails(min(cached, prompt)),
        output_tokens=output,
        output_tokens_details=details,
        total_tokens=prompt + output,
    )


def _table(said: dict[str, Any], name: str) -> dict[str, Any]:
    value = said.get(name)
    return value if isinstance(value, dict) else {}


def _count(said: dict[str, Any], name: str) -> int:
    value = said.get(name)
    return value if isinstance(value, int) and value > 0 else 0


def _name(item: Item) -> str:
    name = getattr(item, "name", "")
    return name if isinstance(name, str) else ""

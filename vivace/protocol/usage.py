"""Tokens of one response."""

from __future__ import annotations

from msgspec import Struct, field


class InputTokensDetails(Struct):
    """``cached_tokens`` were found in KV memory, ``cache_write_tokens`` were prefilled and kept there."""

    cached_tokens: int = 0
    cache_write_tokens: int = 0


class OutputTokensDetails(Struct):
    """``accepted``/``rejected_prediction_tokens`` count the draft as OpenAI does for predicted outputs."""

    reasoning_tokens: int = 0
    accepted_prediction_tokens: int = 0
    rejected_prediction_tokens: int = 0


class Usage(Struct):
    """Tokens of one response. ``cached_tokens`` is what the KV memory really held."""

    input_tokens: int = 0
    input_tokens_details: InputTokensDetails = field(default_factory=InputTokensDetails)
    output_tokens: int = 0
    output_tokens_details: OutputTokensDetails = field(default_factory=OutputTokensDetails)
    total_tokens: int = 0

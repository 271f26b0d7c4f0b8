"""The older Completions: text that goes on where ``prompt`` ends, or fills the gap before ``suffix``.

Editors use it for completion as one types.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field

from vivace.protocol.chat import ChatUsage, Penalty, StreamOptions
from vivace.protocol.defaults import empty, null, written
from vivace.protocol.errors import decoded
from vivace.protocol.requests import Count, Positive, Share, Temperature


class CompletionRequest(Struct, kw_only=True, omit_defaults=True):
    """``prompt`` is a text, token ids, or several of either."""

    model: str
    prompt: str | list[str | int | list[int]] | None = None
    suffix: str | None = None
    max_tokens: Count | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    stop: str | list[str] | None = None
    echo: bool | None = None
    n: Positive | None = None
    best_of: Positive | None = None
    logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    seed: int | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    logit_bias: dict[str, float] | None = None
    user: str | None = None
    service_tier: str | None = None
    top_k: Annotated[int, Meta(ge=-1)] | None = None
    """Open servers' extension: keep the k most likely tokens; 0 or -1 keeps all."""
    min_p: Share | None = None
    """Open servers' extension: drop tokens less likely than this share of the most likely one."""
    repetition_penalty: Annotated[float, Meta(gt=0)] | None = None
    """Open servers' extension: divide the logits of tokens already seen; 1 is off."""

    @property
    def stops(self) -> list[str]:
        """The texts that end the answer."""
        return [self.stop] if isinstance(self.stop, str) else list(self.stop or ())


class CompletionChoice(Struct, omit_defaults=True):
    """``finish_reason`` is stop, length or content_filter; null while the text goes on."""

    text: str
    index: int = field(default_factory=written(0))
    finish_reason: str | None = field(default_factory=null)
    logprobs: dict[str, Any] | None = field(default_factory=null)


class Completion(Struct, kw_only=True, omit_defaults=True):
    """A whole answer, or a chunk of a streamed one: the shape is the same. ``created`` is in seconds since 1970."""

    id: str = field(default_factory=written(""))
    object: str = field(default_factory=written("text_completion"))
    created: int = field(default_factory=written(0))
    model: str = field(default_factory=written(""))
    choices: list[CompletionChoice] = field(default_factory=empty)
    usage: ChatUsage | None = None
    system_fingerprint: str | None = None


_decode_request = msgspec.json.Decoder(CompletionRequest).decode

decode_completion = msgspec.json.Decoder(Completion).decode
"""JSON -> Completion; raises :class:`msgspec.DecodeError`."""


def decode_completion_request(body: bytes | str) -> CompletionRequest:
    """The body of a POST. Raises :class:`vivace.protocol.errors.BadRequest`, which names the parameter."""
    return decoded(_decode_request, body)

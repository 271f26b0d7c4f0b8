"""The older Completions in terms of Responses: raw text that goes on, or a gap that is filled."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from vivace.protocol import events as ev
from vivace.protocol.chat import ChatUsage
from vivace.protocol.completions import Completion, CompletionChoice, CompletionRequest
from vivace.protocol.errors import BadRequest, error_body, error_type
from vivace.protocol.items import Message, Response, encode
from vivace.protocol.requests import ResponseRequest
from vivace.server.chat import ALIVE, DONE, finish_reason
from vivace.server.refusals import failed

DEFAULT_TOKENS = 16
"""OpenAI's default of ``max_tokens``."""

_UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "logprobs": (0,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "logit_bias": ({},),
}


def to_request(given: CompletionRequest) -> ResponseRequest:
    """The same request, its text in :attr:`ResponseRequest.prompt`: ``{"raw": text}``, or ``{"fim": {"prefix": ...,
    "suffix": ...}}`` where there is a suffix. Raises :class:`BadRequest`."""
    for name, harmless in _UNSUPPORTED.items():
        value = getattr(given, name)
        if value is not None and value not in harmless:
            raise BadRequest(f"'{name}' = {str(value)[:80]} is not supported.", name, "unsupported_value")
    if given.max_tokens == 0:
        raise BadRequest("'max_tokens' has to be 1 or more.", "max_tokens")
    text = prompt_text(given)
    return ResponseRequest(
        model=given.model,
        prompt={"raw": text} if given.suffix is None else {"fim": {"prefix": text, "suffix": given.suffix}},
        max_output_tokens=given.max_tokens or DEFAULT_TOKENS,
        temperature=given.temperature,
        top_p=given.top_p,
        top_k=None if given.top_k is None else max(0, given.top_k),
        min_p=given.min_p,
        repetition_penalty=given.repetition_penalty,
        seed=given.seed,
        stop=given.stops,
        store=False,
        stream=given.stream,
        service_tier=given.service_tier,
        user=given.user,
    )


def prompt_text(given: CompletionRequest) -> str:
    """The one text of ``prompt``."""
    prompt = given.prompt
    if prompt is None:
        if given.suffix is None:
            raise BadRequest("Missing required parameter: 'prompt'.", "prompt", "missing_required_parameter")
        return ""
    if isinstance(prompt, str):
        return prompt
    if len(prompt) == 1 and isinstance(prompt[0], str):
        return prompt[0]
    raise BadRequest("'prompt' has to be one text; token ids and several texts are not supported.", "prompt")


def completion(response: Response, before: str = "") -> Completion:
    """A finished response as a whole answer; ``before`` is the prompt where ``echo`` asked for it."""
    if response.status == "failed":
        raise failed(response.error)
    text = before + "".join(item.text for item in response.output if isinstance(item, Message))
    return Completion(
        id=completion_id(response.id),
        created=int(response.created_at),
        model=response.model,
        choices=[CompletionChoice(text, 0, finish_reason(response, False))],
        usage=ChatUsage.of(response.usage) if response.usage else None,
    )


def completion_id(response_id: str) -> str:
    return f"cmpl-{response_id.removeprefix('resp_')}"


class ChunkWriter:
    """Batches of events -> the bytes of a streamed answer."""

    def __init__(self, usage: bool, before: str = "") -> None:
        self._usage = usage
        self._before = before
        self._chunk = Completion()

    def __call__(self, events: list[ev.Event]) -> bytes:
        return b"".join([piece for event in events for piece in self._pieces(event)])

    def _pieces(self, event: ev.Event) -> Iterable[bytes]:
        match event:
            case ev.TextDelta():
                yield self._text(event.delta)
            case ev.Created():
                self._chunk.id, self._chunk.model = completion_id(event.response.id), event.response.model
                self._chunk.created = int(event.response.created_at)
                if self._before:
                    yield self._text(self._before)
            case ev.Keepalive() | ev.Queued() | ev.InProgress():
                yield ALIVE
            case ev.Completed() | ev.Incomplete():
                yield self._text("", finish_reason(event.response, False))
                if self._usage and event.response.usage is not None:
                    self._chunk.choices, self._chunk.usage = [], ChatUsage.of(event.response.usage)
                    yield b"data: %b\n\n" % encode(self._chunk)
                yield DONE
            case ev.Failed():
                error = failed(event.response.error)
                yield b"data: %b\n\n" % encode(error_body(error.message, error_type(error.status), error.code))

    def _text(self, text: str, finish: str | None = None) -> bytes:
        self._chunk.choices = [CompletionChoice(text, 0, finish)]
        return b"data: %b\n\n" % encode(self._chunk)

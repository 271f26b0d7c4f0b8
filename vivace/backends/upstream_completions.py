"""The older Completions of model servers: text that goes on, and a gap between two texts that is filled.

Servers differ in the second. Ollama, vivace and hosted providers take a ``suffix``. vLLM and llama-server refuse it,
and SGLang and LM Studio leave it out without a word; there the marks that the model was trained with are written around
the texts, as long as the server's tokenizer has them or the configuration says them.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import msgspec
from msgspec import Struct

from vivace.backends.base import End, EndReason, Job, Piece, Text
from vivace.backends.faults import Fault, decoded, stream_fault
from vivace.backends.http import Http
from vivace.backends.replicas import Replica
from vivace.backends.servers import HAS_TOKENIZER, token_ids
from vivace.backends.upstream_usage import Tally, chat_usage

PATH = "/completions"
_IGNORES_SUFFIX = "lm-studio"
_TEXT_ENDS = ("<|endoftext|>", "<|im_end|>")


class Gap(Struct, frozen=True):
    """How a server is asked to fill a gap: by ``suffix``, or by ``marks`` before the text that precedes it, before the
    text that follows it, and before the answer. ``ends`` are tokens that end the answer."""

    marks: tuple[str, str, str] | None = None
    ends: tuple[int, ...] = ()


async def find_gap(http: Http, replica: Replica, kind: str, model: str, marks: tuple[str, ...]) -> Gap:
    """How the model of a server fills a gap; ``marks`` are those of the configuration. Raises :class:`Fault`."""
    from vivace.dialects.completion import ENDS, MARKS

    if marks:
        before, after, middle = marks
        return Gap((before, after, middle))
    if kind == _IGNORES_SUFFIX:
        raise _no_gap(
            f"{replica.base_url} takes no 'suffix'", "Say the model's marks in the configuration: fim = [...]"
        )
    if kind not in HAS_TOKENIZER:
        return Gap()
    for triple in MARKS:
        found = [await _single(http, replica, kind, model, mark) for mark in triple]
        if None not in found:
            others = [await _single(http, replica, kind, model, mark) for mark in (*ENDS, *_TEXT_ENDS)]
            return Gap(triple, tuple(id for id in (*found, *others) if id is not None))
    hint = "Leave 'suffix' out, or say the model's marks in the configuration: fim = [...]"
    raise _no_gap(f"{model} at {replica.base_url} has no tokens for filling a gap in a text that are known here", hint)


def completion_body(job: Job, model: str, habits: Set[str], options: dict[str, Any], gap: Gap) -> dict[str, Any]:
    """The body of a job with a ``prompt``; ``options`` are keys of the user's that go with every request."""
    request, prompt = job.request, job.request.prompt or {}
    body: dict[str, Any] = {"model": model, "prompt": prompt.get("raw", ""), "stream": True}
    if fim := prompt.get("fim"):
        body["prompt"] = fim["prefix"]
        if gap.marks is None:
            body["suffix"] = fim["suffix"]
        else:
            before, after, middle = gap.marks
            body["prompt"] = f"{before}{fim['prefix']}{after}{fim['suffix']}{middle}"
            if gap.ends:
                body["stop_token_ids"] = list(gap.ends)
    if "no_usage_option" not in habits:
        body["stream_options"] = {"include_usage": True}
    for name in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed"):
        if (value := getattr(request, name)) is not None:
            body[name] = value
    if request.stop:
        body["stop"] = request.stop
    if request.max_output_tokens is not None:
        body["max_tokens"] = request.max_output_tokens
    return body | options


def no_route(fault: Fault, name: str) -> Fault:
    """The refusal of a server that has no Completions, in words that say so."""
    if fault.status not in (404, 405, 501) or fault.code == "model_not_found":
        return fault
    return Fault(
        f"{name} has no {PATH} (HTTP {fault.status}); it takes conversations only.",
        code="invalid_request_error",
        status=fault.status,
        param="model",
    )


class _Choice(Struct):
    text: str | None = None
    finish_reason: str | None = None


class _Chunk(Struct):
    choices: list[_Choice] | None = None
    usage: dict[str, Any] | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Chunk).decode
_REASONS: dict[str, EndReason] = {"stop": "stop", "length": "length"}


class CompletionStream:
    """Reads one streamed answer. ``where`` names the server in errors."""

    def __init__(self, job: Job, where: str, dialect: str = "") -> None:
        self._where = where
        self._reason = ""
        self._usage: dict[str, Any] | None = None
        self.done = False
        self.tally = Tally(job)

    def feed(self, data: bytes) -> list[Piece]:
        """The pieces of one event. Raises :class:`Fault` for an error in the stream and for what is no chunk."""
        if data == b"[DONE]":
            self.done = True
            return []
        chunk = decoded(_decode, data, self._where, "chunk of Completions")
        if chunk.error:
            raise stream_fault(chunk.error, self._where)
        self._usage = chunk.usage or self._usage
        pieces: list[Piece] = []
        for choice in (chunk.choices or ())[:1]:
            if choice.text:
                self.tally.said(choice.text)
                pieces.append(Text(choice.text))
            self._reason = choice.finish_reason or self._reason
        return pieces

    def finish(self) -> tuple[list[Piece], End]:
        """After the last event: how it ended. Raises :class:`Fault` where it broke off."""
        usage = chat_usage(self._usage) if self._usage else self.tally.estimate()
        if not self._reason and not self.done:
            raise Fault(f"{self._where} ended its answer before it was finished.", again=True, down=True)
        if self._reason == "content_filter":
            said = f"{self._where} cut the answer with its content filter."
            return [], End("error", usage, said, code="content_filter")
        return [], End(_REASONS.get(self._reason, "stop"), usage)


async def _single(http: Http, replica: Replica, kind: str, model: str, mark: str) -> int | None:
    """The one token that a mark is, if it is one."""
    ids = await token_ids(http, replica, kind, model, mark)
    return ids[0] if ids is not None and len(ids) == 1 else None


def _no_gap(said: str, hint: str) -> Fault:
    return Fault(f"{said}. {hint}.", code="invalid_request_error", param="suffix")

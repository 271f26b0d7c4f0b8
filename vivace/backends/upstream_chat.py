"""Chat Completions: a job as a request body, and the chunks of the answer as pieces."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import msgspec
from msgspec import Struct

from vivace.backends.base import End, EndReason, Job, Piece, Reasoning
from vivace.backends.calls import Calls
from vivace.backends.faults import Fault, decoded, stream_fault
from vivace.backends.upstream_messages import messages_of, tool_of
from vivace.backends.upstream_printed import PrintedCalls
from vivace.backends.upstream_usage import Tally, chat_usage
from vivace.protocol.options import GrammarFormat, JsonObjectFormat, JsonSchemaFormat

PATH = "/chat/completions"


def chat_body(job: Job, model: str, habits: Set[str], options: dict[str, Any]) -> dict[str, Any]:
    """The body for a server of these habits; ``options`` are keys of the user's that go with every request."""
    request = job.request
    body: dict[str, Any] = {"model": model, "messages": messages_of(job, habits), "stream": True}
    if "no_usage_option" not in habits:
        body["stream_options"] = {"include_usage": True}
    for name in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed"):
        if (value := getattr(request, name)) is not None:
            body[name] = value
    if request.stop:
        body["stop"] = request.stop
    limit = 1 if job.prefill_only else request.max_output_tokens
    if limit is not None:
        body["max_completion_tokens" if "completion_tokens" in habits else "max_tokens"] = limit
    body |= _tools(job, habits)
    if request.text is not None:
        body |= _format(request.text.format)
        if request.text.verbosity is not None and "no_verbosity" not in habits:
            body["verbosity"] = request.text.verbosity
    if request.reasoning is not None and request.reasoning.effort is not None and "no_effort" not in habits:
        body["reasoning_effort"] = request.reasoning.effort
    if request.prompt_cache_key and "no_cache_key" not in habits:
        body["prompt_cache_key"] = request.prompt_cache_key
    refused = "no_prediction_with_tools" if job.tools.tools else "no_prediction"
    if request.prediction is not None and not habits & {refused, "no_prediction"}:
        body["prediction"] = {"type": "content", "content": request.prediction.content}
    return body | options


def _tools(job: Job, habits: Set[str]) -> dict[str, Any]:
    table = job.tools
    if not table.tools:
        return {}
    offered = table.callable if table.allowed and "no_allowed_tools" in habits else table.tools
    found: dict[str, Any] = {"tools": [tool_of(tool) for tool in offered]}
    named = [{"type": "function", "function": {"name": name}} for name in table.allowed]
    if table.mode == "required" and len(named) == 1:
        found["tool_choice"] = named[0]
    elif named and "no_allowed_tools" not in habits:
        found["tool_choice"] = {"type": "allowed_tools", "allowed_tools": {"mode": table.mode, "tools": named}}
    elif table.mode != "auto":
        found["tool_choice"] = table.mode
    if not table.parallel and "no_parallel" not in habits:
        found["parallel_tool_calls"] = False
    return found


def _format(form: Any) -> dict[str, Any]:
    if isinstance(form, JsonObjectFormat):
        return {"response_format": {"type": "json_object"}}
    if isinstance(form, JsonSchemaFormat):
        names = ("name", "schema", "strict", "description")
        schema = {name: value for name in names if (value := getattr(form, name)) is not None}
        return {"response_format": {"type": "json_schema", "json_schema": schema}}
    if isinstance(form, GrammarFormat):
        return {"response_format": {"type": "grammar", "grammar": form.grammar}}
    return {}


class _Function(Struct):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _ToolCall(Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Delta(Struct):
    content: str | list[Any] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(Struct):
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Chunk(Struct):
    choices: list[_Choice] | None = None
    usage: dict[str, Any] | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Chunk).decode
_REASONS: dict[str, EndReason] = {"stop": "stop", "tool_calls": "stop", "function_call": "stop", "length": "length"}


class ChatStream:
    """Reads one streamed answer. ``where`` names the server in errors, ``dialect`` how the model prints calls."""

    def __init__(self, job: Job, where: str, dialect: str) -> None:
        self._job = job
        self._where = where
        self._calls = Calls(job.tools)
        self._printed = PrintedCalls(job, dialect)
        self._reason = ""
        self.done = False
        self._usage: dict[str, Any] | None = None
        self._last_key: object = None
        self.tally = Tally(job)

    def feed(self, data: bytes) -> list[Piece]:
        """The pieces of one event. Raises :class:`Fault` for an error in the stream and for what is no chunk."""
        if data == b"[DONE]":
            self.done = True
            return []
        chunk = decoded(_decode, data, self._where, "chunk of Chat Completions")
        if chunk.error:
            raise stream_fault(chunk.error, self._where)
        if chunk.usage:
            self._usage = chunk.usage
        pieces: list[Piece] = []
        for choice in (chunk.choices or ())[:1]:
            if choice.delta is not None:
                self._delta(choice.delta, pieces)
            self._reason = choice.finish_reason or self._reason
        return pieces

    def finish(self) -> tuple[list[Piece], End]:
        """After the last event: what was still held, and how it ended. Raises :class:`Fault` where it broke off."""
        usage = chat_usage(self._usage) if self._usage else self.tally.estimate()
        lost = not self._reason and not self.done
        filtered = self._reason == "content_filter"
        pieces = self._printed.finish() + self._calls.finish(cut=lost or filtered or self._reason == "length")
        if lost:
            raise Fault(f"{self._where} ended its answer before it was finished.", again=True, down=True)
        if filtered:
            end = End("error", usage, f"{self._where} cut the answer with its content filter.", code="content_filter")
        elif self._job.prefill_only:
            end = End("stop", usage)
        else:
            end = End(_REASONS.get(self._reason, "stop"), usage)
        return pieces, end

    def _delta(self, delta: _Delta, pieces: list[Piece]) -> None:
        if thought := delta.reasoning_content or delta.reasoning:
            self.tally.thought(thought)
            pieces.append(Reasoning(thought))
        if text := delta.content or delta.refusal:
            if not isinstance(text, str):
                text = "".join(str(part.get("text", "")) for part in text if isinstance(part, dict))
            self.tally.said(text)
            pieces += self._printed.feed(text)
        if delta.tool_calls:
            pieces += self._printed.finish()
        for call in delta.tool_calls or ():
            key: object = call.index
            if key is None:  # Ollama's and Gemini's servers number nothing; a new id is a new call
                key = call.id or self._last_key
            self._last_key = key
            function = call.function or _Function()
            given = function.arguments
            text = given if isinstance(given, str) else msgspec.json.encode(given).decode() if given else ""
            self.tally.said(text or function.name or "")
            pieces += self._calls.add(key, call.id or "", function.name or "", text)

"""Servers of the Responses API: a job as a request body, and the events of the answer as pieces."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import msgspec
from msgspec import Struct

from vivace.backends.base import End, Job, Piece, Reasoning
from vivace.backends.calls import Calls
from vivace.backends.faults import Fault, decoded, stream_fault
from vivace.backends.upstream_messages import tool_of
from vivace.backends.upstream_printed import PrintedCalls
from vivace.backends.upstream_usage import Tally, responses_usage
from vivace.dialects.tools import FlatTool
from vivace.protocol import items as it

PATH = "/responses"


def responses_body(job: Job, model: str, habits: Set[str], options: dict[str, Any]) -> dict[str, Any]:
    """The body for a server of these habits: every item of the conversation, nothing stored there."""
    request = job.request
    items = [built for item in job.items if (built := _item(item, job, habits)) is not None]
    body: dict[str, Any] = {"model": model, "input": items, "stream": True, "store": False}
    for name in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed"):
        if (value := getattr(request, name)) is not None:
            body[name] = value
    if request.stop:
        body["stop"] = request.stop
    # A warm-up wants no answer; 16 is the least that OpenAI takes.
    limit = 16 if job.prefill_only else request.max_output_tokens
    if limit is not None:
        body["max_output_tokens"] = limit
    body |= _tools(job, habits)
    if request.text is not None:
        text = it.to_builtins(request.text)
        if "no_verbosity" in habits:
            text.pop("verbosity", None)
        body["text"] = text
    if request.reasoning is not None and "no_effort" not in habits:
        wanted = {"effort": request.reasoning.effort, "summary": request.reasoning.summary}
        body["reasoning"] = {name: value for name, value in wanted.items() if value is not None}
    if request.prompt_cache_key and "no_cache_key" not in habits:
        body["prompt_cache_key"] = request.prompt_cache_key
    return body | options


def _item(item: it.Item, job: Job, habits: Set[str]) -> dict[str, Any] | None:
    """An item without what is this service's own: ids, namespaces, opaque blobs."""
    match item:
        case it.Message():
            role = "system" if item.role == "developer" and "system_for_developer" in habits else item.role
            return {"type": "message", "role": role, "content": it.to_builtins(item.content)}
        case it.Reasoning() if item.content and "no_thoughts" not in habits:
            made = {"type": "reasoning", "summary": [], "content": it.to_builtins(item.content)}
            return made | ({"id": item.id} if item.id else {})
        case it.CustomToolCall() if "no_custom_tools" not in habits:
            name = job.tools.flat_name(item.name, item.namespace)
            return {"type": "custom_tool_call", "call_id": item.call_id, "name": name, "input": item.input}
        case it.FunctionCall() | it.CustomToolCall():
            name, arguments = job.tools.flatten_call(item)
            return {"type": "function_call", "call_id": item.call_id, "name": name, "arguments": arguments}
        case it.FunctionCallOutput() | it.CustomToolCallOutput():
            custom = isinstance(item, it.CustomToolCallOutput) and "no_custom_tools" not in habits
            kind = "custom_tool_call_output" if custom else "function_call_output"
            return {"type": kind, "call_id": item.call_id, "output": it.to_builtins(item.output)}
        case _:
            return None


def _tools(job: Job, habits: Set[str]) -> dict[str, Any]:
    table = job.tools
    if not table.tools:
        return {}
    offered = table.callable if table.allowed and "no_allowed_tools" in habits else table.tools
    found: dict[str, Any] = {"tools": [_tool(tool, habits) for tool in offered]}
    named = [{"type": _kind(tool, habits), "name": tool.name} for tool in table.tools if tool.name in table.allowed]
    if table.mode == "required" and len(named) == 1:
        found["tool_choice"] = named[0]
    elif named and "no_allowed_tools" not in habits:
        found["tool_choice"] = {"type": "allowed_tools", "mode": table.mode, "tools": named}
    elif table.mode != "auto":
        found["tool_choice"] = table.mode
    if not table.parallel and "no_parallel" not in habits:
        found["parallel_tool_calls"] = False
    return found


def _kind(tool: FlatTool, habits: Set[str]) -> str:
    return "custom" if tool.kind == "custom" and "no_custom_tools" not in habits else "function"


def _tool(tool: FlatTool, habits: Set[str]) -> dict[str, Any]:
    if _kind(tool, habits) == "function":
        return {"type": "function", **tool_of(tool)["function"], "strict": False}
    form = {"type": "text"}
    if tool.format.syntax != "text":
        form = {"type": "grammar", "syntax": tool.format.syntax, "definition": tool.format.definition}
    return {"type": "custom", "name": tool.name, "description": tool.description, "format": form}


class _Item(Struct):
    type: str = ""
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    input: str | None = None


class _Event(Struct):
    type: str = ""
    delta: str | None = None
    output_index: int | None = None
    item: _Item | None = None
    response: dict[str, Any] | None = None
    error: Any = None
    code: str | None = None
    message: str | None = None


_decode = msgspec.json.Decoder(_Event).decode


class ResponsesStream:
    """Reads one streamed answer. ``where`` names the server in errors, ``dialect`` how the model prints calls."""

    def __init__(self, job: Job, where: str, dialect: str) -> None:
        self._job = job
        self._where = where
        self._calls = Calls(job.tools)
        self._printed = PrintedCalls(job, dialect)
        self._thinking: dict[int, str] = {}
        self._final: dict[str, Any] | None = None
        self.tally = Tally(job)

    def feed(self, data: bytes) -> list[Piece]:
        """The pieces of one event. Raises :class:`Fault` where the answer failed and for what is no event."""
        if data == b"[DONE]":
            return []
        event = decoded(_decode, data, self._where, "event of a response")
        index = event.output_index or 0
        match event.type:
            case "response.output_text.delta" | "response.refusal.delta":
                self.tally.said(event.delta or "")
                return self._printed.feed(event.delta) if event.delta else []
            case "response.reasoning_text.delta" | "response.reasoning_summary_text.delta":
                # A server that sends the thoughts and their summary sends one of them first; the other repeats it.
                if not event.delta or self._thinking.setdefault(index, event.type) != event.type:
                    return []
                self.tally.thought(event.delta)
                return [Reasoning(event.delta)]
            case "response.output_item.added" if event.item is not None:
                return self._begin(index, event.item)
            case "response.function_call_arguments.delta":
                self.tally.said(event.delta or "")
                return self._calls.add(index, "", "", event.delta or "")
            case "response.custom_tool_call_input.delta":
                self.tally.said(event.delta or "")
                return self._calls.add(index, "", "", event.delta or "", free=True)
            case "response.output_item.done" if event.item is not None:
                begun = self._begin(index, event.item)
                return begun + self._calls.end(index, event.item.arguments or event.item.input or "")
            case "response.completed" | "response.incomplete":
                self._final = event.response or {}
            case "response.failed":
                raise stream_fault((event.response or {}).get("error") or {"message": "no reason given"}, self._where)
            case "error":
                raise stream_fault(event.error or {"code": event.code, "message": event.message}, self._where)
        return []

    @property
    def done(self) -> bool:
        """Nothing more will come."""
        return self._final is not None

    def finish(self) -> tuple[list[Piece], End]:
        """After the last event: what was still held, and how it ended. Raises :class:`Fault` where it broke off."""
        if self._final is None:
            raise Fault(f"{self._where} ended its answer before it was finished.", again=True, down=True)
        said = self._final.get("usage")
        usage = responses_usage(said) if isinstance(said, dict) else self.tally.estimate()
        details = self._final.get("incomplete_details")
        why = details.get("reason") if isinstance(details, dict) else None
        pieces = self._printed.finish() + self._calls.finish(cut=why is not None)
        if why == "content_filter":
            end = End("error", usage, f"{self._where} cut the answer with its content filter.", code="content_filter")
        else:
            end = End("length" if why is not None and not self._job.prefill_only else "stop", usage)
        return pieces, end

    def _begin(self, index: int, item: _Item) -> list[Piece]:
        if item.type not in ("function_call", "custom_tool_call"):
            return []
        free = item.type == "custom_tool_call"
        held = self._printed.finish()
        return held + self._calls.add(index, item.call_id or "", item.name or "", "", free=free)

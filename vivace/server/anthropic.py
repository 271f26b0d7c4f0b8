"""Anthropic's Messages in terms of Responses: a request becomes a request, events become events.

What Claude Code 2.1.332 sends and needs was measured against it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from vivace.protocol import anthropic as an
from vivace.protocol import events as ev
from vivace.protocol.content import ContentPart, InputImage, InputText, OutputText, ReasoningText, Refusal
from vivace.protocol.errors import BadRequest, anthropic_error_type
from vivace.protocol.items import (
    CustomToolCall,
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    Reasoning,
    Response,
    content_text,
)
from vivace.protocol.options import JsonSchemaFormat, ReasoningOptions, TextOptions, ToolChoice
from vivace.protocol.requests import ResponseRequest
from vivace.server.refusals import failed

_ATTRIBUTION = "x-anthropic-billing-header:"
"""Claude Code opens its system text with a line of this name that differs from request to request; in front of a
prompt it would make every cached prefix useless."""

_MODES: dict[str, ToolChoice] = {"auto": "auto", "any": "required", "none": "none"}
_TIERS = {"auto": "auto", "standard_only": "default"}


def to_request(given: an.CountTokensRequest) -> ResponseRequest:
    """The same request; of one to count_tokens what makes its prompt. Raises :class:`BadRequest`."""
    choice = given.tool_choice
    request = ResponseRequest(
        model=given.model,
        instructions=_system(given.system) or None,
        input=to_items(given.messages),
        tools=None if given.tools is None else [_tool(tool) for tool in given.tools],
        tool_choice=None if choice is None else _choice(choice),
        parallel_tool_calls=False if choice is not None and choice.disable_parallel_tool_use else None,
        reasoning=ReasoningOptions(_effort(given)),
        text=_text_options(given.output_config),
        include=["reasoning.encrypted_content"],
        store=False,
    )
    if not isinstance(given, an.MessagesRequest):
        return request
    user = (given.metadata or {}).get("user_id")
    request.max_output_tokens = given.max_tokens
    request.stream = given.stream
    request.stop = list(given.stop_sequences or ())
    request.temperature, request.top_p, request.top_k = given.temperature, given.top_p, given.top_k
    request.prompt_cache_key = request.user = user if isinstance(user, str) else None
    tier = given.service_tier
    request.service_tier = "fast" if given.speed == "fast" else _TIERS.get(tier or "", tier)
    return request


def to_items(messages: list[an.InputMessage]) -> list[Item]:
    """The history as items, in its order."""
    items: list[Item] = []
    for n, message in enumerate(messages):
        if isinstance(message.content, str):
            items.append(Message(message.role, message.content))
        elif message.role == "assistant":
            items += _said(message.content)
        else:
            items += _given(message.role, message.content, f"messages.{n}.content")
    return items


def message(response: Response, shown: bool, speed: str | None = None) -> an.MessagesResponse:
    """A finished response as a whole answer; ``shown`` tells whether thinking is, ``speed`` what was asked for. Raises
    :class:`BadRequest`."""
    if response.status == "failed":
        raise failed(response.error)
    blocks: list[an.Block] = []
    for item in response.output:
        match item:
            case Reasoning() if shown:
                thought = content_text(item.content or item.summary)
                blocks.append(an.ThinkingBlock(thought, item.encrypted_content or ""))
            case Message():
                blocks.append(an.TextBlock(item.text))
            case FunctionCall():
                blocks.append(an.ToolUseBlock(item.call_id, item.name, _object(item.arguments)))
            case CustomToolCall():
                blocks.append(an.ToolUseBlock(item.call_id, item.name, {"input": item.input}))
    return an.MessagesResponse(
        id=message_id(response.id),
        model=response.model,
        content=blocks,
        stop_reason=stop_reason(response),
        usage=_usage(response, speed),
    )


def message_id(response_id: str) -> str:
    return f"msg_{response_id.removeprefix('resp_')}"


def stop_reason(response: Response) -> str:
    """``end_turn``, ``max_tokens``, ``tool_use`` or ``refusal``."""
    reason = response.incomplete_details.reason if response.incomplete_details else ""
    if reason in ("max_output_tokens", "max_time"):
        return "max_tokens"
    if reason == "content_filter":
        return "refusal"
    if any(isinstance(item, FunctionCall | CustomToolCall) for item in response.output):
        return "tool_use"
    parts = [part for item in response.output if isinstance(item, Message) for part in item.content]
    return "refusal" if parts and isinstance(parts[-1], Refusal) else "end_turn"


class EventWriter:
    """Batches of events -> the bytes of a streamed answer.

    Blocks come one after the other, each with the next index. Thinking that is not ``shown`` is left out; with
    ``silent`` its block comes without its text, so that its signature can be given back. ``speed`` is what was asked
    for.
    """

    def __init__(self, shown: bool, silent: bool = False, speed: str | None = None) -> None:
        self._shown = shown
        self._silent = silent
        self._speed = speed
        self._index = -1
        self._open = ""
        """What kind of block is open."""
        self._thought: type | None = None

    def __call__(self, events: list[ev.Event]) -> bytes:
        made = [one for event in events for one in self._events(event)]
        return b"".join([b"event: %b\ndata: %b\n\n" % (an.event_name(one).encode(), an.encode(one)) for one in made])

    def _events(self, event: ev.Event) -> Iterable[an.StreamEvent]:
        match event:
            case ev.TextDelta() | ev.RefusalDelta():
                yield self._delta(an.TextDelta(event.delta))
            case ev.ArgumentsDelta():
                yield self._delta(an.InputJsonDelta(event.delta))
            case ev.ReasoningTextDelta() | ev.ReasoningSummaryTextDelta():
                self._thought = self._thought or type(event)
                if self._open == "thinking" and not self._silent and self._thought is type(event):
                    yield self._delta(an.ThinkingDelta(event.delta))
            case ev.ItemAdded():
                yield from self._opened(event.item)
            case ev.PartAdded() if isinstance(event.part, OutputText | Refusal):
                yield self._start("text", an.TextBlock(""))
            case ev.PartDone() if self._open == "text":
                yield self._stop()
            case ev.ItemDone():
                yield from self._closed(event.item)
            case ev.Created():
                response = event.response
                yield an.MessageStart(an.MessagesResponse(id=message_id(response.id), model=response.model))
                yield an.Ping()
            case ev.Keepalive() | ev.Queued() | ev.InProgress():
                yield an.Ping()
            case ev.Completed() | ev.Incomplete():
                if self._open:
                    yield self._stop()
                yield an.MessageDelta(an.Ending(stop_reason(event.response)), _usage(event.response, self._speed))
                yield an.MessageStop()
            case ev.Failed():
                error = failed(event.response.error)
                yield an.StreamError(an.StreamFault(anthropic_error_type(error.status), error.message))

    def _opened(self, item: Item) -> Iterable[an.StreamEvent]:
        match item:
            case Reasoning() if self._shown:
                self._thought = None
                yield self._start("thinking", an.ThinkingBlock("", ""))
            case FunctionCall() | CustomToolCall():
                yield self._start("tool_use", an.ToolUseBlock(item.call_id, item.name, {}))

    def _closed(self, item: Item) -> Iterable[an.StreamEvent]:
        if isinstance(item, Reasoning) and self._open == "thinking":
            yield self._delta(an.SignatureDelta(item.encrypted_content or ""))
        elif isinstance(item, CustomToolCall) and self._open == "tool_use":
            yield self._delta(an.InputJsonDelta(msgspec.json.encode({"input": item.input}).decode()))
        if self._open:
            yield self._stop()

    def _start(self, kind: str, block: an.Block) -> an.StreamEvent:
        self._index += 1
        self._open = kind
        return an.ContentBlockStart(self._index, block)

    def _delta(
        self, delta: an.TextDelta | an.InputJsonDelta | an.ThinkingDelta | an.SignatureDelta
    ) -> an.ContentBlockDelta:
        return an.ContentBlockDelta(self._index, delta)

    def _stop(self) -> an.StreamEvent:
        self._open = ""
        return an.ContentBlockStop(self._index)


def shows_thinking(given: an.CountTokensRequest) -> tuple[bool, bool]:
    """Whether thinking blocks are wanted, and whether without their text."""
    thinking = given.thinking
    if thinking is None or thinking.type == "disabled":
        return False, False
    return True, thinking.display == "omitted"


def _usage(response: Response, speed: str | None) -> an.AnthropicUsage:
    """A tier is served as asked or refused, so the speed that was asked for is the one that served."""
    usage = an.AnthropicUsage() if response.usage is None else an.AnthropicUsage.of(response.usage)
    usage.speed = speed
    tier = response.service_tier
    usage.service_tier = "standard" if tier in (None, "default") else tier
    return usage


def _system(system: str | list[an.Block] | None) -> str:
    if system is None or isinstance(system, str):
        return system or ""
    texts = [block.text for block in system if isinstance(block, an.TextBlock)]
    return "\n\n".join(text for text in texts if not text.startswith(_ATTRIBUTION))


def _said(blocks: list[an.Block]) -> Iterable[Item]:
    """An assistant's turn."""
    for block in blocks:
        match block:
            case an.TextBlock():
                yield Message("assistant", [OutputText(block.text)])
            case an.ThinkingBlock():
                thought: list[ContentPart] | None = [ReasoningText(block.thinking)] if block.thinking else None
                yield Reasoning(content=thought, encrypted_content=block.signature or None)
            case an.RedactedThinkingBlock():
                yield Reasoning(encrypted_content=block.data)
            case an.ToolUseBlock():
                yield FunctionCall(block.id, block.name, msgspec.json.encode(block.input).decode())


def _given(role: Any, blocks: list[an.Block], place: str) -> Iterable[Item]:
    """A user's or system's turn: tool results and messages, in their order."""
    parts: list[ContentPart] = []
    for m, block in enumerate(blocks):
        if isinstance(block, an.ToolResultBlock):
            if parts:
                yield Message(role, parts)
                parts = []
            yield FunctionCallOutput(block.tool_use_id, _result(block, f"{place}.{m}"))
        else:
            parts += _part(block, f"{place}.{m}")
    if parts:
        yield Message(role, parts)


def _result(block: an.ToolResultBlock, place: str) -> str | list[ContentPart]:
    content = block.content
    if content is None or isinstance(content, str):
        return content or ""
    if all(isinstance(part, an.TextBlock) for part in content):
        return an.blocks_text(content)
    return [part for k, inner in enumerate(content) for part in _part(inner, f"{place}.content.{k}")]


def _part(block: an.Block, place: str) -> list[ContentPart]:
    match block:
        case an.TextBlock():
            return [InputText(block.text)]
        case an.ImageBlock(source={"type": "base64", "media_type": str() as kind, "data": str() as data}):
            return [InputImage(f"data:{kind};base64,{data}")]
        case an.ImageBlock(source={"type": "url", "url": str() as url}):
            return [InputImage(url)]
        case an.ImageBlock():
            raise BadRequest(f"{place}.source: base64 or url expected", f"{place}.source")
        case an.OtherBlock():
            text = block.get("text")
            return [InputText(text)] if isinstance(text, str) else []
        case _:
            return []


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    """A client's tool as a function; hosted ones keep their type, for whoever knows it."""
    if tool.get("type", "custom") != "custom":
        return tool
    return {
        "type": "function",
        "name": tool.get("name"),
        "description": tool.get("description") or "",
        "parameters": tool.get("input_schema") or {"type": "object", "properties": {}},
        "strict": bool(tool.get("strict", False)),
    }


def _choice(choice: an.ToolChoice) -> ToolChoice:
    return {"type": "function", "name": choice.name} if choice.type == "tool" else _MODES[choice.type]


def _effort(given: an.CountTokensRequest) -> str | None:
    """How much to think. Without ``thinking`` the protocol means none."""
    thinking = given.thinking
    if thinking is None or thinking.type == "disabled":
        return "none"
    if given.output_config is not None and given.output_config.effort is not None:
        return given.output_config.effort
    if thinking.budget_tokens is None:
        return None
    return "low" if thinking.budget_tokens < 4096 else "medium" if thinking.budget_tokens < 16384 else "high"


def _text_options(config: an.OutputConfig | None) -> TextOptions | None:
    form = config.format if config is not None else None
    if form is None:
        return None
    schema = form.get("schema")
    if form.get("type") != "json_schema" or not isinstance(schema, dict):
        raise BadRequest("output_config.format: a json_schema with a schema expected", "output_config.format")
    return TextOptions(JsonSchemaFormat("output", schema, True))


def _object(arguments: str) -> dict[str, Any]:
    """A call's arguments; cut-off ones are no call's, and stand as nothing."""
    try:
        return msgspec.json.decode(arguments, type=dict[str, Any])
    except msgspec.DecodeError:
        return {}

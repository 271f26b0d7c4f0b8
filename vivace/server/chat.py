"""Chat Completions in terms of Responses: a request becomes a request, events become chunks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from vivace.protocol import chat
from vivace.protocol import events as ev
from vivace.protocol.content import ContentPart, InputFile, InputImage, InputText, OutputText, ReasoningText, Refusal
from vivace.protocol.errors import BadRequest, error_body, error_type
from vivace.protocol.items import (
    CustomToolCall,
    CustomToolCallOutput,
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    Reasoning,
    Response,
    content_text,
    encode,
)
from vivace.protocol.options import (
    JsonObjectFormat,
    JsonSchemaFormat,
    PlainFormat,
    ReasoningOptions,
    TextFormat,
    TextOptions,
    ToolChoice,
)
from vivace.protocol.requests import ResponseRequest
from vivace.server.refusals import failed

DONE = b"data: [DONE]\n\n"
ALIVE = b": keep-alive\n\n"
"""A comment: strict clients of Chat Completions know no event without choices but the usage."""

_UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "logit_bias": ({},),
    "modalities": (["text"],),
    "audio": (),
    "web_search_options": (),
    "functions": ([],),
    "function_call": (),
}
"""What cannot be served, with the values that ask for nothing."""


def to_request(given: chat.ChatRequest) -> ResponseRequest:
    """The same request. Raises :class:`BadRequest` for what nobody here could answer as asked."""
    for name, harmless in _UNSUPPORTED.items():
        value = getattr(given, name)
        if value is not None and value not in harmless:
            hint = "Use tools and tool_choice." if name.startswith("function") else ""
            raise BadRequest(f"'{name}' = {str(value)[:80]} is not supported.", name, "unsupported_value", hint=hint)
    text = _text_options(given)
    effort = given.reasoning_effort or _template_effort(given.chat_template_kwargs)
    return ResponseRequest(
        model=given.model,
        input=to_items(given.messages),
        tools=None if given.tools is None else [_flat_tool(tool, n) for n, tool in enumerate(given.tools)],
        tool_choice=None if given.tool_choice is None else _flat_choice(given.tool_choice),
        parallel_tool_calls=given.parallel_tool_calls,
        reasoning=None if effort is None else ReasoningOptions(effort),
        text=text,
        max_output_tokens=given.max_completion_tokens or given.max_tokens,
        temperature=given.temperature,
        top_p=given.top_p,
        top_k=None if given.top_k is None else max(0, given.top_k),
        min_p=given.min_p,
        repetition_penalty=given.repetition_penalty,
        seed=given.seed,
        stop=[given.stop] if isinstance(given.stop, str) else list(given.stop or ()),
        store=False,
        stream=given.stream,
        service_tier=given.service_tier,
        metadata=given.metadata,
        prompt_cache_key=given.prompt_cache_key,
        safety_identifier=given.safety_identifier,
        user=given.user,
        prediction=given.prediction,
        priority=given.priority or 0,
    )


def to_items(messages: list[chat.ChatMessage]) -> list[Item]:
    """The history as items, each message in its place: developer and late system messages too."""
    items: list[Item] = []
    custom: set[str] = set()
    for n, message in enumerate(messages):
        match message.role:
            case "tool":
                if message.tool_call_id is None:
                    raise _missing(f"messages[{n}].tool_call_id")
                kind = CustomToolCallOutput if message.tool_call_id in custom else FunctionCallOutput
                items.append(kind(message.tool_call_id, _content(message, n)))
            case "function":
                raise BadRequest(
                    "The role 'function' is not supported; answer calls with the role 'tool'.", f"messages[{n}].role"
                )
            case "assistant":
                items += _said(message, n, custom)
            case role:
                if message.content is None:
                    raise _missing(f"messages[{n}].content")
                items.append(Message(role, _content(message, n)))
    return items


def completion(response: Response) -> chat.ChatCompletion:
    """A finished response as a whole answer. Raises :class:`BadRequest` for one that failed."""
    if response.status == "failed":
        raise failed(response.error)
    thoughts, text, refusal = "", "", ""
    calls: list[chat.ToolCall] = []
    for item in response.output:
        match item:
            case Reasoning():
                thoughts += content_text(item.content or item.summary)
            case Message(content=str() as said):
                text += said
            case Message():
                text += "".join(part.text for part in item.content if isinstance(part, OutputText))
                refusal += "".join(part.refusal for part in item.content if isinstance(part, Refusal))
            case FunctionCall():
                calls.append(chat.FunctionToolCall(item.call_id, chat.Function(item.name, item.arguments)))
            case CustomToolCall():
                calls.append(chat.CustomToolCall(item.call_id, chat.CustomInput(item.name, item.input)))
    answer = chat.ChatAnswer(
        content=text or (None if calls or refusal else ""),
        refusal=refusal or None,
        tool_calls=calls or None,
        reasoning_content=thoughts or None,
    )
    return chat.ChatCompletion(
        id=chat_id(response.id),
        created=int(response.created_at),
        model=response.model,
        choices=[chat.Choice(0, answer, finish_reason(response, bool(calls)))],
        usage=chat.ChatUsage.of(response.usage) if response.usage else None,
        service_tier=response.service_tier,
    )


def chat_id(response_id: str) -> str:
    return f"chatcmpl-{response_id.removeprefix('resp_')}"


def finish_reason(response: Response, calls: bool) -> str:
    """``stop``, ``length``, ``tool_calls`` or ``content_filter``."""
    reason = response.incomplete_details.reason if response.incomplete_details else ""
    if reason in ("max_output_tokens", "max_time"):
        return "length"
    if reason == "content_filter":
        return reason
    return "tool_calls" if calls else "stop"


class ChunkWriter:
    """Batches of events -> the bytes of a streamed answer."""

    def __init__(self, usage: bool) -> None:
        self._usage = usage
        self._chunk = chat.ChatCompletionChunk()
        self._calls: dict[str, int] = {}
        """The id of a call's item -> its index."""
        self._thoughts: dict[str, type] = {}
        """The id of a reasoning item -> whether its own text or its summary is shown: what comes first."""

    def __call__(self, events: list[ev.Event]) -> bytes:
        return b"".join([piece for event in events for piece in self._pieces(event)])

    def _pieces(self, event: ev.Event) -> Iterable[bytes]:
        match event:
            case ev.TextDelta():
                yield self._delta(chat.Delta(content=event.delta))
            case ev.ArgumentsDelta():
                yield self._call(event.item_id, function=chat.FunctionDelta(arguments=event.delta))
            case ev.CustomInputDelta():
                yield self._call(event.item_id, custom=chat.CustomDelta(input=event.delta))
            case ev.ReasoningTextDelta() | ev.ReasoningSummaryTextDelta():
                if self._thoughts.setdefault(event.item_id, type(event)) is type(event):
                    yield self._delta(chat.Delta(reasoning_content=event.delta))
            case ev.RefusalDelta():
                yield self._delta(chat.Delta(refusal=event.delta))
            case ev.ItemAdded():
                yield from self._opened(event.item)
            case ev.Created():
                response = event.response
                self._chunk.id, self._chunk.model = chat_id(response.id), response.model
                self._chunk.created = int(response.created_at)
                yield self._delta(chat.Delta(role="assistant", content=""))
            case ev.Keepalive() | ev.Queued() | ev.InProgress():
                yield ALIVE
            case ev.Completed() | ev.Incomplete():
                yield from self._ending(event.response)
            case ev.Failed():
                error = failed(event.response.error)
                body = error_body(error.message, error_type(error.status), error.code)
                yield b"data: %b\n\n" % encode(body)

    def _opened(self, item: Item) -> Iterable[bytes]:
        if not isinstance(item, FunctionCall | CustomToolCall):
            return
        index = self._calls[item.id or ""] = len(self._calls)
        call = chat.ToolCallDelta(index, item.call_id, "function")
        if isinstance(item, FunctionCall):
            call.function = chat.FunctionDelta(item.name, "")
        else:
            call.type, call.custom = "custom", chat.CustomDelta(item.name, "")
        yield self._delta(chat.Delta(tool_calls=[call]))

    def _call(
        self, item_id: str, function: chat.FunctionDelta | None = None, custom: chat.CustomDelta | None = None
    ) -> bytes:
        piece = chat.ToolCallDelta(self._calls.get(item_id, 0), function=function, custom=custom)
        return self._delta(chat.Delta(tool_calls=[piece]))

    def _ending(self, response: Response) -> Iterable[bytes]:
        self._chunk.service_tier = response.service_tier
        yield self._delta(chat.Delta(), finish_reason(response, bool(self._calls)))
        if self._usage and response.usage is not None:
            self._chunk.choices, self._chunk.usage = [], chat.ChatUsage.of(response.usage)
            yield b"data: %b\n\n" % encode(self._chunk)
        yield DONE

    def _delta(self, delta: chat.Delta, finish: str | None = None) -> bytes:
        self._chunk.choices = [chat.ChunkChoice(0, delta, finish)]
        return b"data: %b\n\n" % encode(self._chunk)


def _said(message: chat.ChatMessage, n: int, custom: set[str]) -> Iterable[Item]:
    """An assistant's turn: thoughts, words, calls. ``custom`` learns the ids of calls of custom tools."""
    if message.reasoning_content:
        yield Reasoning(content=[ReasoningText(message.reasoning_content)])
    parts: list[ContentPart] = []
    if isinstance(message.content, str):
        parts = [OutputText(message.content)] if message.content else []
    for part in message.content if isinstance(message.content, list) else ():
        if isinstance(part, chat.TextPart):
            parts.append(OutputText(part.text))
        elif isinstance(part, chat.RefusalPart):
            parts.append(Refusal(part.refusal))
    if message.refusal:
        parts.append(Refusal(message.refusal))
    if parts:
        yield Message("assistant", parts)
    for m, call in enumerate(message.tool_calls or ()):
        match call:
            case chat.FunctionToolCall():
                yield FunctionCall(call.id, call.function.name, call.function.arguments)
            case chat.CustomToolCall():
                custom.add(call.id)
                yield CustomToolCall(call.id, call.custom.name, call.custom.input)
            case _:
                place = f"messages[{n}].tool_calls[{m}].type"
                raise BadRequest(f"Unknown type of call at '{place}'.", place)


def _content(message: chat.ChatMessage, n: int) -> str | list[ContentPart]:
    """A message's content in the parts of an input item."""
    if message.content is None or isinstance(message.content, str):
        return message.content or ""
    return [_part(part, f"messages[{n}].content[{m}]") for m, part in enumerate(message.content)]


def _part(part: chat.ChatPart, place: str) -> ContentPart:
    match part:
        case chat.TextPart():
            return InputText(part.text)
        case chat.ImagePart():
            return InputImage(part.image_url.url, part.image_url.detail)
        case chat.FilePart():
            file = part.file
            return InputFile(file.get("filename"), file.get("file_data"), file.get("file_id"))
        case _:
            raise BadRequest(f"The part at '{place}' cannot be read; send text.", place, "unsupported_content")


def _flat_tool(tool: dict[str, Any], n: int) -> dict[str, Any]:
    """A nested tool as Responses has it: its fields beside its type."""
    kind = tool.get("type", "function")
    inner = tool.get(kind) if isinstance(kind, str) else None
    if not isinstance(inner, dict):
        if kind in ("function", "custom"):
            raise _missing(f"tools[{n}].{kind}")
        return tool
    flat = {"type": kind, **{name: value for name, value in inner.items() if name != "type"}}
    form = flat.get("format")
    if isinstance(form, dict) and isinstance(form.get("grammar"), dict):
        flat["format"] = {"type": "grammar", **form["grammar"]}
    return flat


def _flat_choice(choice: ToolChoice) -> ToolChoice:
    if isinstance(choice, str):
        return choice
    kind = choice.get("type")
    inner = choice.get(kind) if isinstance(kind, str) else None
    if not isinstance(inner, dict):
        return choice
    flat = {"type": kind, **inner}
    if isinstance(flat.get("tools"), list):
        flat["tools"] = [_flat_choice(tool) if isinstance(tool, dict) else tool for tool in flat["tools"]]
    return flat


def _text_options(given: chat.ChatRequest) -> TextOptions | None:
    form: TextFormat | None = None
    match given.response_format:
        case chat.PlainFormat():
            form = PlainFormat()
        case chat.JsonObjectFormat():
            form = JsonObjectFormat()
        case chat.JsonSchemaFormat(json_schema=wanted):
            if wanted.schema is None:
                raise _missing("response_format.json_schema.schema")
            form = JsonSchemaFormat(wanted.name, wanted.schema, wanted.strict, wanted.description)
    return TextOptions(form, given.verbosity) if form or given.verbosity else None


def _template_effort(values: dict[str, Any] | None) -> str | None:
    """Open servers' ``enable_thinking``, the one value of a template that has a meaning here."""
    for name, value in (values or {}).items():
        if name not in ("enable_thinking", "thinking") or not isinstance(value, bool):
            place = f"chat_template_kwargs.{name}"
            raise BadRequest(f"'{place}' is not supported; only enable_thinking is.", place, "unsupported_value")
        if not value:
            return "none"
    return None


def _missing(place: str) -> BadRequest:
    return BadRequest(f"Missing required parameter: '{place}'.", place, "missing_required_parameter")

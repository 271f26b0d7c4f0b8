"""Items of the Responses API: what goes into a response and what comes out of it.

Field names and shapes are OpenAI's (openai-python 3.57, generated from the published OpenAPI file). Unknown keys pass,
items and parts of unknown type are kept as they came. Written, a field that is None is left out where OpenAI's types
have it optional.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec
from msgspec import Struct, field

from vivace.protocol.content import ContentPart as ContentPart
from vivace.protocol.content import InputFile as InputFile
from vivace.protocol.content import InputImage as InputImage
from vivace.protocol.content import InputText as InputText
from vivace.protocol.content import OtherPart as OtherPart
from vivace.protocol.content import OutputText as OutputText
from vivace.protocol.content import ReasoningText as ReasoningText
from vivace.protocol.content import Refusal as Refusal
from vivace.protocol.content import SummaryText as SummaryText
from vivace.protocol.content import content_text as content_text
from vivace.protocol.content import part_text as part_text
from vivace.protocol.defaults import empty
from vivace.protocol.options import ReasoningOptions, TextOptions, ToolChoice
from vivace.protocol.unions import Other, dec_hook, open_union
from vivace.protocol.usage import InputTokensDetails as InputTokensDetails
from vivace.protocol.usage import OutputTokensDetails as OutputTokensDetails
from vivace.protocol.usage import Usage as Usage

Role = Literal["user", "assistant", "system", "developer"]
ItemStatus = Literal["in_progress", "completed", "incomplete"]
Phase = Literal["commentary", "final_answer"]


_drawing = threading.Lock()
_random = bytearray()
"""Bytes of the system's generator that no id has used yet; a call for each would be 3 % of a gateway's time."""
os.register_at_fork(after_in_child=_random.clear)


def new_id(prefix: str) -> str:
    """A fresh id such as ``resp_...`` or ``msg_...``, that nobody can guess. Safe in any thread."""
    with _drawing:
        if not _random:
            _random.extend(os.urandom(4096))
        drawn = _random[-16:].hex()
        del _random[-16:]
    return f"{prefix}_{drawn}"


class Message(Struct, tag_field="type", tag="message", omit_defaults=True):
    """A message, given or made. ``content`` is a string or parts; output messages have one ``output_text`` part.

    ``phase`` tells talk between tool calls from the answer itself.
    """

    role: Role
    content: str | list[ContentPart]
    id: str | None = None
    status: ItemStatus | None = None
    phase: Phase | None = None

    @property
    def text(self) -> str:
        """The text of all parts, joined."""
        return content_text(self.content)


class Reasoning(Struct, tag_field="type", tag="reasoning", omit_defaults=True):
    """What the model thought. ``content`` is the raw text, ``summary`` what may be shown of it;
    ``encrypted_content`` is opaque and comes back unchanged. Clients may send ``content`` as null and drop ``id``."""

    id: str | None = None
    summary: list[ContentPart] = field(default_factory=empty)
    content: list[ContentPart] | None = None
    encrypted_content: str | None = None
    status: ItemStatus | None = None


class FunctionCall(Struct, tag_field="type", tag="function_call", omit_defaults=True):
    """``arguments`` is JSON text. ``namespace`` is a field of its own: clients know no joined names."""

    call_id: str
    name: str
    arguments: str
    namespace: str | None = None
    id: str | None = None
    status: ItemStatus | None = None


class FunctionCallOutput(Struct, tag_field="type", tag="function_call_output", omit_defaults=True):
    call_id: str
    output: str | list[ContentPart]
    id: str | None = None
    status: ItemStatus | None = None


class CustomToolCall(Struct, tag_field="type", tag="custom_tool_call", omit_defaults=True):
    """A call whose ``input`` is free text, such as a patch."""

    call_id: str
    name: str
    input: str
    namespace: str | None = None
    id: str | None = None
    status: ItemStatus | None = None


class CustomToolCallOutput(Struct, tag_field="type", tag="custom_tool_call_output", omit_defaults=True):
    call_id: str
    output: str | list[ContentPart]
    id: str | None = None
    status: ItemStatus | None = None


class Compaction(Struct, tag_field="type", tag="compaction", omit_defaults=True):
    """Stands for everything before it. ``encrypted_content`` is opaque and comes back unchanged."""

    encrypted_content: str
    id: str | None = None


class CompactionTrigger(Struct, tag_field="type", tag="compaction_trigger"):
    """As the last input item: answer with one :class:`Compaction`."""


class AdditionalTools(Struct, tag_field="type", tag="additional_tools", omit_defaults=True):
    """Tools that are offered from this place of the conversation on."""

    tools: list[dict[str, Any]]
    role: str | None = None
    id: str | None = None


class WebSearchCall(Struct, tag_field="type", tag="web_search_call", omit_defaults=True):
    """``status`` is one of in_progress, searching, completed, failed; ``action`` what was searched or opened."""

    id: str | None = None
    status: str | None = None
    action: dict[str, Any] | None = None


class ItemReference(Struct, tag_field="type", tag="item_reference"):
    """An item that the server has stored."""

    id: str


class OtherItem(Other):
    """An item of unknown type, as it came."""


KNOWN_ITEMS = (
    Message, Reasoning, FunctionCall, FunctionCallOutput, CustomToolCall, CustomToolCallOutput, Compaction,
    CompactionTrigger, AdditionalTools, WebSearchCall, ItemReference,
)  # fmt: skip


def _untyped(value: dict[str, Any]) -> str:
    """Clients leave out the ``type`` of messages (opencode) and of references (OpenAI's types have it optional)."""
    if "role" in value:
        return "message"
    return "item_reference" if value.keys() <= {"id", "type"} and "id" in value else ""


if TYPE_CHECKING:
    Item: TypeAlias = (
        Message
        | Reasoning
        | FunctionCall
        | FunctionCallOutput
        | CustomToolCall
        | CustomToolCallOutput
        | Compaction
        | CompactionTrigger
        | AdditionalTools
        | WebSearchCall
        | ItemReference
        | OtherItem
    )
else:
    Item = open_union("Item", KNOWN_ITEMS, OtherItem, _untyped)

IncompleteReason = Literal["max_output_tokens", "max_time", "content_filter", "steered", "stopped", "max_messages"]


class IncompleteDetails(Struct):
    """``reason`` is an :data:`IncompleteReason` when the answer is ours; other servers have words of their own."""

    reason: str


class ResponseError(Struct):
    code: str
    message: str


ResponseStatus = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]


class Response(Struct):
    """The object of one response, as ``response.created`` opens it and the last event closes it.

    Times are seconds since 1970. ``service_tier`` is the tier that serves.
    """

    id: str
    model: str
    created_at: float
    object: str = "response"
    status: ResponseStatus = "in_progress"
    output: list[Item] = field(default_factory=list)
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | list[Item] | None = None
    previous_response_id: str | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    parallel_tool_calls: bool = True
    tool_choice: ToolChoice = "auto"
    tools: list[Any] = field(default_factory=list)
    usage: Usage | None = None
    completed_at: float | None = None
    background: bool | None = False
    max_tool_calls: int | None = None
    metadata: dict[str, str] | None = field(default_factory=dict)
    prompt_cache_key: str | None = None
    reasoning: ReasoningOptions | None = None
    safety_identifier: str | None = None
    service_tier: str | None = None
    store: bool | None = None
    text: TextOptions | None = None
    top_logprobs: int | None = None
    truncation: str | None = "disabled"
    user: str | None = None


_decode_items = msgspec.json.Decoder(str | list[Item], dec_hook=dec_hook).decode


def items_of(given: str | list[Any] | msgspec.Raw) -> list[Item]:
    """What ``input`` means, from parsed or raw JSON: a string is one user message.

    Raises :class:`msgspec.ValidationError` for an item of a known type that has not its shape.
    """
    if isinstance(given, msgspec.Raw):
        given = _decode_items(given)
    if isinstance(given, str):
        return [Message("user", given)]
    items: list[Item] = msgspec.convert(given, list[Item], dec_hook=dec_hook)
    return items


def item_of(value: Any) -> Item:
    """One item from a builtin object. Raises :class:`msgspec.ValidationError`."""
    item: Item = msgspec.convert(value, Item, dec_hook=dec_hook)
    return item


def part_of(value: Any) -> ContentPart:
    """One part from a builtin object. Raises :class:`msgspec.ValidationError`."""
    part: ContentPart = msgspec.convert(value, ContentPart, dec_hook=dec_hook)
    return part


def item_text(item: Item) -> str:
    """What an item says, as text: content, arguments, input or output; reasoning before its summary."""
    match item:
        case Message():
            return item.text
        case Reasoning():
            return content_text(item.content or item.summary)
        case FunctionCall():
            return item.arguments
        case CustomToolCall():
            return item.input
        case FunctionCallOutput() | CustomToolCallOutput():
            return content_text(item.output)
        case _:
            return ""


encode = msgspec.json.Encoder().encode
"""Any object of the protocol -> JSON bytes."""

to_builtins = msgspec.to_builtins
"""Any object of the protocol -> dicts and lists of its public shape."""

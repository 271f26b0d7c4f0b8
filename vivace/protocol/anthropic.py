"""Anthropic's Messages: the request, the answer, and the events of a streamed one.

The subset that Claude Code uses, measured with 2.1.332; unknown keys and content blocks pass. A streamed answer is
``message_start``, ``ping``, per block ``content_block_start``, ``content_block_delta``*, ``content_block_stop``, then
``message_delta`` and ``message_stop``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec
from msgspec import Struct, field

from vivace.protocol.defaults import empty, empty_object, null, written
from vivace.protocol.errors import BadRequest, decoded
from vivace.protocol.requests import Count, Positive, Share
from vivace.protocol.unions import Other, dec_hook, open_union
from vivace.protocol.usage import InputTokensDetails, OutputTokensDetails, Usage


class TextBlock(Struct, tag_field="type", tag="text", omit_defaults=True):
    text: str
    cache_control: dict[str, Any] | None = None


class ImageBlock(Struct, tag_field="type", tag="image", omit_defaults=True):
    """``source`` has type base64 (``media_type``, ``data``) or url (``url``)."""

    source: dict[str, Any]
    cache_control: dict[str, Any] | None = None


class ToolUseBlock(Struct, tag_field="type", tag="tool_use", omit_defaults=True):
    """``input`` is the arguments as an object."""

    id: str
    name: str
    input: dict[str, Any] = field(default_factory=empty_object)
    cache_control: dict[str, Any] | None = None


class ToolResultBlock(Struct, tag_field="type", tag="tool_result", omit_defaults=True):
    tool_use_id: str
    content: str | list[Block] | None = None
    is_error: bool | None = None
    cache_control: dict[str, Any] | None = None


class ThinkingBlock(Struct, tag_field="type", tag="thinking"):
    """``signature`` is opaque and comes back unchanged; the text may be omitted."""

    thinking: str
    signature: str = ""


class RedactedThinkingBlock(Struct, tag_field="type", tag="redacted_thinking"):
    data: str


class OtherBlock(Other):
    """A block of unknown type, as it came."""


if TYPE_CHECKING:
    Block: TypeAlias = (
        TextBlock | ImageBlock | ToolUseBlock | ToolResultBlock | ThinkingBlock | RedactedThinkingBlock | OtherBlock
    )
else:
    Block = open_union(
        "Block",
        (TextBlock, ImageBlock, ToolUseBlock, ToolResultBlock, ThinkingBlock, RedactedThinkingBlock),
        OtherBlock,
    )


def blocks_text(content: str | list[Block] | None) -> str:
    """The text of a content, its text blocks joined."""
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(block.text for block in content if isinstance(block, TextBlock))


class InputMessage(Struct):
    """Claude Code puts messages of the role ``system`` between the others."""

    role: Literal["user", "assistant", "system"]
    content: str | list[Block]

    @property
    def text(self) -> str:
        """The text of all blocks, joined."""
        return blocks_text(self.content)


class ToolChoice(Struct, omit_defaults=True):
    """``tool`` wants the one of ``name``; ``any`` wants some call."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(Struct, omit_defaults=True):
    """``type`` is enabled (with ``budget_tokens``), disabled or adaptive; ``display`` omitted leaves the text out."""

    type: str
    budget_tokens: Positive | None = None
    display: str | None = None


class OutputConfig(Struct, omit_defaults=True):
    """``effort`` is a word such as low, medium, high, max; ``format`` a JSON schema for the answer."""

    effort: str | None = None
    format: dict[str, Any] | None = None


class CountTokensRequest(Struct, kw_only=True, omit_defaults=True):
    """What of a request makes its prompt."""

    model: str
    messages: list[InputMessage]
    system: str | list[Block] | None = None
    tools: list[dict[str, Any]] | None = None
    """As the client wrote them: ``name``, ``description``, ``input_schema``; hosted ones have a ``type``."""
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    context_management: dict[str, Any] | None = None


class MessagesRequest(CountTokensRequest, kw_only=True, omit_defaults=True):
    max_tokens: Positive
    stream: bool | None = None
    stop_sequences: list[str] | None = None
    temperature: Share | None = None
    top_p: Share | None = None
    top_k: Count | None = None
    metadata: dict[str, Any] | None = None
    service_tier: str | None = None
    speed: str | None = None
    """``fast`` asks for the fast tier."""


class TokenCount(Struct):
    """The answer of count_tokens."""

    input_tokens: int


class AnthropicUsage(Struct, omit_defaults=True):
    """``input_tokens`` are those that were read from no cache, and written to none."""

    input_tokens: int | None = field(default_factory=written(0))
    cache_creation_input_tokens: int | None = field(default_factory=written(0))
    cache_read_input_tokens: int | None = field(default_factory=written(0))
    output_tokens: int = field(default_factory=written(0))
    service_tier: str | None = None
    speed: str | None = None

    @classmethod
    def of(cls, usage: Usage) -> AnthropicUsage:
        """The same count under these names. OpenAI counts cached tokens within the input, Anthropic beside it."""
        details = usage.input_tokens_details
        rest = usage.input_tokens - details.cached_tokens - details.cache_write_tokens
        return cls(rest, details.cache_write_tokens, details.cached_tokens, usage.output_tokens)

    @property
    def usage(self) -> Usage:
        """The same count under the names of the Responses API; thinking is not told apart."""
        read, wrote = self.cache_read_input_tokens or 0, self.cache_creation_input_tokens or 0
        given = (self.input_tokens or 0) + read + wrote
        details = InputTokensDetails(read, wrote)
        return Usage(given, details, self.output_tokens, OutputTokensDetails(), given + self.output_tokens)


class MessagesResponse(Struct, kw_only=True, tag_field="type", tag="message"):
    """A whole answer. ``stop_reason`` is end_turn, max_tokens, stop_sequence, tool_use or refusal; null while open."""

    id: str
    role: str = "assistant"
    model: str
    content: list[Block] = field(default_factory=empty)
    stop_reason: str | None = None
    stop_sequence: str | None = None
    usage: AnthropicUsage = field(default_factory=AnthropicUsage)


class TextDelta(Struct, tag_field="type", tag="text_delta"):
    text: str


class InputJsonDelta(Struct, tag_field="type", tag="input_json_delta"):
    """A piece of the arguments as JSON text."""

    partial_json: str


class ThinkingDelta(Struct, tag_field="type", tag="thinking_delta"):
    thinking: str


class SignatureDelta(Struct, tag_field="type", tag="signature_delta"):
    signature: str


class MessageStart(Struct, tag_field="type", tag="message_start"):
    message: MessagesResponse


class Ping(Struct, tag_field="type", tag="ping"):
    """Keeps the connection alive."""


class ContentBlockStart(Struct, tag_field="type", tag="content_block_start"):
    index: int
    content_block: Block


class ContentBlockDelta(Struct, tag_field="type", tag="content_block_delta"):
    index: int
    delta: TextDelta | InputJsonDelta | ThinkingDelta | SignatureDelta


class ContentBlockStop(Struct, tag_field="type", tag="content_block_stop"):
    index: int


class Ending(Struct, omit_defaults=True):
    stop_reason: str | None = field(default_factory=null)
    stop_sequence: str | None = field(default_factory=null)


class MessageDelta(Struct, tag_field="type", tag="message_delta"):
    """How the answer ends; ``usage`` is that of the whole answer."""

    delta: Ending
    usage: AnthropicUsage


class MessageStop(Struct, tag_field="type", tag="message_stop"):
    """The last event."""


class StreamFault(Struct):
    type: str
    message: str


class StreamError(Struct, tag_field="type", tag="error"):
    """A failure after the stream began; nothing follows."""

    error: StreamFault


StreamEvent = (
    MessageStart
    | Ping
    | ContentBlockStart
    | ContentBlockDelta
    | ContentBlockStop
    | MessageDelta
    | MessageStop
    | StreamError
)

encode = msgspec.json.Encoder().encode
"""Event or answer -> JSON bytes."""

decode = msgspec.json.Decoder(StreamEvent, dec_hook=dec_hook).decode
"""JSON -> StreamEvent; raises :class:`msgspec.DecodeError`."""


def event_name(event: StreamEvent) -> str:
    """What stands in the ``event:`` line."""
    return str(type(event).__struct_config__.tag)


_decode_request = msgspec.json.Decoder(MessagesRequest, dec_hook=dec_hook).decode
_decode_count = msgspec.json.Decoder(CountTokensRequest, dec_hook=dec_hook).decode


def decode_messages_request(body: bytes | str) -> MessagesRequest:
    """The body of a POST. Raises :class:`vivace.protocol.errors.BadRequest`, which names the parameter."""
    request = decoded(_decode_request, body)
    _check_tools(request)
    return request


def decode_count_request(body: bytes | str) -> CountTokensRequest:
    """The body of a POST to count_tokens. Raises :class:`vivace.protocol.errors.BadRequest`."""
    request = decoded(_decode_count, body)
    _check_tools(request)
    return request


def _check_tools(request: CountTokensRequest) -> None:
    for n, tool in enumerate(request.tools or ()):
        if not isinstance(tool.get("name"), str) and not isinstance(tool.get("type"), str):
            raise BadRequest(f"tools[{n}].name: field required", f"tools[{n}].name", "missing_required_parameter")

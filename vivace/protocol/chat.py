"""Chat Completions: the request, the answer, and the chunks of a streamed one.

Shapes are OpenAI's, with what open servers and their clients add: ``reasoning_content`` on messages and deltas (given
back by the client with the history), ``top_k``, ``min_p``, ``repetition_penalty``. Unknown keys pass. Answers are also
read from other servers, so what the shape requires of us is not required of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct, field

from vivace.protocol.defaults import empty, null, written
from vivace.protocol.errors import decoded
from vivace.protocol.options import ToolChoice
from vivace.protocol.requests import Count, Positive, Prediction, Share, Temperature
from vivace.protocol.unions import Other, dec_hook, open_union
from vivace.protocol.usage import InputTokensDetails, OutputTokensDetails, Usage

Penalty = Annotated[float, Meta(ge=-2, le=2)]


class TextPart(Struct, tag_field="type", tag="text"):
    text: str


class ImageUrl(Struct, omit_defaults=True):
    url: str
    detail: str | None = None


class ImagePart(Struct, tag_field="type", tag="image_url"):
    image_url: ImageUrl


class AudioPart(Struct, tag_field="type", tag="input_audio"):
    input_audio: dict[str, Any]


class FilePart(Struct, tag_field="type", tag="file"):
    """``file`` has ``file_data`` (base64), ``file_id``, ``filename``."""

    file: dict[str, Any]


class RefusalPart(Struct, tag_field="type", tag="refusal"):
    refusal: str


class OtherChatPart(Other):
    """A part of unknown type, as it came."""


class Function(Struct):
    """``arguments`` is JSON text."""

    name: str
    arguments: str = ""


class FunctionToolCall(Struct, tag_field="type", tag="function"):
    id: str
    function: Function


class CustomInput(Struct):
    name: str
    input: str = ""


class CustomToolCall(Struct, tag_field="type", tag="custom"):
    id: str
    custom: CustomInput


class OtherToolCall(Other):
    """A call of unknown type, as it came."""


def _function(value: dict[str, Any]) -> str:
    return "function"


if TYPE_CHECKING:
    ChatPart: TypeAlias = TextPart | ImagePart | AudioPart | FilePart | RefusalPart | OtherChatPart
    ToolCall: TypeAlias = FunctionToolCall | CustomToolCall | OtherToolCall
else:
    ChatPart = open_union("ChatPart", (TextPart, ImagePart, AudioPart, FilePart, RefusalPart), OtherChatPart)
    ToolCall = open_union("ToolCall", (FunctionToolCall, CustomToolCall), OtherToolCall, _function)


class ChatMessage(Struct, omit_defaults=True):
    """One message of the history. ``tool_call_id`` is a tool message's; ``function`` is the old name of that role."""

    role: Literal["developer", "system", "user", "assistant", "tool", "function"]
    content: str | list[ChatPart] | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None

    @property
    def text(self) -> str:
        """The text of all parts, joined."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content or () if isinstance(part, TextPart))


class JsonSchema(Struct, omit_defaults=True):
    name: str
    schema: dict[str, Any] | None = None
    strict: bool | None = None
    description: str | None = None


class PlainFormat(Struct, tag_field="type", tag="text"):
    """Text without a form."""


class JsonObjectFormat(Struct, tag_field="type", tag="json_object"):
    """Any JSON object."""


class JsonSchemaFormat(Struct, tag_field="type", tag="json_schema"):
    """JSON that a schema describes."""

    json_schema: JsonSchema


class StreamOptions(Struct, omit_defaults=True):
    """``include_usage`` asks for a last chunk without choices that carries the usage."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class ChatRequest(Struct, kw_only=True, omit_defaults=True):
    """One request. Tools are nested (``{"type": "function", "function": {...}}``) and kept as the client wrote them."""

    model: str
    messages: list[ChatMessage]
    tools: list[dict[str, Any]] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    functions: list[dict[str, Any]] | None = None
    function_call: str | dict[str, Any] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Positive | None = None
    max_completion_tokens: Positive | None = None
    prediction: Prediction | None = None
    response_format: PlainFormat | JsonObjectFormat | JsonSchemaFormat | None = None
    reasoning_effort: str | None = None
    verbosity: Literal["low", "medium", "high"] | None = None
    n: Positive | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    logit_bias: dict[str, float] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    service_tier: str | None = None
    store: bool | None = None
    metadata: dict[str, str] | None = None
    modalities: list[str] | None = None
    audio: dict[str, Any] | None = None
    web_search_options: dict[str, Any] | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None
    user: str | None = None
    top_k: Annotated[int, Meta(ge=-1)] | None = None
    """Open servers' extension: keep the k most likely tokens; 0 or -1 keeps all."""
    min_p: Share | None = None
    """Open servers' extension: drop tokens less likely than this share of the most likely one."""
    repetition_penalty: Annotated[float, Meta(gt=0)] | None = None
    """Open servers' extension: divide the logits of tokens already seen; 1 is off."""
    chat_template_kwargs: dict[str, Any] | None = None
    """Open servers' extension: values for the model's own chat template."""
    priority: int | None = None
    """Extension, as in Responses: higher goes first."""


class PromptTokensDetails(Struct):
    cached_tokens: int | None = 0


class CompletionTokensDetails(Struct):
    reasoning_tokens: int | None = 0
    accepted_prediction_tokens: int | None = 0
    rejected_prediction_tokens: int | None = 0


class ChatUsage(Struct):
    prompt_tokens: Count = 0
    completion_tokens: Count = 0
    total_tokens: Count = 0
    prompt_tokens_details: PromptTokensDetails | None = None
    completion_tokens_details: CompletionTokensDetails | None = None

    @classmethod
    def of(cls, usage: Usage) -> ChatUsage:
        """The same count under these names."""
        made = usage.output_tokens_details
        return cls(
            usage.input_tokens,
            usage.output_tokens,
            usage.total_tokens,
            PromptTokensDetails(usage.input_tokens_details.cached_tokens),
            CompletionTokensDetails(
                made.reasoning_tokens, made.accepted_prediction_tokens, made.rejected_prediction_tokens
            ),
        )

    @property
    def usage(self) -> Usage:
        """The same count under the names of the Responses API; what was not told is 0."""
        given = self.prompt_tokens_details or PromptTokensDetails()
        made = self.completion_tokens_details or CompletionTokensDetails()
        return Usage(
            self.prompt_tokens,
            InputTokensDetails(given.cached_tokens or 0),
            self.completion_tokens,
            OutputTokensDetails(
                made.reasoning_tokens or 0, made.accepted_prediction_tokens or 0, made.rejected_prediction_tokens or 0
            ),
            self.total_tokens or self.prompt_tokens + self.completion_tokens,
        )


class ChatAnswer(Struct, omit_defaults=True):
    """The message of a finished choice. Other servers call ``reasoning_content`` ``reasoning``."""

    role: str = field(default_factory=written("assistant"))
    content: str | None = field(default_factory=null)
    refusal: str | None = field(default_factory=null)
    tool_calls: list[ToolCall] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class Choice(Struct):
    """``finish_reason`` is one of stop, length, tool_calls, content_filter."""

    index: int
    message: ChatAnswer
    finish_reason: str | None = None
    logprobs: dict[str, Any] | None = None


class ChatCompletion(Struct, kw_only=True, omit_defaults=True):
    """A whole answer. ``created`` is in seconds since 1970."""

    id: str = field(default_factory=written(""))
    object: str = field(default_factory=written("chat.completion"))
    created: int = field(default_factory=written(0))
    model: str = field(default_factory=written(""))
    choices: list[Choice] = field(default_factory=empty)
    usage: ChatUsage | None = None
    service_tier: str | None = None
    system_fingerprint: str | None = None


class FunctionDelta(Struct, omit_defaults=True):
    name: str | None = None
    arguments: str | None = None


class CustomDelta(Struct, omit_defaults=True):
    name: str | None = None
    input: str | None = None


class ToolCallDelta(Struct, omit_defaults=True):
    """A piece of the call at ``index``; ``id``, ``type`` and the name come once, with its first piece."""

    index: int = field(default_factory=written(0))
    id: str | None = None
    type: str | None = None
    function: FunctionDelta | None = None
    custom: CustomDelta | None = None


class Delta(Struct, omit_defaults=True):
    role: str | None = None
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[ToolCallDelta] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class ChunkChoice(Struct, omit_defaults=True):
    index: int = field(default_factory=written(0))
    delta: Delta = field(default_factory=Delta)
    finish_reason: str | None = field(default_factory=null)
    logprobs: dict[str, Any] | None = None


class ChatCompletionChunk(Struct, kw_only=True, omit_defaults=True):
    """A piece of an answer. ``error`` is what some servers send when a stream fails; we close the stream after it."""

    id: str = field(default_factory=written(""))
    object: str = field(default_factory=written("chat.completion.chunk"))
    created: int = field(default_factory=written(0))
    model: str = field(default_factory=written(""))
    choices: list[ChunkChoice] = field(default_factory=empty)
    usage: ChatUsage | None = None
    service_tier: str | None = None
    system_fingerprint: str | None = None
    error: dict[str, Any] | str | None = None


_decode_request = msgspec.json.Decoder(ChatRequest, dec_hook=dec_hook).decode

decode_completion = msgspec.json.Decoder(ChatCompletion, dec_hook=dec_hook).decode
"""JSON -> ChatCompletion; raises :class:`msgspec.DecodeError`."""

decode_chunk = msgspec.json.Decoder(ChatCompletionChunk, dec_hook=dec_hook).decode
"""JSON -> ChatCompletionChunk; raises :class:`msgspec.DecodeError`."""


def decode_chat_request(body: bytes | str) -> ChatRequest:
    """The body of a POST. Raises :class:`vivace.protocol.errors.BadRequest`, which names the parameter."""
    return decoded(_decode_request, body)

"""The request that starts a response, and the other frames of a client on a WebSocket.

OpenAI's fields, and vivace's extensions for what its own engine can do; each extension is marked. None is "not said":
what a request means where it says nothing is the service's to know.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Struct, field

from vivace.protocol.defaults import empty
from vivace.protocol.errors import BadRequest, decoded
from vivace.protocol.items import Item
from vivace.protocol.options import ReasoningOptions, TextOptions, ToolChoice
from vivace.protocol.unions import dec_hook

Share = Annotated[float, Meta(ge=0, le=1)]
Temperature = Annotated[float, Meta(ge=0, le=2)]
Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
StreamId = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{1,256}\Z")]


class PredictionPart(Struct):
    """A text part as Chat Completions has it; its ``type`` is ``text`` and need not be said."""

    text: str


if TYPE_CHECKING:
    PredictedText: TypeAlias = str
else:
    PredictedText = str | list[PredictionPart]


class Prediction(Struct, tag_field="type", tag="content"):
    """What the answer will mostly be: the text that drafts are copied from. Changes speed, never output.

    Given as parts, it is their text joined.
    """

    content: PredictedText

    def __post_init__(self) -> None:
        parts: Any = self.content  # a decoder may have put parts here
        if isinstance(parts, list):
            self.content = "".join(part.text for part in parts)


class PromptCacheOptions(Struct, omit_defaults=True):
    """``prewarm`` means what ``generate: false`` means."""

    mode: str | None = None
    ttl: str | None = None
    prewarm: bool | None = None
    comparison_response_id: str | None = None


class ContextManagement(Struct, omit_defaults=True):
    """``compact_threshold`` is in tokens: compact when the context has grown beyond it."""

    type: str
    compact_threshold: Positive | None = None


class ResponseRequest(Struct, kw_only=True, omit_defaults=True):
    """One request. ``input`` is a string (one user message) or items, oldest first."""

    model: str
    input: str | list[Item] = field(default_factory=empty)
    instructions: str | None = None
    """Before all input; not inherited along a chain."""
    previous_response_id: str | None = None
    tools: list[dict[str, Any]] | None = None
    """As the client wrote them; not inherited along a chain."""
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    max_tool_calls: Positive | None = None
    reasoning: ReasoningOptions | None = None
    text: TextOptions | None = None
    max_output_tokens: Positive | None = None
    """Reasoning counts."""
    temperature: Temperature | None = None
    top_p: Share | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    store: bool | None = None
    include: list[str] | None = None
    prompt_cache_key: str | None = None
    prompt_cache_options: PromptCacheOptions | None = None
    prompt_cache_retention: str | None = None
    generate: bool | None = None
    """False prepares only: the answer is empty, the prompt is prefilled."""
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    stream_id: StreamId | None = None
    """The lane on a WebSocket."""
    service_tier: str | None = None
    """OpenAI's words or a tier of the server's own."""
    context_management: list[ContextManagement] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    background: bool | None = None
    background_options: dict[str, Any] | None = None
    conversation: str | dict[str, Any] | None = None
    prompt: dict[str, Any] | None = None
    """Extension: a text instead of a conversation, see :attr:`completed_text`. OpenAI's templates are not kept."""
    metadata: dict[str, str] | None = None
    client_metadata: dict[str, Any] | None = None
    """Codex CLI's: ids of the session, thread and turn, and headers that it was told to send back."""
    multi_agent: dict[str, Any] | None = None
    moderation: dict[str, Any] | None = None
    safety_identifier: str | None = None
    access_programs: dict[str, Any] | None = None
    image: dict[str, Any] | None = None
    user: str | None = None
    prediction: Prediction | None = None
    """Extension (Chat Completions has it): the reference of the draft."""
    top_k: Count | None = None
    """Extension: keep the k most likely tokens; 0 or None keeps all."""
    min_p: Share | None = None
    """Extension: drop tokens less likely than this share of the most likely one."""
    repetition_penalty: Annotated[float, Meta(gt=0)] | None = None
    """Extension: divide the logits of tokens already seen; 1 is off."""
    seed: int | None = None
    """Extension: the same seed, model and request give the same tokens."""
    stop: list[str] = field(default_factory=list)
    """Extension: texts that end the answer; not part of it."""
    max_seconds: Annotated[float, Meta(gt=0)] | None = None
    """Extension: wall time after which the answer ends as incomplete."""
    priority: int = 0
    """Extension: higher enters a step of the engine first."""

    @property
    def prepares_only(self) -> bool:
        """Nothing is to be generated: the request warms the chain up."""
        options = self.prompt_cache_options
        return self.generate is False or (options is not None and options.prewarm is True)

    @property
    def completed_text(self) -> str:
        """What a model reads where there is no conversation but a text that goes on (``{"raw": text}``), or a gap to
        fill (``{"fim": {"prefix": text, "suffix": text}}``): both sides of it."""
        prompt = self.prompt or {}
        gap = prompt.get("fim")
        return f"{gap['prefix']}{gap['suffix']}" if isinstance(gap, dict) else str(prompt.get("raw", ""))


class CreateFrame(ResponseRequest, tag_field="type", tag="response.create"):
    """Start a response: the request itself, at the top level of the frame."""


class SteerFrame(Struct, kw_only=True, omit_defaults=True, tag_field="type", tag="response.steer"):
    """Add user messages to a running response."""

    previous_response_id: str
    """The running response."""
    input: str | list[Item]
    preempt: bool = False
    """Extension: end the open item at the next token instead of finishing it; an unfinished call is dropped."""
    stream_id: StreamId | None = None


class CancelFrame(Struct, kw_only=True, omit_defaults=True, tag_field="type", tag="response.cancel"):
    """Extension: end a response."""

    response_id: str
    stream_id: StreamId | None = None


class InjectFrame(Struct, kw_only=True, omit_defaults=True, tag_field="type", tag="response.inject"):
    """Put tool outputs into a running response (OpenAI's multi-agent beta)."""

    response_id: str
    input: str | list[Item]
    stream_id: StreamId | None = None


class OtherFrame(Struct):
    """A frame of unknown ``type``, as it came."""

    type: str
    data: dict[str, Any]
    stream_id: str | None = None


KnownFrame = CreateFrame | SteerFrame | CancelFrame | InjectFrame
ClientFrame = KnownFrame | OtherFrame

_FRAME_TYPES = frozenset({"response.create", "response.steer", "response.cancel", "response.inject"})


class _FrameHead(Struct):
    """What decides what a frame is, and where its error goes."""

    type: str
    stream_id: Any = None


class Tools(list[dict[str, Any]]):
    """The tools of a request, and their JSON. The same object for the same text, so nobody changes it."""

    def __init__(self, tools: list[dict[str, Any]]) -> None:
        super().__init__(tools)
        self.written = msgspec.json.encode(tools)


def written_tools(tools: list[dict[str, Any]] | None) -> list[dict[str, Any]] | msgspec.Raw:
    """What an encoder makes the JSON of these tools of, in the least time."""
    return msgspec.Raw(tools.written) if isinstance(tools, Tools) else tools or []


R = TypeVar("R", bound=ResponseRequest)


class _ToolsOnly(Struct):
    tools: list[dict[str, Any]] | None


class _Body(ResponseRequest, kw_only=True, omit_defaults=True):
    """A request whose tools are not parsed yet."""

    if not TYPE_CHECKING:
        tools: msgspec.Raw = None


class _CreateBody(CreateFrame, kw_only=True, omit_defaults=True, tag_field="type", tag="response.create"):
    if not TYPE_CHECKING:
        tools: msgspec.Raw = None


_decode_request = msgspec.json.Decoder(_Body, dec_hook=dec_hook).decode
_decode_frame = msgspec.json.Decoder(_CreateBody | SteerFrame | CancelFrame | InjectFrame, dec_hook=dec_hook).decode
_decode_tools = msgspec.json.Decoder(_ToolsOnly).decode
_decode_head = msgspec.json.Decoder(_FrameHead).decode
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


def decode_request(body: bytes | str) -> ResponseRequest:
    """The body of a POST. Raises :class:`BadRequest`, which names the parameter, and nothing else."""
    return _finished(ResponseRequest, decoded(_decode_request, body))


def decode_frame(text: str | bytes) -> ClientFrame:
    """A client's WebSocket frame. Raises :class:`BadRequest` with the frame's ``stream_id``, and nothing else."""
    try:
        frame: _CreateBody | SteerFrame | CancelFrame | InjectFrame = decoded(_decode_frame, text)
        if isinstance(frame, _CreateBody):
            return _finished(CreateFrame, frame)
    except BadRequest as refusal:
        if refusal.code == "invalid_json":
            raise
        return _other_frame(text, refusal)
    return frame


def _other_frame(text: str | bytes, refusal: BadRequest) -> OtherFrame:
    """The frame when its type is unknown, else the refusal, addressed to its lane."""
    head = decoded(_decode_head, text)
    lane = _lane(head.stream_id)
    if head.type in _FRAME_TYPES:
        refusal.stream_id = lane
        raise refusal
    return OtherFrame(head.type, decoded(_decode_object, text), lane)


def _lane(stream_id: Any) -> str | None:
    try:
        return msgspec.convert(stream_id, StreamId)
    except msgspec.ValidationError:
        return None


@lru_cache(64)
def _short_tools(text: bytes) -> Tools | None:
    """Parsed once: Codex CLI sends the same 20 KB with every request."""
    return _parsed_tools(text)


def _parsed_tools(text: bytes) -> Tools | None:
    tools = decoded(_decode_tools, b'{"tools":%b}' % text).tools
    for n, tool in enumerate(tools or ()):
        if not isinstance(tool.get("type"), str):
            raise BadRequest(f"Missing required parameter: 'tools[{n}].type'.", f"tools[{n}].type", _MISSING)
    return None if tools is None else Tools(tools)


def _finished(kind: type[R], body: ResponseRequest) -> R:
    """The request itself, tools parsed. Every tool and an object as ``tool_choice`` must say a type; which types can be
    served is not judged here."""
    given: Any = body.tools
    if given is not None:  # as text, see _Body
        text = bytes(given)
        body.tools = (_short_tools if len(text) <= _SHORT else _parsed_tools)(text)
    if isinstance(body.tool_choice, dict) and not isinstance(body.tool_choice.get("type"), str):
        raise BadRequest("Missing required parameter: 'tool_choice.type'.", "tool_choice.type", _MISSING)
    return kind(**msgspec.structs.asdict(body))


_MISSING = "missing_required_parameter"
_SHORT = 256 * 1024
"""Bytes of tools that are kept parsed."""

"""Events of a streamed response, in the order in which they come.

``created`` -> (``queued``) -> ``in_progress`` -> per item: ``output_item.added`` -> its body -> ``output_item.done`` ->
... -> one of ``completed | incomplete | failed``. ``sequence_number`` starts at 0 and rises by one per event of a
response. On a named lane of a WebSocket every event carries its ``stream_id``.

| item | body |
|---|---|
| message | ``content_part.added``, ``output_text.delta``*, ``output_text.done``, ``content_part.done`` |
| function call | ``function_call_arguments.delta``*, ``.done`` |
| custom call | ``custom_tool_call_input.delta``*, ``.done`` |
| reasoning | ``summary_part.added``, ``summary_text.delta``*, ``.done``, ``summary_part.done`` |
| raw reasoning | ``content_part.added``, ``reasoning_text.delta``*, ``.done``, ``content_part.done`` |
"""

from __future__ import annotations

from typing import Any, get_args

import msgspec
from msgspec import Struct, field

from vivace.protocol.content import ContentPart
from vivace.protocol.defaults import empty, null, written
from vivace.protocol.items import Item, Response
from vivace.protocol.unions import Other, dec_hook


class _Event(Struct, kw_only=True, tag_field="type", omit_defaults=True):
    stream_id: str | None = None
    """The lane; absent on the unnamed one."""


class _Whole(_Event):
    """``response`` is the object as it was then."""

    sequence_number: int
    response: Response


class _ItemEvent(_Event):
    sequence_number: int
    output_index: int
    item: Item


class _PartEvent(_Event):
    sequence_number: int
    item_id: str
    output_index: int
    content_index: int
    part: ContentPart


class _SummaryPartEvent(_Event):
    sequence_number: int
    item_id: str
    output_index: int
    summary_index: int
    part: ContentPart


class _OfItem(_Event):
    sequence_number: int
    item_id: str
    output_index: int


class _InContent(_OfItem):
    content_index: int


class _InSummary(_OfItem):
    summary_index: int


class Created(_Whole, tag="response.created"):
    """The first event of every response."""


class Queued(_Whole, tag="response.queued"):
    """The request waits for its turn."""


class InProgress(_Whole, tag="response.in_progress"):
    """Prefill has begun. May be repeated to keep a connection alive."""


class Completed(_Whole, tag="response.completed"):
    """The normal end; ``response.output`` repeats every item."""


class Incomplete(_Whole, tag="response.incomplete"):
    """Cut by a limit, a filter or by steering."""


class Failed(_Whole, tag="response.failed"):
    """A failure after the stream began."""


class ItemAdded(_ItemEvent, tag="response.output_item.added"):
    """An item opens; the name and ``call_id`` of a call are known here."""


class ItemDone(_ItemEvent, tag="response.output_item.done"):
    """An item is whole. Codex CLI starts a tool at this event."""


class PartAdded(_PartEvent, tag="response.content_part.added"):
    pass


class PartDone(_PartEvent, tag="response.content_part.done"):
    pass


class TextDelta(_InContent, tag="response.output_text.delta"):
    delta: str
    logprobs: list[Any] = field(default_factory=empty)


class TextDone(_InContent, tag="response.output_text.done"):
    text: str
    logprobs: list[Any] = field(default_factory=empty)


class RefusalDelta(_InContent, tag="response.refusal.delta"):
    delta: str


class RefusalDone(_InContent, tag="response.refusal.done"):
    refusal: str


class ReasoningTextDelta(_InContent, tag="response.reasoning_text.delta"):
    """Raw thought of an open model."""

    delta: str


class ReasoningTextDone(_InContent, tag="response.reasoning_text.done"):
    text: str


class ReasoningSummaryPartAdded(_SummaryPartEvent, tag="response.reasoning_summary_part.added"):
    pass


class ReasoningSummaryPartDone(_SummaryPartEvent, tag="response.reasoning_summary_part.done"):
    status: str | None = None


class ReasoningSummaryTextDelta(_InSummary, tag="response.reasoning_summary_text.delta"):
    delta: str


class ReasoningSummaryTextDone(_InSummary, tag="response.reasoning_summary_text.done"):
    text: str


class ArgumentsDelta(_OfItem, tag="response.function_call_arguments.delta"):
    delta: str


class ArgumentsDone(_OfItem, tag="response.function_call_arguments.done"):
    arguments: str
    name: str | None = None


class CustomInputDelta(_OfItem, tag="response.custom_tool_call_input.delta"):
    delta: str


class CustomInputDone(_OfItem, tag="response.custom_tool_call_input.done"):
    input: str


class Compacting(_OfItem, tag="response.compaction.compacting"):
    """A summary is being made."""


class WebSearchInProgress(_OfItem, tag="response.web_search_call.in_progress"):
    pass


class WebSearchSearching(_OfItem, tag="response.web_search_call.searching"):
    pass


class WebSearchCompleted(_OfItem, tag="response.web_search_call.completed"):
    pass


class ErrorBody(Struct, omit_defaults=True):
    """Of an :class:`ErrorEvent`. ``headers`` repeats those of the event: clients read one place or the other."""

    message: str
    type: str = field(default_factory=written("invalid_request_error"))
    code: str | None = field(default_factory=null)
    param: str | None = field(default_factory=null)
    headers: dict[str, str] | None = None


class ErrorEvent(_Event, tag="error"):
    """A request on a WebSocket was refused. Codex CLI ignores one without an integer ``status`` and waits."""

    error: ErrorBody
    status: int | None = None
    headers: dict[str, str] | None = None
    sequence_number: int | None = None


class Steer(Struct, omit_defaults=True):
    """The steer that an event is about; ``input`` is given back when it failed."""

    previous_response_id: str
    id: str | None = None
    input: str | list[Item] | None = None


class RequiredInput(Struct, omit_defaults=True):
    """A tool output that a response waits for; ``type`` is ``function_call_output`` or ``custom_tool_call_output``."""

    type: str
    call_id: str
    name: str | None = None


class SteerAccepted(_Event, tag="response.steer.accepted"):
    """The steer is queued."""

    sequence_number: int
    steer: Steer


class SteerPending(_Event, tag="response.steer.pending"):
    """The steer goes in with the next request, before its tool outputs."""

    sequence_number: int
    steer: Steer
    required_input: list[RequiredInput]
    reason: str = field(default_factory=written("waiting_for_required_input"))


class SteerFailed(_Event, tag="response.steer.failed"):
    sequence_number: int
    steer: Steer
    error: ErrorBody


class Metadata(_Event, tag="response.metadata"):
    """Headers for Codex CLI that come late; it sends ``x-codex-turn-state`` back with the turn's next frames."""

    headers: dict[str, str]
    sequence_number: int | None = None


class RateLimitWindow(Struct):
    """``reset_at`` is in seconds since 1970."""

    used_percent: float
    window_minutes: int
    reset_at: int


class RateLimitWindows(Struct):
    primary: RateLimitWindow | None = None
    secondary: RateLimitWindow | None = None


class RateLimits(_Event, tag="codex.rate_limits"):
    """How much of a plan's windows is used, for Codex CLI's display."""

    plan_type: str
    rate_limits: RateLimitWindows
    sequence_number: int | None = None


class Keepalive(_Event, tag="keepalive"):
    """Says only that the connection lives. Clients pass over it, and their idle timers start again."""

    sequence_number: int


class OtherEvent(Other):
    """An event of unknown type, as it came."""

    @property
    def sequence_number(self) -> int | None:
        value = self.get("sequence_number")
        return value if isinstance(value, int) else None

    @property
    def stream_id(self) -> str | None:
        value = self.get("stream_id")
        return value if isinstance(value, str) else None

    @stream_id.setter
    def stream_id(self, value: str | None) -> None:
        if value is None:
            self.pop("stream_id", None)
        else:
            self["stream_id"] = value


KnownEvent = (
    Created
    | Queued
    | InProgress
    | Completed
    | Incomplete
    | Failed
    | ItemAdded
    | ItemDone
    | PartAdded
    | PartDone
    | TextDelta
    | TextDone
    | RefusalDelta
    | RefusalDone
    | ReasoningTextDelta
    | ReasoningTextDone
    | ReasoningSummaryPartAdded
    | ReasoningSummaryPartDone
    | ReasoningSummaryTextDelta
    | ReasoningSummaryTextDone
    | ArgumentsDelta
    | ArgumentsDone
    | CustomInputDelta
    | CustomInputDone
    | Compacting
    | WebSearchInProgress
    | WebSearchSearching
    | WebSearchCompleted
    | ErrorEvent
    | SteerAccepted
    | SteerPending
    | SteerFailed
    | Metadata
    | RateLimits
    | Keepalive
)
Event = KnownEvent | OtherEvent
Ending = Completed | Incomplete | Failed
"""What ends a response."""

KNOWN_EVENTS: tuple[type[Struct], ...] = get_args(KnownEvent)
_TYPES: dict[type, str] = {kind: str(kind.__struct_config__.tag) for kind in KNOWN_EVENTS}
_KNOWN_TYPES = frozenset(_TYPES.values())

encode = msgspec.json.Encoder().encode
"""Event -> JSON bytes."""

_decode_known = msgspec.json.Decoder(KnownEvent, dec_hook=dec_hook).decode
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


def decode(data: bytes | str) -> Event:
    """JSON -> Event; an event of unknown type is kept as it came.

    Raises :class:`msgspec.DecodeError` for what is no JSON object, or an event of a known type without its fields.
    """
    try:
        return _decode_known(data)
    except msgspec.ValidationError:
        event = OtherEvent(_decode_object(data))
        if event.type == "error" and "error" not in event and isinstance(event.get("message"), str):
            # The flat shape that OpenAI's HTTP streams have.
            body = msgspec.convert({**event, "type": event.get("code") or "error"}, ErrorBody)
            return ErrorEvent(error=body, sequence_number=event.sequence_number, stream_id=event.stream_id)
        if event.type in _KNOWN_TYPES:
            raise
        return event


def event_type(event: Event) -> str:
    """The event's ``type``, such as ``response.created``."""
    return event.type if isinstance(event, OtherEvent) else _TYPES[type(event)]

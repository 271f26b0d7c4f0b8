"""Events of a streamed response, in the order in which a text answer emits them.

``created`` -> ``in_progress`` -> ``output_item.added`` -> ``content_part.added`` -> ``output_text.delta``* ->
``output_text.done`` -> ``content_part.done`` -> ``output_item.done`` -> ``completed | incomplete | failed``.
``sequence_number`` starts at 0 and rises by one per event of a response.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct, field

from vivace.protocol.items import ContentPart, Item, Response


class Created(Struct, tag_field="type", tag="response.created"):
    sequence_number: int
    response: Response


class InProgress(Struct, tag_field="type", tag="response.in_progress"):
    sequence_number: int
    response: Response


class ItemAdded(Struct, tag_field="type", tag="response.output_item.added"):
    sequence_number: int
    output_index: int
    item: Item


class PartAdded(Struct, tag_field="type", tag="response.content_part.added"):
    sequence_number: int
    item_id: str
    output_index: int
    content_index: int
    part: ContentPart


class TextDelta(Struct, tag_field="type", tag="response.output_text.delta"):
    sequence_number: int
    item_id: str
    output_index: int
    content_index: int
    delta: str
    logprobs: list[Any] = field(default_factory=list)


class TextDone(Struct, tag_field="type", tag="response.output_text.done"):
    sequence_number: int
    item_id: str
    output_index: int
    content_index: int
    text: str
    logprobs: list[Any] = field(default_factory=list)


class PartDone(Struct, tag_field="type", tag="response.content_part.done"):
    sequence_number: int
    item_id: str
    output_index: int
    content_index: int
    part: ContentPart


class ItemDone(Struct, tag_field="type", tag="response.output_item.done"):
    sequence_number: int
    output_index: int
    item: Item


class Completed(Struct, tag_field="type", tag="response.completed"):
    sequence_number: int
    response: Response


class Incomplete(Struct, tag_field="type", tag="response.incomplete"):
    sequence_number: int
    response: Response


class Failed(Struct, tag_field="type", tag="response.failed"):
    sequence_number: int
    response: Response


Event = (
    Created
    | InProgress
    | ItemAdded
    | PartAdded
    | TextDelta
    | TextDone
    | PartDone
    | ItemDone
    | Completed
    | Incomplete
    | Failed
)

encode = msgspec.json.Encoder().encode
"""Event -> JSON bytes."""

decode = msgspec.json.Decoder(Event).decode
"""JSON bytes -> Event; raises :class:`msgspec.ValidationError` for what is no event of a text answer."""

"""Parts of an item's content: text, images, files, refusals, reasoning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct, field

from vivace.protocol.unions import Other, open_union


class InputText(Struct, tag_field="type", tag="input_text"):
    text: str


class InputImage(Struct, tag_field="type", tag="input_image", omit_defaults=True):
    """``image_url`` is an address or a ``data:`` URL."""

    image_url: str | None = None
    detail: str | None = None
    file_id: str | None = None


class InputFile(Struct, tag_field="type", tag="input_file", omit_defaults=True):
    """``file_data`` is base64, as a ``data:`` URL or bare."""

    filename: str | None = None
    file_data: str | None = None
    file_id: str | None = None
    file_url: str | None = None
    detail: str | None = None


class OutputText(Struct, tag_field="type", tag="output_text"):
    text: str
    annotations: list[Any] = field(default_factory=list)
    logprobs: list[Any] = field(default_factory=list)


class Refusal(Struct, tag_field="type", tag="refusal"):
    refusal: str


class SummaryText(Struct, tag_field="type", tag="summary_text"):
    text: str


class ReasoningText(Struct, tag_field="type", tag="reasoning_text"):
    text: str


class OtherPart(Other):
    """A part of unknown type, as it came."""


if TYPE_CHECKING:
    ContentPart: TypeAlias = (
        InputText | InputImage | InputFile | OutputText | Refusal | SummaryText | ReasoningText | OtherPart
    )
else:
    ContentPart = open_union(
        "ContentPart", (InputText, InputImage, InputFile, OutputText, Refusal, SummaryText, ReasoningText), OtherPart
    )


def part_text(part: ContentPart) -> str:
    """The text of a part; empty for one that has none."""
    match part:
        case InputText() | OutputText() | SummaryText() | ReasoningText():
            return part.text
        case Refusal():
            return part.refusal
        case OtherPart():
            text = part.get("text")
            return text if isinstance(text, str) else ""
        case _:
            return ""


def content_text(content: str | list[ContentPart]) -> str:
    """The text of a content, its parts joined."""
    return content if isinstance(content, str) else "".join(map(part_text, content))

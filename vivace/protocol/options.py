"""What a request asks of the answer's form, and the response repeats: reasoning, text format, choice of tools."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, field

from vivace.protocol.defaults import null

ToolChoice = Literal["auto", "none", "required"] | dict[str, Any]
"""A mode, or an object: ``function`` or ``custom`` with a ``name``, ``allowed_tools`` with ``mode`` and ``tools``."""


class ReasoningOptions(Struct, omit_defaults=True):
    """``effort`` is a word of the model's (OpenAI: none, minimal, low, medium, high, xhigh, max); ``summary`` asks for
    summary text (auto, concise, detailed); ``context`` says whether old reasoning is shown to the model again (auto,
    current_turn, all_turns)."""

    effort: str | None = field(default_factory=null)
    summary: str | None = field(default_factory=null)
    context: str | None = None


class PlainFormat(Struct, tag_field="type", tag="text"):
    """Text without a form."""


class JsonObjectFormat(Struct, tag_field="type", tag="json_object"):
    """Any JSON object."""


class JsonSchemaFormat(Struct, tag_field="type", tag="json_schema", omit_defaults=True):
    """JSON that a schema describes."""

    name: str
    schema: dict[str, Any]
    strict: bool | None = None
    description: str | None = None


class GrammarFormat(Struct, tag_field="type", tag="grammar"):
    """Text that a grammar describes, in Lark; OpenAI's types have it, its servers take it in custom tools only."""

    grammar: str


TextFormat = PlainFormat | JsonObjectFormat | JsonSchemaFormat | GrammarFormat


class TextOptions(Struct, omit_defaults=True):
    format: TextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None

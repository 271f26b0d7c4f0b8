"""Items of a conversation to the turns that a chat template knows.

What the model wrote between two of its prompts is one turn: reasoning, texts and calls, in order. Instructions stay
where they are, each a turn of its own: a change of the prompt's beginning is one that KV memory is not found by.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct, field

from vivace.dialects.tools import ToolTable
from vivace.errors import UsageError
from vivace.protocol.items import (
    ContentPart,
    CustomToolCall,
    CustomToolCallOutput,
    FunctionCall,
    FunctionCallOutput,
    InputFile,
    InputImage,
    Item,
    Message,
    Reasoning,
    content_text,
)

TurnRole = Literal["system", "user", "assistant", "tool"]


class WrittenCall(Struct, frozen=True):
    """See :class:`vivace.dialects.syntax.Written`."""

    name: str
    text: str
    raw: bool = False
    call_id: str = ""


class Turn(Struct):
    """One turn. ``text`` is empty for an assistant's, whose ``said`` are its texts and calls in order."""

    role: TurnRole
    text: str = ""
    said: list[str | WrittenCall] = field(default_factory=list)
    reasoning: str = ""
    call_id: str = ""

    @property
    def calls(self) -> list[WrittenCall]:
        return [one for one in self.said if isinstance(one, WrittenCall)]


def turns_of(items: Sequence[Item], tools: ToolTable) -> list[Turn]:
    """The turns of a conversation; items that say nothing to a model are left out.

    Raises :class:`UsageError` for images and files: the models here read text.
    """
    turns: list[Turn] = []
    for number, item in enumerate(items):
        match item:
            case Message():
                text = _text(item.content, number)
                if item.role == "assistant":
                    _assistant(turns).said.append(text)
                    continue
                role: TurnRole = "user" if item.role == "user" else "system"
                turns.append(Turn(role, text))
            case Reasoning():
                _assistant(turns).reasoning += content_text(item.content or [])
            case FunctionCall():
                name, text = tools.flatten_call(item)
                _assistant(turns).said.append(WrittenCall(name, text, call_id=item.call_id))
            case CustomToolCall():
                name = tools.flat_name(item.name, item.namespace)
                _assistant(turns).said.append(WrittenCall(name, item.input, True, item.call_id))
            case FunctionCallOutput() | CustomToolCallOutput():
                turns.append(Turn("tool", _text(item.output, number), call_id=item.call_id))
            case _:
                pass
    return [turn for turn in turns if turn.role != "assistant" or turn.said or turn.reasoning]


def answer_parts(said: Iterable[str | WrittenCall]) -> list[str]:
    """What identifies an answer, however a client cuts it into items: its texts, joined, and its calls."""
    parts: list[str] = []
    texts: list[str] = []
    for one in said:
        if isinstance(one, str):
            texts.append(one)
            continue
        parts += ["".join(texts), one.name, one.text]
        texts.clear()
    return [*parts, "".join(texts)]


def _assistant(turns: list[Turn]) -> Turn:
    """The assistant's turn that is being written."""
    if not turns or turns[-1].role != "assistant":
        turns.append(Turn("assistant"))
    return turns[-1]


def _text(content: str | list[ContentPart], number: int) -> str:
    if isinstance(content, str):
        return content
    for place, part in enumerate(content):
        if isinstance(part, InputImage | InputFile):
            kind = "an image" if isinstance(part, InputImage) else "a file"
            raise UsageError(
                f"Item {number} of the input holds {kind}, and this model reads text only.",
                hint="Leave it out, or ask a model that takes it.",
                code="unsupported_content",
                param=f"input[{number}].content[{place}]",
            )
    return content_text(content)

"""Items of the Responses API: what goes into a response and what comes out of it.

Field names and shapes are OpenAI's (openai-python 3.57, generated from the published OpenAPI file). Unknown keys pass.
"""

from __future__ import annotations

import uuid
from typing import Any, Literal

from msgspec import Struct, field


def new_id(prefix: str) -> str:
    """A fresh id such as ``resp_...`` or ``msg_...``."""
    return f"{prefix}_{uuid.uuid4().hex}"


class InputText(Struct, tag_field="type", tag="input_text"):
    text: str


class OutputText(Struct, tag_field="type", tag="output_text"):
    text: str
    annotations: list[Any] = field(default_factory=list)
    logprobs: list[Any] = field(default_factory=list)


ContentPart = InputText | OutputText
Role = Literal["user", "assistant", "system", "developer"]
ItemStatus = Literal["in_progress", "completed", "incomplete"]


class Message(Struct, tag_field="type", tag="message", omit_defaults=True):
    """A message, given or made. ``content`` is a string or parts; output messages have one ``output_text`` part."""

    role: Role
    content: str | list[ContentPart]
    id: str | None = None
    status: ItemStatus | None = None

    @property
    def text(self) -> str:
        """The text of all parts, joined."""
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


Item = Message


class InputTokensDetails(Struct):
    cached_tokens: int = 0


class OutputTokensDetails(Struct):
    """``accepted``/``rejected_prediction_tokens`` count the draft as OpenAI does for predicted outputs."""

    reasoning_tokens: int = 0
    accepted_prediction_tokens: int = 0
    rejected_prediction_tokens: int = 0


class Usage(Struct):
    """Tokens of one response. ``cached_tokens`` is what the KV memory really held."""

    input_tokens: int = 0
    input_tokens_details: InputTokensDetails = field(default_factory=InputTokensDetails)
    output_tokens: int = 0
    output_tokens_details: OutputTokensDetails = field(default_factory=OutputTokensDetails)
    total_tokens: int = 0


IncompleteReason = Literal["max_output_tokens", "max_time", "content_filter", "steered", "stopped"]


class IncompleteDetails(Struct):
    reason: IncompleteReason


class ResponseError(Struct):
    code: str
    message: str


ResponseStatus = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]


class Response(Struct):
    """The object of one response, as ``response.created`` opens it and the last event closes it."""

    id: str
    model: str
    created_at: float
    object: str = "response"
    status: ResponseStatus = "in_progress"
    output: list[Item] = field(default_factory=list)
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    parallel_tool_calls: bool = True
    tool_choice: str = "auto"
    tools: list[Any] = field(default_factory=list)
    usage: Usage | None = None
    completed_at: float | None = None

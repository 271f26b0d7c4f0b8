"""The request that starts a response.

OpenAI's fields, and vivace's extensions for what its own engine can do; each extension is marked.
"""

from __future__ import annotations

from msgspec import Struct, field

from vivace.protocol.items import Item


class Prediction(Struct, tag_field="type", tag="content"):
    """What the answer will mostly be: the text that drafts are copied from. Changes speed, never output."""

    content: str


class ResponseRequest(Struct, kw_only=True):
    """One request. ``input`` is a string (one user message) or items, oldest first."""

    model: str
    input: str | list[Item]
    instructions: str | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    prediction: Prediction | None = None
    """Extension (Chat Completions has it): the reference of the draft."""
    top_k: int | None = None
    """Extension: keep the k most likely tokens; 0 or None keeps all."""
    min_p: float | None = None
    """Extension: drop tokens less likely than this share of the most likely one."""
    repetition_penalty: float | None = None
    """Extension: divide the logits of tokens already seen; 1 is off."""
    seed: int | None = None
    """Extension: the same seed, model and request give the same tokens."""
    stop: list[str] = field(default_factory=list)
    """Extension: texts that end the answer; not part of it."""
    max_seconds: float | None = None
    """Extension: wall time after which the answer ends as incomplete."""
    priority: int = 0
    """Extension: higher enters a step of the engine first."""

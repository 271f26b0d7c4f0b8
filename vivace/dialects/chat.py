"""Messages to token ids by the model's own chat template, and what ends its answer.

The template is the model's, not ours: it runs in Jinja's sandbox. What a user wrote never passes through it: each
content is a placeholder while the template runs and is put in afterwards, so that neither template syntax nor control
tokens in user text mean anything.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from vivace.errors import VivaceError
from vivace.models.tokenizer import Tokenizer
from vivace.protocol.items import Message

if TYPE_CHECKING:
    from jinja2 import Template

_PLACEHOLDER = "\ue0f0{}\ue0f1"
_PLACEHOLDERS = re.compile("\ue0f0([0-9]+)\ue0f1")


class ChatDialect:
    """The chat format of one model."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        if tokenizer.chat_template is None:
            raise VivaceError(
                "The model has no chat template.", hint="Take an instruction-tuned model.", code="no_chat_template"
            )
        self.tokenizer = tokenizer
        self._source = tokenizer.chat_template

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of a conversation, up to where the assistant's answer begins.

        Raises :class:`VivaceError` when the template refuses the messages.
        """
        roles = [{"role": _role(m.role), "content": _PLACEHOLDER.format(i)} for i, m in enumerate(messages)]
        tokenizer = self.tokenizer
        rendered = self._render(messages=roles, add_generation_prompt=True)
        parts: list[tuple[str, bool]] = []
        start = 0
        for match in _PLACEHOLDERS.finditer(rendered):
            parts += [(rendered[start : match.start()], True), (messages[int(match.group(1))].text, False)]
            start = match.end()
        ids = tokenizer.encode_parts([*parts, (rendered[start:], True)])
        return [tokenizer.bos_id, *ids] if tokenizer.add_bos and tokenizer.bos_id is not None else ids

    @cached_property
    def end_tokens(self) -> list[int]:
        """Tokens that end an answer."""
        return sorted(self.tokenizer.eos_ids)

    @cached_property
    def end_of_turn(self) -> list[int]:
        """The one that this template ends a message with, if it can be told; a draft goes on with it."""
        marked = self._render(
            messages=[{"role": "user", "content": "x"}, {"role": "assistant", "content": _PLACEHOLDER.format(0)}],
            add_generation_prompt=False,
        )
        after = self.tokenizer.encode(marked[marked.rindex(_PLACEHOLDER.format(0)) :], allow_special=True)
        return [token for token in after if token in self.tokenizer.eos_ids][:1]

    def reference(self, text: str) -> list[int]:
        """The tokens that an answer consisting of ``text`` would have."""
        return self.tokenizer.encode(text) + self.end_of_turn

    @cached_property
    def _template(self) -> Template:
        from jinja2 import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        def refuse(message: str) -> None:
            raise TemplateError(message)

        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = refuse
        return environment.from_string(self._source)

    def _render(self, **values: Any) -> str:
        from jinja2 import TemplateError

        try:
            bos = self.tokenizer.bos_id
            bos_token = self.tokenizer.decode([bos]) if bos is not None and not self.tokenizer.add_bos else ""
            return self._template.render(bos_token=bos_token, eos_token="", **values)
        except TemplateError as error:
            raise VivaceError(f"The model's chat template refuses the messages: {error}", code="template") from error


def _role(role: str) -> str:
    return "system" if role == "developer" else role

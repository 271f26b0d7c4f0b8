"""A model's chat template, run in Jinja's sandbox on placeholders.

The template is the model's, not ours. What a user wrote never passes through it: each text is a placeholder while the
template runs and is put in afterwards, so that neither template syntax nor control tokens in user text mean anything.
The same holds for tool descriptions and the JSON that a template makes of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from vivace.dialects.syntax import CallSyntax, Part
from vivace.dialects.tools import FlatTool
from vivace.errors import VivaceError

if TYPE_CHECKING:
    from jinja2 import Environment
    from jinja2 import Template as JinjaTemplate
    from jinja2.runtime import Context

_PLACEHOLDER = "\ue0f0{}\ue0f1"
PLACEHOLDERS = re.compile("\ue0f0([0-9]+)\ue0f1")
_SAFE = re.compile(r"[\w$.,:;()/ -]*")
_SLOTS = "vivace_slots"


class Slots:
    """What the placeholders of one rendering stand for."""

    def __init__(self) -> None:
        self.contents: list[list[Part]] = []

    def put(self, parts: list[Part]) -> str:
        """A placeholder for these parts."""
        self.contents.append(parts)
        return _PLACEHOLDER.format(len(self.contents) - 1)

    def text(self, text: str) -> str:
        """A placeholder for what a user or model wrote."""
        return self.put([(text, False)])


class JsonText(str):
    """A placeholder for JSON text; ``tojson`` leaves it as it is."""

    __slots__ = ()


class _Shown(str):
    """A placeholder that knows the string behind it, for ``tojson``."""

    original: str


class Template:
    """One chat template. ``variables`` go to every rendering."""

    def __init__(self, source: str, variables: Mapping[str, object]) -> None:
        self._source = source
        self._variables = variables

    def render(self, slots: Slots, messages: Sequence[Mapping[str, Any]], **values: Any) -> str:
        """The text with placeholders in it. Raises :class:`VivaceError` when the template refuses the messages."""
        from jinja2 import TemplateError

        try:
            return self._compiled.render(messages=messages, **self._variables, **values, **{_SLOTS: slots})
        except (TemplateError, TypeError, ValueError) as error:
            raise VivaceError(f"The model's chat template refuses the messages: {error}", code="template") from error

    def effort(self, effort: str) -> dict[str, Any]:
        """The variables that tell the template how much the model is to think, where it has any."""
        values: dict[str, Any] = {}
        if effort and "enable_thinking" in self._source:  # Qwen 3
            values["enable_thinking"] = effort not in ("none", "minimal")
        if effort in ("low", "medium", "high") and "reasoning_effort" in self._source:  # gpt-oss
            values["reasoning_effort"] = effort
        return values

    @cached_property
    def uses_tools(self) -> bool:
        """It says itself how tools are offered."""
        from jinja2 import TemplateError, meta

        try:
            return "tools" in meta.find_undeclared_variables(self._environment.parse(self._source))
        except TemplateError:
            return False

    @cached_property
    def answers_tools(self) -> bool:
        """It has a form of its own for what a tool answered."""
        return re.search(r"""["']tool["']""", self._source) is not None

    @cached_property
    def _environment(self) -> Environment:
        from jinja2 import TemplateError, pass_context
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        def refuse(message: str) -> None:
            raise TemplateError(message)

        @pass_context
        def tojson(context: Context, value: Any, indent: int | None = None, **options: Any) -> str:
            return value if isinstance(value, JsonText) else context[_SLOTS].text(dumps(_original(value), indent))

        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = refuse
        environment.filters["tojson"] = tojson
        return environment

    @cached_property
    def _compiled(self) -> JinjaTemplate:
        return self._environment.from_string(self._source)


def shown(value: Any, slots: Slots) -> Any:
    """A value for a template to walk through: strings that could mean anything to it are placeholders."""
    if isinstance(value, str) and not _SAFE.fullmatch(value):
        text = _Shown(slots.text(value))
        text.original = value
        return text
    if isinstance(value, dict):
        return {shown(key, slots): shown(one, slots) for key, one in value.items()}
    if isinstance(value, list):
        return [shown(one, slots) for one in value]
    return value


def tool_schema(tool: FlatTool, syntax: CallSyntax) -> dict[str, Any]:
    """A tool as templates expect it; what the family wants said about a custom one is part of its description."""
    schema = tool.schema()
    if tool.kind == "custom" and (hint := syntax.free_hint(tool)):
        description = f"{tool.description}\n\n{hint}" if tool.description else hint
        schema["function"] = {**schema["function"], "description": description}
    return schema


def tool_json(tool: FlatTool, syntax: CallSyntax) -> str:
    """A tool as one line of JSON."""
    return dumps(tool_schema(tool, syntax))


def dumps(value: Any, indent: int | None = None) -> str:
    """JSON as transformers' templates have it, which models were trained with: no escapes, order kept."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _original(value: Any) -> Any:
    if isinstance(value, _Shown):
        return value.original
    if isinstance(value, dict):
        return {_original(key): _original(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_original(one) for one in value]
    return value

"""The tools of a request as one flat list that any model can be offered, and the way back to their own names.

A namespaced tool is offered as ``<namespace>__<tool>``. Tools that only OpenAI hosts (web search and the like) are left
out without a word: Codex CLI sends them to every server, and refusing them would refuse Codex.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct

from vivace.errors import UsageError, did_you_mean
from vivace.protocol.items import AdditionalTools, CustomToolCall, FunctionCall, Item

Kind = Literal["function", "custom"]
Mode = Literal["auto", "none", "required"]

LONGEST_NAME = 64
"""OpenAI's limit for a function's name."""

DEEPEST = 64
"""Levels of a JSON schema; templates and grammars walk through it level by level."""

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_ANY_OBJECT: dict[str, Any] = {"type": "object", "properties": {}}
_INPUT: dict[str, Any] = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}


class TextFormat(Struct, frozen=True):
    """What the free text of a custom tool must look like; ``definition`` is empty for ``text``, which is anything."""

    syntax: Literal["text", "lark", "regex"] = "text"
    definition: str = ""


class FlatTool(Struct, frozen=True):
    """One tool as a model sees it.

    ``parameters`` is a JSON schema; a custom tool takes free text instead, and ``parameters`` is then the object with
    one string, ``input``, that a model without free text is asked for.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    kind: Kind = "function"
    public_name: str = ""
    namespace: str | None = None
    format: TextFormat = TextFormat()

    def schema(self) -> dict[str, Any]:
        """The tool as Chat Completions writes a function, which is what chat templates expect."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}


class ToolTable(Struct, frozen=True):
    """What a request offers, flat, and how the model may choose.

    ``allowed`` names those that may be called where the choice says so; empty for all. ``digest`` is the same for the
    same tools, however the model may choose among them, as a prompt holds the tools and not the choice.
    """

    tools: tuple[FlatTool, ...] = ()
    mode: Mode = "auto"
    allowed: tuple[str, ...] = ()
    parallel: bool = True
    digest: str = ""

    @classmethod
    def of(
        cls,
        tools: Sequence[dict[str, Any]],
        tool_choice: Any = "auto",
        parallel: bool | None = True,
        items: Iterable[Item] = (),
    ) -> ToolTable:
        """The table of a request. ``items`` may hold ``additional_tools``, which count as well.

        Raises :class:`UsageError` whose ``param`` names the malformed tool, such as ``tools[3].name``.
        """
        given = [*tools, *(tool for item in items if isinstance(item, AdditionalTools) for tool in item.tools)]
        flat: dict[str, FlatTool] = {}
        for number, tool in enumerate(given):
            _add(flat, tool, f"tools[{number}]", None)
        digest = hashlib.blake2b(msgspec.json.encode(list(flat.values())), digest_size=16).hexdigest() if flat else ""
        table = cls(tuple(flat.values()), digest=digest, parallel=parallel is not False)
        mode, allowed = _choice(table, tool_choice)
        return msgspec.structs.replace(table, mode=mode, allowed=allowed)

    @property
    def callable(self) -> tuple[FlatTool, ...]:
        """The tools that the model may call in this answer."""
        if self.mode == "none":
            return ()
        return tuple(tool for tool in self.tools if not self.allowed or tool.name in self.allowed)

    def find(self, name: str) -> FlatTool | None:
        """The tool that a model means by ``name``.

        Models write ``ns.tool``, ``functions.tool`` or the bare name of a namespaced tool; each is understood where
        only one tool can be meant.
        """
        for tool in self.tools:
            if tool.name == name:
                return tool
        wanted = _plain(name)
        for spelling in (wanted, wanted.removeprefix("functions_")):
            for key in (_full, _bare):
                found = [tool for tool in self.tools if key(tool) == spelling]
                if len(found) == 1:
                    return found[0]
        return None

    def restore(self, name: str) -> FlatTool:
        """The tool behind a flat name. A name that was not offered stands for itself: the client refuses it."""
        return self.find(name) or FlatTool(name, "", _ANY_OBJECT, public_name=name)

    def flatten_call(self, item: FunctionCall | CustomToolCall) -> tuple[str, str]:
        """Flat name and JSON arguments of a call in the history.

        Arguments of a function are those that were emitted, byte for byte; the text of a custom tool becomes ``input``.
        """
        name = self.flat_name(item.name, item.namespace)
        if isinstance(item, FunctionCall):
            return name, item.arguments
        return name, msgspec.json.encode({"input": item.input}).decode()

    def flat_name(self, name: str, namespace: str | None = None) -> str:
        """The flat name of what the client calls ``name``, also where this request does not offer it."""
        for tool in self.tools:
            if tool.public_name == name and (tool.namespace or None) == (namespace or None):
                return tool.name
        return _safe(f"{namespace}__{name}" if namespace else name)


def _add(flat: dict[str, FlatTool], tool: Any, where: str, namespace: str | None) -> None:
    """One definition of a request into ``flat``."""
    if not isinstance(tool, dict):
        raise UsageError(f"{where} is not an object.", param=where)
    kind = tool.get("type")
    if not isinstance(kind, str):
        raise UsageError(f"{where} has no type.", param=f"{where}.type")
    if kind == "namespace":
        inner = tool.get("tools")
        if namespace is not None or not isinstance(inner, list):
            raise UsageError(f"{where} needs a list of tools and lies in no other namespace.", param=f"{where}.tools")
        name = _name(tool, where)
        for number, one in enumerate(inner):
            _add(flat, one, f"{where}.tools[{number}]", name)
        return
    if kind not in ("function", "custom"):
        return
    body, where = (tool[kind], f"{where}.{kind}") if isinstance(tool.get(kind), dict) else (tool, where)
    public = _name(body, where)
    description = body.get("description") or ""
    if not isinstance(description, str):
        raise UsageError(f"{where}.description is not a text.", param=f"{where}.description")
    name = _unused(_safe(f"{namespace}__{public}" if namespace else public), flat, public, namespace)
    if kind == "custom":
        form = _format(body.get("format"), where)
        flat[name] = FlatTool(name, description, _INPUT, "custom", public, namespace, form)
        return
    parameters = body.get("parameters")
    if parameters is not None and (not isinstance(parameters, dict) or too_deep(parameters)):
        raise UsageError(
            f"{where}.parameters is not a JSON schema, or nested deeper than {DEEPEST}.", param=f"{where}.parameters"
        )
    flat[name] = FlatTool(name, description, parameters or _ANY_OBJECT, "function", public, namespace)


def _name(tool: dict[str, Any], where: str) -> str:
    name = tool.get("name")
    if not isinstance(name, str) or not name.strip():
        raise UsageError(f"{where} has no name.", param=f"{where}.name")
    return name


def _format(value: Any, where: str) -> TextFormat:
    """The format of a custom tool; Chat Completions nests the grammar one level deeper."""
    if value is None:
        return TextFormat()
    where = f"{where}.format"
    if not isinstance(value, dict):
        raise UsageError(f"{where} is not an object.", param=where)
    if value.get("type") == "text":
        return TextFormat()
    grammar = value["grammar"] if isinstance(value.get("grammar"), dict) else value
    if value.get("type") != "grammar" or grammar.get("syntax") not in ("lark", "regex"):
        raise UsageError(f"{where} is neither text nor a lark or regex grammar.", param=where)
    if not isinstance(grammar.get("definition"), str) or not grammar["definition"].strip():
        raise UsageError(f"{where} has no definition.", param=f"{where}.definition")
    return TextFormat(grammar["syntax"], grammar["definition"])


def _choice(table: ToolTable, choice: Any) -> tuple[Mode, tuple[str, ...]]:
    """How the model may choose, out of ``tool_choice``."""
    if choice is None:
        return "auto", ()
    mode: Mode = "required"
    named: Any = []
    if isinstance(choice, str):
        if choice not in ("auto", "none", "required"):
            raise UsageError(f"tool_choice is {choice!r}.", hint="Known: auto, none, required.", param="tool_choice")
        mode = cast(Mode, choice)
    elif isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        body = choice["allowed_tools"] if isinstance(choice.get("allowed_tools"), dict) else choice
        named = body.get("tools")
        mode = body.get("mode", "auto")
        if mode not in ("auto", "required") or not isinstance(named, list):
            raise UsageError("allowed_tools needs a mode, auto or required, and tools.", param="tool_choice")
    elif isinstance(choice, dict) and choice.get("type") in ("function", "custom"):
        named = [choice]
    elif isinstance(choice, dict) and isinstance(choice.get("type"), str):
        return "auto", ()  # A hosted tool: dropped, as its definition is.
    else:
        raise UsageError("tool_choice is neither a word nor an object with a type.", param="tool_choice")
    allowed = tuple(dict.fromkeys(name for one in named for name in _chosen(table, one)))
    if mode == "required" and not (allowed if named else table.tools):
        raise UsageError("A tool must be called, and none is offered.", param="tool_choice")
    # Where all that is allowed is hosted elsewhere, nothing may be called.
    return ("none" if named and not allowed else mode), allowed


def _chosen(table: ToolTable, entry: Any) -> list[str]:
    """The flat names that one entry of a choice stands for."""
    kind = entry.get("type") if isinstance(entry, dict) else None
    if kind not in ("function", "custom", "namespace"):
        return []
    body = entry[kind] if isinstance(entry.get(kind), dict) else entry
    name, space = body.get("name"), body.get("namespace")
    if kind == "namespace":
        found = [tool.name for tool in table.tools if tool.namespace == name]
    else:
        found = [tool.name for tool in table.tools if name in (tool.public_name, tool.name)]
        found = [one for one in found if space is None or table.restore(one).namespace == space][:1]
    if not found:
        known = [tool.public_name for tool in table.tools]
        hint = did_you_mean(str(name), known) if known else "No tool is offered."
        raise UsageError(f"tool_choice names {name!r}, which is not offered.", hint=hint, param="tool_choice")
    return found


def too_deep(value: Any) -> bool:
    """Whether JSON is nested deeper than a schema may be."""
    level = [value]
    for _ in range(DEEPEST):
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return False
    return True


def _safe(name: str) -> str:
    """A name of the letters and length that models and servers take for a function."""
    plain = _UNSAFE.sub("_", name)
    if len(plain) <= LONGEST_NAME:
        return plain
    return f"{plain[: LONGEST_NAME - 9]}_{hashlib.blake2b(name.encode('utf-8', 'replace'), digest_size=4).hexdigest()}"


def _unused(name: str, flat: dict[str, FlatTool], public: str, namespace: str | None) -> str:
    """``name``, or where another tool has it, one that depends on nothing but what the client called it.

    A tool that is defined again keeps its name: the last definition counts.
    """
    mark = hashlib.blake2b(f"{namespace}\0{public}".encode("utf-8", "replace"), digest_size=4).hexdigest()
    stem = name[: LONGEST_NAME - 13]
    number = 1
    while (other := flat.get(name)) is not None and (other.public_name, other.namespace) != (public, namespace):
        name = f"{stem}_{mark}" if number == 1 else f"{stem}_{mark}_{number}"[:LONGEST_NAME]
        number += 1
    return name


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def _full(tool: FlatTool) -> str:
    return _plain(f"{tool.namespace}_{tool.public_name}" if tool.namespace else tool.public_name)


def _bare(tool: FlatTool) -> str:
    return _plain(tool.public_name)

"""Items to the messages and tools of Chat Completions, each in its place, so that the prompt's prefix stays."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from vivace.backends.base import Job
from vivace.dialects.tools import FlatTool
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
    part_text,
)

MARK = "[system]"
"""Begins a user turn, or its part, that the server would not take as a system message."""


def messages_of(job: Job, habits: Set[str]) -> list[dict[str, Any]]:
    """The conversation of a job.

    The system messages that it begins with become one; later ones stay where they are. One assistant message holds the
    thoughts, the text and the calls between two other turns. Images of tool outputs follow in a user turn.
    """
    builder = _Builder(job, habits)
    for item in job.items:
        builder.add(item)
    builder.close()
    return _merged(builder.messages) if habits & {"no_late_system", "no_system"} else builder.messages


def tool_of(tool: FlatTool) -> dict[str, Any]:
    """A tool as a function; the grammar of a custom tool stands in its description."""
    if tool.format.syntax == "text":
        return tool.schema()
    said = f"{tool.description}\n\nThe input must match this {tool.format.syntax} grammar:\n{tool.format.definition}"
    function = {"name": tool.name, "description": said.strip(), "parameters": tool.parameters}
    return {"type": "function", "function": function}


class _Builder:
    def __init__(self, job: Job, habits: Set[str]) -> None:
        self.messages: list[dict[str, Any]] = []
        self._tools = job.tools
        self._habits = habits
        self._assistant: dict[str, Any] | None = None
        outputs = {i.call_id for i in job.items if isinstance(i, FunctionCallOutput | CustomToolCallOutput)}
        self._answered = outputs
        self._owed: set[str] = set()
        self._held: list[Item] = []
        self._images: list[dict[str, Any]] = []

    def add(self, item: Item) -> None:
        match item:
            case FunctionCallOutput() | CustomToolCallOutput():
                self._output(item)
            case Message(role="assistant"):
                assistant = self._open_assistant()
                assistant["content"] = (assistant["content"] or "") + item.text
            case Reasoning() if item.content and "no_thoughts" not in self._habits:
                assistant = self._open_assistant()
                assistant["reasoning_content"] = assistant.get("reasoning_content", "") + content_text(item.content)
            case FunctionCall() | CustomToolCall():
                name, arguments = self._tools.flatten_call(item)
                call = {"id": item.call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
                self._open_assistant().setdefault("tool_calls", []).append(call)
                if item.call_id in self._answered:
                    self._owed.add(item.call_id)
            case Message():
                if self._owed:
                    # Servers want outputs right behind their calls, so what was said in between comes after them.
                    self._held.append(item)
                else:
                    self._message(item)
            case _:
                pass  # says nothing to a model: tools, references, what only a client or this service reads

    def close(self) -> None:
        self._close_assistant()
        self._owed = set()
        self._settle()

    def _open_assistant(self) -> dict[str, Any]:
        self._settle()
        if self._assistant is None:
            self._assistant = {"role": "assistant", "content": None}
        return self._assistant

    def _close_assistant(self) -> None:
        if self._assistant is not None:
            if self._assistant["content"] is None and "tool_calls" not in self._assistant:
                self._assistant["content"] = ""
            self.messages.append(self._assistant)
            self._assistant = None

    def _output(self, item: FunctionCallOutput | CustomToolCallOutput) -> None:
        self._close_assistant()
        text, parts = content_text(item.output), item.output if isinstance(item.output, list) else []
        images = [_part(part) for part in parts if not part_text(part)]
        self._images += images
        text = text or ("[images follow]" if images else "")
        self.messages.append({"role": "tool", "tool_call_id": item.call_id, "content": text})
        self._owed.discard(item.call_id)

    def _settle(self) -> None:
        """What had to wait for the last output."""
        if self._images and not self._owed:
            self.messages.append({"role": "user", "content": self._images})
            self._images = []
        if self._held and not self._owed:
            held, self._held = self._held, []
            for item in held:
                self.add(item)

    def _message(self, item: Message) -> None:
        self._close_assistant()
        self._settle()
        role = item.role
        if role == "developer" and "system_for_developer" in self._habits:
            role = "system"
        content: Any = _content(item.content)
        if role != "user":
            late = any(message["role"] not in ("system", "developer") for message in self.messages)
            content = item.text
            if "no_system" in self._habits or (late and "no_late_system" in self._habits):
                role, content = "user", f"{MARK}\n{content}"
            elif not late and self.messages and self.messages[-1]["role"] == role:
                self.messages[-1]["content"] += f"\n\n{content}"
                return
        self.messages.append({"role": role, "content": content})


def _content(content: str | list[ContentPart]) -> str | list[dict[str, Any]]:
    """A string where all is text: every server takes that."""
    if isinstance(content, str) or all(part_text(part) or not _is_media(part) for part in content):
        return content_text(content)
    return [_part(part) for part in content]


def _is_media(part: ContentPart) -> bool:
    return isinstance(part, InputImage | InputFile)


def _part(part: ContentPart) -> dict[str, Any]:
    match part:
        case InputImage():
            image = {"url": part.image_url or part.file_id or ""}
            return {"type": "image_url", "image_url": image | ({"detail": part.detail} if part.detail else {})}
        case InputFile():
            names = ("filename", "file_data", "file_id")
            return {"type": "file", "file": {name: value for name in names if (value := getattr(part, name))}}
        case _:
            return {"type": "text", "text": part_text(part)}


def _merged(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """User turns that follow one another as one, for templates in which turns alternate."""
    merged: list[dict[str, Any]] = []
    for message in messages:
        if merged and message["role"] == merged[-1]["role"] == "user":
            merged[-1] = {"role": "user", "content": _joined(merged[-1]["content"], message["content"])}
        else:
            merged.append(message)
    return merged


def _joined(first: Any, second: Any) -> Any:
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    parts: list[Any] = []
    for content in (first, second):
        parts += content if isinstance(content, list) else [{"type": "text", "text": content}]
    return parts

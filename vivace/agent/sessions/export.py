"""A conversation for people, as Markdown, and for programs, as JSON."""

from __future__ import annotations

import re
import time

import msgspec

from vivace.agent.sessions.conversation import Conversation
from vivace.agent.sessions.entries import (
    CheckpointRef,
    Compaction,
    Entry,
    Items,
    Mode,
    Note,
    ToolCall,
    ToolResult,
    Unknown,
    User,
)
from vivace.agent.sessions.listing import item_text


def to_json(conversation: Conversation, leaf: str | None = None) -> bytes:
    """The path to ``leaf`` (default: where it is), as one object: ``conversation``, ``title`` and ``entries``."""
    entries = [
        {
            "id": entry.id,
            "parent": entry.parent,
            "time": entry.time,
            "kind": entry.kind,
            "data": entry.data.data if isinstance(entry.data, Unknown) else entry.data,
            **({"state": conversation.state(entry.id).state} if isinstance(entry.data, User) else {}),
        }
        for entry in conversation.path(leaf)
    ]
    whole = {"conversation": conversation.header, "title": conversation.title, "entries": entries}
    return msgspec.json.format(msgspec.json.encode(whole)) + b"\n"


def to_markdown(conversation: Conversation, leaf: str | None = None) -> str:
    """The path to ``leaf`` as a page: messages as text, commands and their output in fences that they cannot close."""
    began = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(conversation.header.created))
    parts = [f"# {conversation.title or 'Conversation'}", f"{conversation.header.workspace}, {began}"]
    for entry in conversation.path(leaf):
        parts += _shown(conversation, entry)
    return "\n\n".join(parts) + "\n"


def _shown(conversation: Conversation, entry: Entry) -> list[str]:
    match entry.data:
        case User(text=text):
            state = conversation.state(entry.id)
            said = "" if state.state == "delivered" else f" ({state.state}{': ' if state.reason else ''}{state.reason})"
            return [f"## User{said}", text]
        case Items(items=items):
            texts = [text for text in map(item_text, items) if text.strip()]
            return ["## Assistant", *texts] if texts else []
        case ToolCall(name=name, arguments=arguments):
            return [f"**{name}**", _fenced(arguments)]
        case ToolResult(output=output, ok=ok):
            return [*([] if ok else ["It failed:"]), _fenced(output)]
        case Compaction(summary=summary, facts=facts):
            return ["## Summary of what came before", summary, "\n".join(f"- {fact}" for fact in facts)]
        case Note(text=text):
            return [f"> {line}" for line in text.splitlines()]
        case Mode(mode=mode, model=model, reason=reason):
            return [f"*{' '.join(filter(None, [mode, model]))}{': ' if reason else ''}{reason}*"]
        case CheckpointRef(number=number):
            return [f"*checkpoint {number}*"]
        case _:
            return []


def _fenced(text: str) -> str:
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text.rstrip()}\n{fence}"

"""The conversations of a workspace: where they are, which there are, and what was said in them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from vivace.agent.checkpoints.place import folder_for
from vivace.agent.sessions.conversation import Conversation
from vivace.agent.sessions.entries import CheckpointRef, Compaction, Entry, Items, Note, ToolCall, ToolResult, User
from vivace.errors import UsageError, VivaceError, did_you_mean

AROUND = 60
"""Characters on each side of a hit."""


class Summary(Struct, frozen=True):
    """One conversation in a list; times in seconds since 1970. ``broken`` says why it cannot be read."""

    id: str
    path: Path
    title: str
    created: float
    updated: float
    entries: int
    messages: int
    forked_from: tuple[str, str] | None = None
    broken: str = ""


class Hit(Struct, frozen=True):
    conversation: str
    entry: str
    kind: str
    text: str
    """What stands around the words, on one line."""


def conversations_folder(workspace: Path, state_dir: Path) -> Path:
    """Where the conversations of a workspace are kept."""
    return folder_for(workspace, state_dir / "sessions")


def conversations(folder: Path) -> list[Summary]:
    """All of them, the one that was changed last first."""
    found = [_summary(path) for path in folder.glob("*.jsonl")]
    return sorted(found, key=lambda summary: (summary.updated, summary.id), reverse=True)


def find(folder: Path, name: str = "") -> Path:
    """The file of a conversation, by the beginning or the end of its id; the last one for an empty name.

    Raises :class:`UsageError` (``conversation_not_found``), also for a name that fits several.
    """
    known = sorted(folder.glob("*.jsonl"), key=lambda path: path.stat().st_mtime_ns)
    if not name and known:
        return known[-1]
    fits = [path for path in known if path.stem == name] or [
        path for path in known if name and (path.stem.startswith(name) or path.stem.endswith(name))
    ]
    if len(fits) == 1:
        return fits[0]
    ids = [path.stem for path in fits or known]
    if not ids:
        raise UsageError("There is no conversation in this folder yet.", code="conversation_not_found")
    hint = f"It fits {', '.join(ids)}." if fits else did_you_mean(name, ids)
    raise UsageError(f"There is no conversation {name}.", hint=hint, code="conversation_not_found")


def search(folder: Path, words: str) -> Iterator[Hit]:
    """Entries that hold these words as they stand, whatever their case; newest conversations first."""
    sought = words.casefold()
    if not sought.strip():
        raise UsageError("Nothing to search for was given.", code="usage", param="words")
    for summary in conversations(folder):
        if summary.broken:
            continue
        conversation = Conversation.open(summary.path, write=False)
        for entry in conversation.entries():
            text = " ".join(text_of(entry).split())
            at = text.casefold().find(sought)
            if at >= 0:
                shown = text[max(0, at - AROUND) : at + len(words) + AROUND]
                yield Hit(summary.id, entry.id, entry.kind, shown)


def text_of(entry: Entry) -> str:
    """What a person would read of an entry; empty for what is only bookkeeping."""
    match entry.data:
        case User(text=text) | Note(text=text):
            return text
        case Items(items=items):
            return "\n".join(filter(None, map(item_text, items)))
        case ToolCall(name=name, arguments=arguments):
            return f"{name} {arguments}"
        case ToolResult(output=output):
            return output
        case Compaction(summary=summary, facts=facts):
            return "\n".join([summary, *facts])
        case CheckpointRef(label=label):
            return label
        case _:
            return ""


def item_text(raw: msgspec.Raw) -> str:
    """The text of a message item of the Responses API; empty for other items."""
    try:
        item = msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return ""
    content = item.get("content") if isinstance(item, dict) and item.get("type") == "message" else None
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(str(part.get("text") or part.get("refusal") or "") for part in parts if isinstance(part, dict))


def _summary(path: Path) -> Summary:
    status = path.stat()
    try:
        conversation = Conversation.open(path, write=False)
    except VivaceError as error:
        return Summary(path.stem, path, "", status.st_mtime, status.st_mtime, 0, 0, broken=error.message)
    entries = conversation.entries()
    return Summary(
        conversation.id,
        path,
        conversation.title,
        conversation.header.created,
        status.st_mtime,
        len(entries),
        sum(isinstance(entry.data, User) for entry in entries),
        conversation.header.forked_from,
    )

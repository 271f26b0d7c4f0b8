"""What the model sees of a conversation: its entries as items of OpenAI's Responses API.

Every call has an output, in whatever state a stop, a crash or going back left the conversation; messages that failed
are not shown; a compaction stands for what came before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from vivace.agent.sessions.conversation import Conversation
from vivace.agent.sessions.entries import Compaction, Entry, Items, Mode, Note, ToolCall, ToolResult, User
from vivace.protocol.items import FunctionCall, FunctionCallOutput, Item, Message, item_of

INTERRUPTED = "interrupted by the user"
NOT_RUN = "not run: the user has said something else; read it first"
CUT_OFF = "interrupted before it had ended; the files are as they were before this call"
NOT_BEGUN = "not run"


@dataclass
class History:
    """``ends`` gives, for each response, the number of items up to its end."""

    items: list[Item] = field(default_factory=list)
    ends: dict[str, int] = field(default_factory=dict)
    _open: dict[str, str] = field(default_factory=dict)
    """Calls without an output, and what to say of them."""

    def after(self, response: str) -> list[Item] | None:
        """What is new since ``response``; None when it is not on the path."""
        end = self.ends.get(response)
        return None if end is None else self.items[end:]

    def _add(self, items: Sequence[Item]) -> None:
        self._close()
        self.items += items
        self._open |= {item.call_id: NOT_BEGUN for item in items if isinstance(item, FunctionCall)}

    def _close(self) -> None:
        self.items += [FunctionCallOutput(call, why) for call, why in self._open.items()]
        self._open.clear()


def history(conversation: Conversation) -> History:
    """The path to where the conversation is."""
    found = History()
    for entry in _visible(conversation):
        match entry.data:
            case User():
                if conversation.state(entry.id).state != "failed":
                    found._add([Message("user", _said(entry.data))])
            case Note(text=text):
                found._add([Message("user", f"[{text}]")])
            case Items(items=items, response=response):
                found._add([item_of(msgspec.json.decode(item)) for item in items])
                if response:
                    found.ends[response] = len(found.items)
            case Compaction():
                found._add([Message("user", compacted(entry.data))])
            case ToolCall(call=call):
                if call in found._open:
                    found._open[call] = CUT_OFF
            case ToolResult(call=call, output=output):
                if found._open.pop(call, None) is not None:
                    found.items.append(FunctionCallOutput(call, output))
    found._close()
    return found


def open_calls(conversation: Conversation) -> dict[str, str]:
    """Calls at the end of the path that were begun and have no result, with the entries that say so."""
    found: dict[str, str] = {}
    for entry in conversation.path():
        match entry.data:
            case ToolCall(call=call):
                found[call] = entry.id
            case ToolResult(call=call):
                found.pop(call, None)
            case User() | Items():
                found.clear()
    return found


def unfinished(conversation: Conversation) -> bool:
    """Whether the path ends in the middle of a turn: with a message, calls or results that nobody answered."""
    for entry in conversation.upwards(conversation.leaf):
        match entry.data:
            case User():
                return conversation.state(entry.id).state != "failed"
            case ToolCall() | ToolResult():
                return True
            case Items(items=items):
                return any(isinstance(item_of(msgspec.json.decode(item)), FunctionCall) for item in items)
            case Mode(reason=reason) if reason == REVIEWS:
                return True
            case Note(text=text) if text.startswith(FOUND):
                return True
            case Note(text=text) if text.startswith((ENDED, PASSED)):
                return False
    return False


ENDED = "the turn ended"
"""How the note begins that says so; nothing is to be gone on with behind it."""


REVIEWS = "reviews the change"
"""The reason of a mode entry: the reviewer is asked."""
FOUND = "The reviewer found faults"
"""How the note begins with what is to be put right."""
PASSED = "Reviewed by"
"""How the note begins behind which there is nothing to be done."""


def compacted(entry: Compaction) -> str:
    """How a compaction is put to the model."""
    facts = "".join(f"\n- {fact}" for fact in entry.facts)
    return f"[What came before was shortened.]\n{entry.summary}".rstrip() + (f"\n\nFacts:{facts}" if facts else "")


def _visible(conversation: Conversation) -> list[Entry]:
    """The entries that count: the last compaction, what it kept, and what followed."""
    path = conversation.path()
    for n in range(len(path) - 1, -1, -1):
        data = path[n].data
        if isinstance(data, Compaction):
            kept = next((k for k, entry in enumerate(path[:n]) if entry.id == data.kept_from), n)
            return [path[n], *path[kept:n], *path[n + 1 :]]
    return path


def _said(user: User) -> str:
    return user.text + (f"\n(files: {', '.join(user.files)})" if user.files else "")

"""A conversation that is on disk, as the events that it once was: for any face to show again."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from vivace.agent.sessions.conversation import Conversation
from vivace.agent.sessions.entries import Compaction, Entry, Items, Mode, Note, ToolCall, ToolResult, User
from vivace.agent.sessions.listing import item_text
from vivace.agent.turns.events import Event, MessageChanged, Noted, Said, Thought, ToolBegan, ToolEnded, TurnBegan

BRIEF = 200
"""Characters of a call's arguments that are shown."""


def replayed(conversation: Conversation) -> Iterator[Event]:
    """From the first entry to where the conversation is. Numbers of messages are below zero: none of them waits."""
    return (event for _, event in timed(conversation) if not isinstance(event, TurnBegan))


def timed(conversation: Conversation) -> Iterator[tuple[float, Event]]:
    """The same, and how each turn was worked on, with the moments, in seconds since 1970."""
    turn = 0
    for n, entry in enumerate(conversation.path(), 1):
        turn += isinstance(entry.data, User)
        for event in _events(conversation, entry, n, turn):
            event.turn = turn
            yield entry.time, event


def _events(conversation: Conversation, entry: Entry, number: int, turn: int) -> Iterator[Event]:
    match entry.data:
        case User(text=text):
            state = conversation.state(entry.id)
            yield MessageChanged(number=-number, text=text, verb="send", state=state.state, reason=state.reason)
        case Mode(mode="auto" | "fast" | "deep" as mode, model=model, reason=reason) if turn:
            yield TurnBegan(mode=mode, model=model, reason=reason)
        case Items(items=items):
            for item in items:
                yield from _item(item)
        case ToolCall(call=call, name=name, arguments=arguments):
            yield ToolBegan(call=call, name=name, brief=brief(arguments))
        case ToolResult(call=call, output=output, ok=ok, seconds=seconds):
            yield ToolEnded(call=call, ok=ok, text=output, seconds=seconds)
        case Note(text=text):
            yield Noted(text=text)
        case Compaction():
            yield Noted(text="What came before was shortened for the model.")
        case _:
            pass


def brief(arguments: str) -> str:
    """The value of a call's only or first argument, else all of them as they are."""
    try:
        read = msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        read = None
    first = next(iter(read.values()), "") if isinstance(read, dict) else arguments
    text = first if isinstance(first, str) else arguments
    return text if len(text) <= BRIEF else text[: BRIEF - 1] + "…"


def _item(raw: msgspec.Raw) -> Iterator[Event]:
    if text := item_text(raw):
        yield Said(text=text + "\n\n")
        return
    item = msgspec.json.decode(raw)
    if isinstance(item, dict) and item.get("type") == "reasoning":
        parts = [*(item.get("summary") or ()), *(item.get("content") or ())]
        thought = "\n".join(str(part.get("text") or "") for part in parts if isinstance(part, dict))
        if thought.strip():
            yield Thought(text=thought)

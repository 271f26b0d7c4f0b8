"""Files and conversation, back and forth as one: what was undone is gone from the context, too."""

from __future__ import annotations

from msgspec import Struct

from vivace.agent.checkpoints import CheckpointStore, Position, Restored
from vivace.agent.sessions.conversation import Conversation
from vivace.agent.sessions.entries import CheckpointRef, Entry, Items, ToolCall, ToolResult

TURN = "turn"
"""The kind of the checkpoints that are taken before a message of the user is worked on."""


class FilesAt(Struct, frozen=True):
    """The checkpoint with the files of one place in a conversation.

    ``exact``: nothing between the two places can have changed a file. Else it is the last one before.
    """

    number: int
    entry: str
    exact: bool


def position_of(conversation: Conversation) -> Position:
    """Where the conversation is; an empty entry is its beginning."""
    return Position(conversation.id, conversation.leaf or "")


def files_at(conversation: Conversation, leaf: str | None) -> FilesAt | None:
    """The checkpoint to restore together with going back to ``leaf``; None when there is none on its path.

    A checkpoint holds for the entries around it up to the next tool call or result: only those change files.
    """
    exact, found = True, None
    for entry in conversation.upwards(leaf):
        if isinstance(entry.data, CheckpointRef):
            found = FilesAt(entry.data.number, entry.id, exact)
            break
        exact = exact and not _acts(entry)
    if found is not None and found.exact:
        return found
    return _after(conversation, leaf) or found


def step_back(
    conversation: Conversation, store: CheckpointStore, kind: str | None = TURN, to: int | None = None
) -> Restored:
    """Undo the files to the last checkpoint of ``kind``, or to ``to``, and the conversation to where it stood there."""
    return _follow(conversation, store, store.undo(kind, position_of(conversation), to))


def step_forth(conversation: Conversation, store: CheckpointStore) -> Restored:
    """Redo both."""
    return _follow(conversation, store, store.redo(position_of(conversation)))


def go_to(conversation: Conversation, store: CheckpointStore, number: int) -> Restored:
    """Both to a checkpoint, by its number. Its conversation may be another one: then only the files go there."""
    return _follow(conversation, store, store.restore(number, position_of(conversation)))


def reconcile(conversation: Conversation, store: CheckpointStore) -> bool:
    """To be called on opening: a crash may have come between the files and the conversation. Whether it had."""
    position = store.unsettled
    if position is None or not knows(conversation, position):
        return False
    behind = conversation.leaf != (position.entry or None)
    if behind:
        conversation.branch(position.entry or None)
    store.settle()
    return behind


def _follow(conversation: Conversation, store: CheckpointStore, restored: Restored) -> Restored:
    if restored.position is not None and knows(conversation, restored.position):
        conversation.branch(restored.position.entry or None)
        store.settle()
    return restored


def knows(conversation: Conversation, position: Position) -> bool:
    """Whether it can go there: its own place, or one that it has from the conversation that it was forked from."""
    if not position.entry:
        return position.conversation in (conversation.id, *conversation.header.lineage)
    return position.entry in conversation


def _after(conversation: Conversation, leaf: str | None) -> FilesAt | None:
    """The next checkpoint behind ``leaf`` on any branch, when nothing in between can have changed a file."""
    below: dict[str | None, list[Entry]] = {}
    for entry in conversation.entries():
        below.setdefault(entry.parent, []).append(entry)
    waiting = [leaf]
    while waiting:
        for entry in below.get(waiting.pop(), []):
            if isinstance(entry.data, CheckpointRef):
                return FilesAt(entry.data.number, entry.id, True)
            if not _acts(entry):
                waiting.append(entry.id)
    return None


def _acts(entry: Entry) -> bool:
    return isinstance(entry.data, ToolCall | ToolResult | Items)

"""What a conversation is made of: one line of JSON per entry.

A line is ``{"id", "parent", "time", "kind", "data"}``. ``parent`` is the entry that it follows, ``time`` in seconds
since 1970, ``data`` what the struct of its kind says. Kinds that are not known here are kept and passed on as they are.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Raw, Struct

VERSION = 2
"""Of the file. Version 1 named kinds ``type``, took times in milliseconds, and knew no states of messages."""

MessageState = Literal["queued", "sent", "delivered", "failed"]


class Header(Struct, frozen=True, kw_only=True):
    """The first line.

    ``forked_from`` is the conversation and entry that this one was copied from, ``lineage`` all those before it.
    """

    version: int
    id: str
    workspace: str
    created: float
    forked_from: tuple[str, str] | None = None
    lineage: tuple[str, ...] = ()


class User(Struct, frozen=True, omit_defaults=True):
    """A message of the user, as it was when it was accepted; ``State`` entries say what became of it."""

    text: str
    state: MessageState = "queued"
    files: tuple[str, ...] = ()


class Items(Struct, frozen=True, omit_defaults=True):
    """Items of OpenAI's Responses API as they were emitted: unknown keys, their order and all digits are kept."""

    items: tuple[Raw, ...]
    response: str = ""


class ToolCall(Struct, frozen=True):
    call: str
    name: str
    arguments: str


class ToolResult(Struct, frozen=True, omit_defaults=True):
    call: str
    output: str
    ok: bool = True
    seconds: float = 0.0


class CheckpointRef(Struct, frozen=True, omit_defaults=True):
    """The files at this place of the conversation are those of this checkpoint."""

    number: int
    label: str = ""


class Mode(Struct, frozen=True, omit_defaults=True):
    """The mode and model from here on, and why."""

    mode: str
    model: str = ""
    reason: str = ""


class Compaction(Struct, frozen=True, omit_defaults=True):
    """From here on the model sees this instead of what came before ``kept_from`` (all of it when that is empty)."""

    summary: str
    facts: tuple[str, ...] = ()
    kept_from: str = ""


class Usage(Struct, frozen=True, omit_defaults=True):
    """Of one response or turn; ``limits`` as a meter's name and its share used, 0 to 1."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    seconds: float = 0.0
    cost: float | None = None
    limits: dict[str, float] = {}


class Note(Struct, frozen=True):
    text: str


class Title(Struct, frozen=True):
    """The title of the conversation from now on. It follows nothing."""

    text: str


class State(Struct, frozen=True, omit_defaults=True):
    """What became of a message of the user. It follows nothing."""

    of: str
    state: MessageState
    reason: str = ""


class Branch(Struct, frozen=True):
    """The conversation goes on behind this entry; None is before the first. It follows nothing."""

    at: str | None


class Unknown(Struct, frozen=True):
    """What a newer vivace wrote."""

    kind: str
    data: Raw


Data = (
    User
    | Items
    | ToolCall
    | ToolResult
    | CheckpointRef
    | Mode
    | Compaction
    | Usage
    | Note
    | Title
    | State
    | Branch
    | Unknown
)
About = Title | State | Branch
"""Entries about the conversation: they are no part of the tree."""

KINDS: dict[str, type[Data]] = {
    "user": User,
    "items": Items,
    "tool_call": ToolCall,
    "tool_result": ToolResult,
    "checkpoint": CheckpointRef,
    "mode": Mode,
    "compaction": Compaction,
    "usage": Usage,
    "note": Note,
    "title": Title,
    "state": State,
    "branch": Branch,
}
_NAMES = {struct: kind for kind, struct in KINDS.items()}


class Entry(Struct, frozen=True):
    """One entry, read. ``kind`` is that of ``data``."""

    id: str
    parent: str | None
    time: float
    data: Data

    @property
    def kind(self) -> str:
        return self.data.kind if isinstance(self.data, Unknown) else _NAMES[type(self.data)]


class _Line(Struct, frozen=True):
    id: str
    parent: str | None
    time: float
    kind: str
    data: Raw


_encode = msgspec.json.Encoder().encode
_line = msgspec.json.Decoder(_Line).decode
_header = msgspec.json.Decoder(Header).decode


def encode_entry(entry: Entry) -> bytes:
    """The line with its end. Items that were written over several lines lose the space between their tokens."""
    data = bytes(entry.data.data) if isinstance(entry.data, Unknown) else _encode(entry.data)
    if b"\n" in data or b"\r" in data:
        data = msgspec.json.format(data, indent=-1)
    return _encode(_Line(entry.id, entry.parent, entry.time, entry.kind, Raw(data))) + b"\n"


def decode_entry(line: bytes) -> Entry:
    """Raises :class:`msgspec.DecodeError` for what is no entry."""
    read = _line(line)
    struct = KINDS.get(read.kind)
    # The copy lets go of the line that a Raw points into.
    data = Unknown(read.kind, read.data.copy()) if struct is None else msgspec.json.decode(read.data, type=struct)
    return Entry(read.id, read.parent, read.time, data)


def encode_header(header: Header) -> bytes:
    return _encode(header) + b"\n"


def decode_header(line: bytes) -> Header:
    """Raises :class:`msgspec.DecodeError`."""
    return _header(line)

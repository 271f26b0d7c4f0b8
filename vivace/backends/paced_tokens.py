"""Tokens without a model: how the paced backend cuts text, and what of a prompt it has seen before.

A token is up to six visible characters together with the white space before them; white space at the end of a text is
a token of its own. Cutting loses nothing: joined, the tokens are the text.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Iterable
from itertools import cycle, islice, takewhile
from typing import NamedTuple

from msgspec import Struct

from vivace.dialects.tools import ToolTable
from vivace.protocol.items import (
    CustomToolCall,
    CustomToolCallOutput,
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    item_text,
)

cut = re.compile(r"\s*\S{1,6}|\s+\Z").findall
"""Text -> its tokens."""

_PROSE = cut(
    " The clock of this answer is exact: each word comes when it is due, and what is late comes with the next one."
    " Nothing here was thought up by a model, so a client that reads it can tell how much time the path between the two"
    " has added.\n Read it to the end, count the words, and set the hour at which each of them was due against the hour"
    " at which it came."
)
DEFAULT_TOKENS = 400


def filler(count: int) -> list[str]:
    """``count`` tokens of prose."""
    tokens = list(islice(cycle(_PROSE), count))
    return [tokens[0].lstrip(), *tokens[1:]] if tokens else []


class Trail(Struct, frozen=True):
    """The continuation of a paced answer: the digest of everything up to its end, and how many tokens that is."""

    digest: bytes
    tokens: int


class Prompt(NamedTuple):
    """``cached`` of the ``tokens`` were seen before; ``places`` are the trails before and after each item."""

    tokens: int
    cached: int
    places: list[Trail]


class PrefixMemory:
    """A prefix cache by digests, one for each conversation up to and with each of its items; the oldest go first.

    Ids and statuses do not count, so a client that sends everything again without them hits as one that continues.
    Reasoning is not rendered again and counts nothing.
    """

    def __init__(self, capacity: int = 65536) -> None:
        self.capacity = capacity
        self._seen: OrderedDict[bytes, int] = OrderedDict()
        self._tools: OrderedDict[str, Trail] = OrderedDict()

    def read(self, tools: ToolTable, items: Iterable[Item], behind: Trail | None = None) -> Prompt:
        """Count a prompt; with ``behind``, ``items`` are those after it."""
        trail = behind or self._offered(tools)
        places = [trail]
        for item in items:
            parts = _said(item)
            if parts is not None:
                digest = _digest(trail, parts)
                # Counting takes ten times as long as hashing, and would be taken for a cost of the client's protocol.
                tokens = self._seen.get(digest)
                trail = Trail(digest, trail.tokens + _count(parts) if tokens is None else tokens)
                places.append(trail)
        known = list(takewhile(lambda place: place.digest in self._seen, places))
        return Prompt(trail.tokens, known[-1].tokens if known else 0, places)

    def _offered(self, tools: ToolTable) -> Trail:
        """Where a prompt with these tools begins; counted once for each set of tools."""
        trail = self._tools.get(tools.digest)
        if trail is None:
            trail = Trail(b"", 0)
            for tool in tools.tools:
                trail = extend(trail, ("tool", tool.name, tool.description, repr(tool.parameters)))
            self._tools[tools.digest] = trail
            while len(self._tools) > 64:
                self._tools.popitem(last=False)
        return trail

    def add(self, trail: Trail) -> None:
        self._seen[trail.digest] = trail.tokens
        self._seen.move_to_end(trail.digest)
        while len(self._seen) > self.capacity:
            self._seen.popitem(last=False)


def extend(trail: Trail, parts: tuple[str, ...]) -> Trail:
    """The trail after one more item of these parts: its kind, who or what, its text."""
    return Trail(_digest(trail, parts), trail.tokens + _count(parts))


def _digest(trail: Trail, parts: tuple[str, ...]) -> bytes:
    digest = hashlib.blake2b(trail.digest, digest_size=16)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return digest.digest()


def _count(parts: tuple[str, ...]) -> int:
    return sum(len(cut(part)) for part in parts[1:])


def said_message(text: str) -> tuple[str, ...]:
    """An answer's message, as it counts when it comes back as an item."""
    return ("message", "assistant", text)


def said_call(namespace: str | None, name: str, text: str) -> tuple[str, ...]:
    """An answer's tool call, as it counts when it comes back as an item."""
    return ("call", f"{namespace}__{name}" if namespace else name, text)


def _said(item: Item) -> tuple[str, ...] | None:
    match item:
        case Message():
            return ("message", item.role, item.text)
        case FunctionCall():
            return said_call(item.namespace, item.name, item.arguments)
        case CustomToolCall():
            return said_call(item.namespace, item.name, item.input)
        case FunctionCallOutput() | CustomToolCallOutput():
            return ("output", item_text(item))
        case _:
            return None

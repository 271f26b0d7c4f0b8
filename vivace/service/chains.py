"""Chains: responses and what each of them knows, kept beyond the connection that made them.

A link holds only its own items and points at its parent, so a turn copies no history. It is found by its id, or, when a
client sends everything again, by what its items say: reconnects, retries and stateless clients find their chain too.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from vivace.protocol import items as it
from vivace.protocol.items import Item

LIFETIME = 3600.0
"""Seconds that a link is kept after its last use."""
MOST_BYTES = 256 << 20
"""Text of all links together; the least recently used go first."""
OVERHEAD = 1024
"""Bytes of a link itself, about."""
NEAR = 8
"""Links that count as used with the one that is continued: retries and forks go back a few."""


class Said(NamedTuple):
    """The digest of a whole conversation, and how many bytes its latest items take."""

    digest: bytes
    size: int


class Match(NamedTuple):
    """``link`` has the first ``covered`` of the items that were looked for; ``said`` is all of them, and its size that
    of the others."""

    link: Link | None
    covered: int
    said: Said


class Prefill:
    """A prompt that is being read behind an answer which its client has already.

    Who continues it waits for :attr:`over` once it has :attr:`begun`; before, it only stands in the way: ``give_up``.
    """

    __slots__ = ("begun", "give_up", "over")

    def __init__(self, give_up: Callable[[], None]) -> None:
        self.begun = False
        self.over = asyncio.Event()
        self.give_up = give_up


class Link:
    """One response in its chain.

    ``given`` are the items that its request added, ``made`` those it put out, ``read`` both as a model reads them (see
    :mod:`vivace.service.reading`). ``before`` is what was said up to and with ``given``, where that is known.
    ``continuation`` is that of ``backend``, for the tools whose digest is ``tools``;
    None where there is none, and while ``prefill`` runs.
    """

    __slots__ = (
        "additional", "backend", "continuation", "digest", "given", "holders", "id", "instructions", "made", "model",
        "parent", "prefill", "principal", "read", "size", "stored", "tokens", "tools", "used",
        "whole",
    )  # fmt: skip

    def __init__(
        self,
        id: str,
        principal: str,
        model: str,
        parent: Link | None,
        given: list[Item],
        made: list[Item],
        read: list[Item],
        *,
        before: Said | None = None,
        instructions: str | None = None,
        tools: str = "",
        backend: str = "",
        continuation: object = None,
        tokens: int = 0,
    ) -> None:
        self.id = id
        self.principal = principal
        self.model = model
        self.parent = parent
        self.given = given
        self.made = made
        self.read = read
        self.instructions = instructions
        self.tools = tools
        self.backend = backend
        self.continuation = continuation
        self.tokens = tokens
        """Of its whole context, as the backend counted them."""
        self.prefill: Prefill | None = None
        self.stored = False
        """It is in the database, or on its way there."""
        self.whole = False
        """With all that was before it."""
        self.holders = 0
        """What keeps it in memory: the index, and each link behind it that something keeps."""
        self.used = 0.0
        added = [item for item in read if isinstance(item, it.AdditionalTools)]
        inherited = parent.additional if parent is not None else ()
        self.additional: tuple[it.AdditionalTools, ...] = (*inherited, *added) if added else inherited
        if before is None:
            before = extend(parent.digest if parent is not None else root(principal, model, instructions), given)
        said = extend(before.digest, made)
        self.digest: bytes = said.digest
        self.size: int = before.size + said.size + OVERHEAD

    def items(self) -> list[Item]:
        """The whole conversation up to here as a model reads it, oldest first, without instructions."""
        items: list[Item] = []
        for link in self._path():
            items += link.read
        return items

    @property
    def restorable(self) -> bool:
        """Whether the database has all of the conversation up to here."""
        link: Link | None = self
        while link is not None and link.stored and not link.whole:
            link = link.parent
        return link is None or link.stored

    @property
    def found_by_content(self) -> bool:
        """Whether what it says tells it from others: reasoning does not count, as clients leave it out."""
        return not self.made or _said(self.made[-1]) != b""

    def all_given(self) -> list[Item]:
        """Everything that this response was given: earlier responses of its chain with their input, and its own."""
        *before, last = self._path()
        return [*(item for link in before for item in (*link.given, *link.made)), *last.given]

    def _path(self) -> list[Link]:
        links: list[Link] = []
        link: Link | None = self
        while link is not None:
            links.append(link)
            link = link.parent
        return links[::-1]


class Chains:
    """The links of a service.

    A link behind another keeps it in memory, found by itself or not, and counts for both: ``most_bytes`` bounds what is
    held, not what is listed.
    """

    def __init__(
        self, lifetime: float = LIFETIME, most_bytes: int = MOST_BYTES, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._lifetime = lifetime
        self._most_bytes = most_bytes
        self._clock = clock
        self._links: OrderedDict[str, Link] = OrderedDict()
        self._by_digest: dict[bytes, Link] = {}
        self._by_item: dict[str, tuple[Link, Item]] = {}
        self.held_bytes = 0

    def __len__(self) -> int:
        return len(self._links)

    def add(self, link: Link) -> None:
        """Keep a link; the least recently used make room."""
        self.drop(link.id)
        self._links[link.id] = link
        if link.found_by_content:
            self._by_digest[link.digest] = link
        for item in link.made:
            if (id := getattr(item, "id", None)) is not None:
                self._by_item[id] = link, item
        self._hold(link)
        self._touch(link)
        self._expire()

    def get(self, id: str, principal: str) -> Link | None:
        """The link, if it is the principal's."""
        link = self._links.get(id)
        if link is None or link.principal != principal:
            return None
        self._expire()
        if id not in self._links:
            return None
        self._touch(link)
        return link

    def item(self, id: str, principal: str) -> Item | None:
        """An item that a response put out, if it is the principal's."""
        link, item = self._by_item.get(id, (None, None))
        return item if link is not None and link.principal == principal else None

    def drop(self, id: str) -> None:
        link = self._links.pop(id, None)
        if link is None:
            return
        if self._by_digest.get(link.digest) is link:
            del self._by_digest[link.digest]
        for item in link.made:
            name = getattr(item, "id", None)
            if name is not None and self._by_item.get(name, (None,))[0] is link:
                del self._by_item[name]
        self._release(link)

    def longest(self, start: bytes, items: Sequence[Item]) -> Match:
        """How far these items, from a :func:`root` on, are the conversation of a link."""
        self._expire()
        digest, size, link, matched = start, 0, None, 0
        for count, item in enumerate(items, 1):
            digest, more = extend(digest, (item,))
            size += more
            found = self._by_digest.get(digest)
            if found is not None:
                link, matched, size = found, count, 0
        if link is not None:
            self._touch(link)
        return Match(link, matched, Said(digest, size))

    def _touch(self, link: Link) -> None:
        """It was used, and those shortly before it may be gone back to."""
        now, near, before = self._clock(), [link], link.parent
        while before is not None and len(near) < NEAR:
            if before.id in self._links:
                near.append(before)
            before = before.parent
        for each in reversed(near):
            each.used = now
            self._links.move_to_end(each.id)

    def _expire(self) -> None:
        oldest = self._clock() - self._lifetime
        while self._links:
            link = next(iter(self._links.values()))
            if link.used >= oldest and self.held_bytes <= self._most_bytes:
                return
            self.drop(link.id)

    def _hold(self, link: Link | None) -> None:
        while link is not None:
            link.holders += 1
            if link.holders > 1:
                return
            self.held_bytes += link.size
            link = link.parent

    def _release(self, link: Link | None) -> None:
        while link is not None:
            link.holders -= 1
            if link.holders:
                return
            self.held_bytes -= link.size
            link = link.parent


def root(principal: str, model: str, instructions: str | None) -> bytes:
    """The digest with which a conversation begins: nobody else's has the same."""
    return blake2b(msgspec.json.encode((principal, model, instructions or "")), digest_size=16).digest()


def extend(digest: bytes, items: Iterable[Item]) -> Said:
    """A conversation with more items, and their size.

    Only what a model reads counts for the digest: clients drop ids, status, phase and annotations when they send items
    back, and reasoning altogether.
    """
    size = 0
    for item in items:
        text = _said(item)
        if text:
            size += len(text)
            digest = blake2b(text, key=digest, digest_size=16).digest()
        else:
            size += len(it.item_text(item))
    return Said(digest, size)


def _said(item: Item) -> bytes:
    match item:
        case it.Message():
            return msgspec.json.encode((item.role, _parts(item.content)))
        case it.Reasoning():
            return b""
        case it.FunctionCall():
            return msgspec.json.encode(("call", item.call_id, item.namespace, item.name, item.arguments))
        case it.CustomToolCall():
            return msgspec.json.encode(("call", item.call_id, item.namespace, item.name, item.input))
        case it.FunctionCallOutput() | it.CustomToolCallOutput():
            return msgspec.json.encode(("output", item.call_id, _parts(item.output)))
        case it.Compaction():
            return msgspec.json.encode(("compaction", item.encrypted_content))
        case it.CompactionTrigger():
            return b""
        case it.AdditionalTools():
            return msgspec.json.encode(("tools", item.tools))
        case it.OtherItem():
            return msgspec.json.encode({key: value for key, value in item.items() if key not in _CHANGING})
        case _:
            return msgspec.json.encode(item)


_CHANGING = ("id", "status")
"""Keys that clients leave out of what they send back, or make anew."""


def _parts(content: str | list[it.ContentPart]) -> object:
    """Text as one string, whatever parts it came in; anything else as it is."""
    if isinstance(content, str) or all(isinstance(part, it.InputText | it.OutputText) for part in content):
        return it.content_text(content)
    return content

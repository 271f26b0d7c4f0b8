"""Chains: responses and what each of them knows, kept beyond the connection that made them.

A link holds only its own items and points at its parent, so a turn copies no history. It is found by its id, or, when a
client sends everything again, by what its items say: reconnects, retries and stateless clients find their chain too.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b

import msgspec

from vivace.protocol import items as it
from vivace.protocol.items import Item

LIFETIME = 3600.0
"""Seconds that a link is kept after its last use."""
MOST_BYTES = 256 << 20
"""Text of all links together; the least recently used go first."""


class Link:
    """One response in its chain.

    ``given`` are the items that its request added, ``made`` those it put out, ``read`` both as a model reads them (see
    :mod:`vivace.service.reading`). ``continuation`` is its backend's, for the tools whose digest is ``tools``; it is
    None while a prefill still runs, and where there is none.
    """

    __slots__ = (
        "continuation", "digest", "given", "id", "instructions", "made", "model", "parent", "principal", "read",
        "size", "tokens", "tools", "used",
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
        instructions: str | None = None,
        tools: str = "",
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
        self.continuation = continuation
        self.tokens = tokens
        """Of its whole context, as the backend counted them."""
        self.used = time.monotonic()
        self.digest: bytes
        self.size: int
        before = parent.digest if parent is not None else root_digest(principal, model, instructions)
        self.digest, self.size = extend(before, (*given, *made))

    def items(self) -> list[Item]:
        """The whole conversation up to here as a model reads it, oldest first, without instructions."""
        return [item for link in self._path() for item in link.read]

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
    """The links of a service."""

    def __init__(
        self, lifetime: float = LIFETIME, most_bytes: int = MOST_BYTES, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._lifetime = lifetime
        self._most_bytes = most_bytes
        self._clock = clock
        self._links: OrderedDict[str, Link] = OrderedDict()
        self._by_digest: dict[bytes, Link] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._links)

    def add(self, link: Link) -> None:
        """Keep a link; the least recently used make room."""
        self.drop(link.id)
        self._links[link.id] = link
        self._by_digest[link.digest] = link
        self._bytes += link.size
        self._touch(link)
        self._expire()

    def get(self, id: str, principal: str) -> Link | None:
        """The link, if it is the principal's."""
        link = self._links.get(id)
        if link is None or link.principal != principal:
            return None
        self._touch(link)
        return link

    def drop(self, id: str) -> None:
        link = self._links.pop(id, None)
        if link is not None:
            self._bytes -= link.size
            if self._by_digest.get(link.digest) is link:
                del self._by_digest[link.digest]

    def longest(
        self, principal: str, model: str, instructions: str | None, items: Sequence[Item]
    ) -> tuple[Link, int] | None:
        """The link whose conversation these items begin with, and how many of them it covers."""
        if not self._by_digest:
            return None
        state = root_digest(principal, model, instructions)
        found: tuple[Link, int] | None = None
        for count, item in enumerate(items, 1):
            state, _ = extend(state, (item,))
            link = self._by_digest.get(state)
            if link is not None and link.principal == principal:
                found = link, count
        if found is not None:
            self._touch(found[0])
        return found

    def _touch(self, link: Link) -> None:
        link.used = self._clock()
        self._links.move_to_end(link.id)

    def _expire(self) -> None:
        oldest = self._clock() - self._lifetime
        while self._links:
            link = next(iter(self._links.values()))
            if link.used >= oldest and self._bytes <= self._most_bytes:
                return
            self.drop(link.id)


def root_digest(principal: str, model: str, instructions: str | None) -> bytes:
    return blake2b(msgspec.json.encode((principal, model, instructions or "")), digest_size=16).digest()


def extend(digest: bytes, items: Iterable[Item]) -> tuple[bytes, int]:
    """The digest of a conversation with more items, and how many bytes those say.

    Only what a model reads counts: clients drop ids, status, phase and annotations when they send items back, and
    reasoning altogether.
    """
    size = 0
    for item in items:
        said = _said(item)
        if said:
            size += len(said)
            digest = blake2b(said, key=digest, digest_size=16).digest()
    return digest, size + 64


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
        case _:
            return msgspec.json.encode(item)


def _parts(content: str | list[it.ContentPart]) -> object:
    """Text as one string, whatever parts it came in; anything else as it is."""
    if isinstance(content, str) or all(isinstance(part, it.InputText | it.OutputText) for part in content):
        return it.content_text(content)
    return content

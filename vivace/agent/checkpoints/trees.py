"""Folders as objects: their canonical bytes, and what differs between two of them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator

import msgspec

from vivace.agent.checkpoints.records import Change, ChangeKind, Node, Tree

Load = Callable[[bytes], Tree]
"""Digest of a tree -> the tree; raises :class:`VivaceError` when the store has lost it."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[tuple[bytes, Node]]).decode


def digest_of(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def encode_tree(tree: Tree) -> bytes:
    """The same bytes for the same tree, whatever order its names came in. Names are the file system's bytes."""
    return _encode(sorted((os.fsencode(name), node) for name, node in tree.items()))


def decode_tree(data: bytes) -> dict[str, Node]:
    return {os.fsdecode(name): node for name, node in _decode(data)}


EMPTY = encode_tree({})
"""The tree of an empty folder."""


def compare(load: Load, before: bytes, after: bytes, base: str = "") -> Iterator[Change]:
    """What differs between two trees, by path; equal folders are not even read."""
    if before == after:
        return
    old, new = load(before), load(after)
    for name in sorted(old.keys() | new.keys(), key=os.fsencode):
        was, now = old.get(name), new.get(name)
        if was == now:
            continue
        path = base + name
        if was is None or now is None or was.kind != now.kind:
            yield from _changed_kind(load, path, was, now)
            continue
        if was.kind != "folder":
            yield Change(path, "mode" if was.digest == now.digest else "changed", was, now)
            continue
        if was.mode != now.mode:
            yield Change(path, "mode", was, now)
        yield from compare(load, was.digest, now.digest, path + "/")


def walk(load: Load, tree: bytes, base: str = "") -> Iterator[tuple[str, Node]]:
    """Every path below, folders before what they hold."""
    for name, node in load(tree).items():
        yield base + name, node
        if node.kind == "folder":
            yield from walk(load, node.digest, base + name + "/")


def _changed_kind(load: Load, path: str, was: Node | None, now: Node | None) -> Iterator[Change]:
    change: ChangeKind = "added" if was is None else "removed" if now is None else "kind"
    yield Change(path, change, was, now)
    if was is not None and was.kind == "folder":
        yield from (Change(name, "removed", node, None) for name, node in walk(load, was.digest, path + "/"))
    if now is not None and now.kind == "folder":
        yield from (Change(name, "added", None, node) for name, node in walk(load, now.digest, path + "/"))

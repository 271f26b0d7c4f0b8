"""The checkpoints of one workspace: take, compare, go back, go forth, drop.

The store lies outside the workspace's repository and knows nothing of git but what it ignores. One process at a time
works in it. Going somewhere is written down before the first file is touched: a process that is killed meanwhile is
caught up with when the store is opened next.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from vivace.agent.checkpoints.cache import SeenFolders
from vivace.agent.checkpoints.database import Database
from vivace.agent.checkpoints.place import folder_for, real_root
from vivace.agent.checkpoints.pruning import drop
from vivace.agent.checkpoints.records import (
    Change,
    Checkpoint,
    LeftOut,
    Position,
    Pruned,
    Refused,
    Restored,
    Stats,
    Tree,
)
from vivace.agent.checkpoints.restoring import Restoring, unlock
from vivace.agent.checkpoints.scanning import UNREADABLE, Forgetting, Scan, Trie
from vivace.agent.checkpoints.trees import Load, compare, decode_tree, walk
from vivace.agent.checkpoints.wanting import Wanted
from vivace.agent.ignoring import outer_rules
from vivace.errors import UsageError, VivaceError

ROUNDS = 3
"""How often going somewhere starts again when somebody changes files meanwhile."""
DAY = 86_400.0

T = TypeVar("T")

_encode = msgspec.msgpack.encode


class _Ahead(Struct, frozen=True):
    """Where ``redo`` goes: a checkpoint, and where the conversation stood when it was left."""

    id: int
    position: Position | None


class _Begun(Struct, frozen=True):
    """A way from one checkpoint to another that may not be finished."""

    target: int
    before: int
    ahead: list[_Ahead]
    position: Position | None


class _Way(Struct, frozen=True):
    """From the files as they are, held by ``before``; ``saved`` when that had to be taken, as ``unsaved`` tells."""

    target: Checkpoint
    before: Checkpoint
    saved: Checkpoint | None = None
    unsaved: tuple[Change, ...] = ()


class CheckpointStore:
    """The checkpoints of the workspace at ``workspace_root``, kept under ``state_dir``.

    ``recovered`` tells of a restore that was cut off and was finished by opening. Methods may be called from any
    thread, one at a time. All raise :class:`VivaceError` for a store that is busy, damaged or on a full disk.
    """

    def __init__(self, workspace_root: Path, state_dir: Path) -> None:
        self.root = real_root(workspace_root)
        self.state_dir = state_dir.resolve()
        if self.state_dir == self.root:
            raise UsageError(f"{self.root} is where checkpoints are kept; it cannot be a workspace", code="bad_path")
        self._database = Database(folder_for(self.root, self.state_dir / "checkpoints"))
        self._cache = SeenFolders(self._database)
        self._rules, self._prefix = outer_rules(self.root)
        self._wanted = Wanted(self._database, self.root)
        self.recovered: Restored | None = None
        try:
            with self._held():
                if (begun := self._meta("begun", _Begun)) is not None:
                    self.recovered = self._catch_up(begun)
        except BaseException:
            self._database.close()
            raise

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> CheckpointStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def head(self) -> Checkpoint | None:
        """The checkpoint that the files came from last: taken or gone to."""
        with self._held():
            return self._head()

    @property
    def unsettled(self) -> Position | None:
        """Where the files went to, until :meth:`settle` says that the conversation followed."""
        with self._held():
            return self._meta("unsettled", Position)

    def settle(self) -> None:
        """The conversation is where the files are."""
        with self._held(), self._database.transaction():
            self._database.set_meta("unsettled", None)

    def include(self, paths: Iterable[str | Path]) -> None:
        """Keep these files from now on though the repository ignores them; to be told *before* they are changed.

        Relative paths start at the workspace; those outside it are not taken. A folder stands for all below it.
        """
        with self._held(), self._database.transaction():
            self._wanted.include(paths)

    def take(
        self, label: str, kind: str = "manual", position: Position | None = None, touching: Iterable[str | Path] = ()
    ) -> Checkpoint:
        """Record the files as they are now; ``touching`` as for :meth:`include`. Nothing can be redone after."""
        with self._held(), self._database.transaction():
            self._wanted.include(touching)
            taken = self._take(label, kind, position)
            self._database.set_meta("ahead", None)
            return taken

    def checkpoints(self, limit: int | None = None) -> list[Checkpoint]:
        """The newest first."""
        with self._held():
            rows = self._database.execute(
                "SELECT record, id, parent FROM checkpoints ORDER BY id DESC LIMIT ?", (-1 if limit is None else limit,)
            )
            return [_checkpoint(row) for row in rows]

    def get(self, number: int) -> Checkpoint:
        """Raises :class:`UsageError` (``checkpoint_not_found``)."""
        with self._held():
            return self._get(number)

    def diff(self, before: int, after: int | None = None) -> list[Change]:
        """What differs from one checkpoint to another, or to the files as they are now."""
        with self._held():
            old = self._get(before).tree
            if after is not None:
                return list(compare(self._database.tree, old, self._get(after).tree))
            forgetting = Forgetting()
            now = self._scan(forgetting, self._wanted.trie(old)).root
            return list(compare(self._reader(forgetting), old, now.digest))

    def read(self, number: int, path: str) -> bytes:
        """A file's bytes, or a link's target, in a checkpoint. Raises :class:`UsageError` (``file_not_found``)."""
        with self._held():
            checkpoint = self._get(number)
            digest, node = checkpoint.tree, None
            for part in path.split("/"):
                node = self._database.tree(digest).get(part) if node is None or node.kind == "folder" else None
                if node is None:
                    break
                digest = node.digest
            if node is None or node.kind == "folder":
                raise UsageError(f"{path}: no such file in checkpoint {number}", code="file_not_found", param="path")
            return self._database.read(node.digest)

    def restore(self, number: int, position: Position | None = None) -> Restored:
        """Make the files those of a checkpoint. ``position`` is where the conversation stands, for the way back.

        What the files have that no checkpoint has is put into one first; ``redo`` returns to it.
        """
        with self._held():
            target = self._get(number)
            way = self._way(target, position)
            return self._go(way, [_Ahead(way.before.id, position)], target.position)

    def undo(self, kind: str | None = None, position: Position | None = None, to: int | None = None) -> Restored:
        """Go to the last checkpoint before: of that kind, or the last whose files are not those of now; or to ``to``.

        With ``kind`` and ``position``, a checkpoint of that kind that the files are at is gone to when the conversation
        has gone on from it. Raises :class:`UsageError` (``nothing_to_undo``).
        """
        with self._held():
            target = self._earlier(kind, position) if to is None else self._get(to)
            if target is None:
                raise UsageError("There is nothing to undo: no earlier checkpoint.", code="nothing_to_undo")
            way = self._way(target, position)
            ahead = [*(self._meta("ahead", list[_Ahead]) or []), _Ahead(way.before.id, position)]
            return self._go(way, ahead, target.position)

    def redo(self, position: Position | None = None) -> Restored:
        """Return to what the last ``undo`` or ``restore`` left. Raises :class:`UsageError` (``nothing_to_redo``)."""
        with self._held():
            ahead = self._meta("ahead", list[_Ahead])
            if not ahead:
                raise UsageError("There is nothing to redo.", code="nothing_to_redo")
            target = self._get(ahead[-1].id)
            way = self._way(target, position)
            return self._go(way, ahead[:-1], ahead[-1].position)

    def prune(self, keep: int = 100, days: float = 30.0) -> Pruned:
        """Drop checkpoints that are not among the newest ``keep``, or are older; then what no other one holds.

        The one that the files are at stays, and so do those that ``redo`` can go to.
        """
        with self._held():
            with self._database.transaction():
                pruned = self._prune(keep, time.time() - days * DAY)
                if pruned.objects:
                    self._cache.forget()
            with self._database.told():
                self._database.tidy()
            return pruned

    def _prune(self, keep: int, oldest: float) -> Pruned:
        checkpoints = self.checkpoints()
        head = self._head()
        needed = {entry.id for entry in self._meta("ahead", list[_Ahead]) or []} | ({head.id} if head else set())
        stay = {c.id for n, c in enumerate(checkpoints) if c.id in needed or (n < keep and c.created >= oldest)}
        return drop(self._database, checkpoints, stay)

    def _take(self, label: str, kind: str, position: Position | None, target: bytes | None = None) -> Checkpoint:
        began = time.perf_counter()
        new, new_size = self._database.new, self._database.new_size
        scan = self._scan(self._database, self._wanted.trie(target))
        self._cache.keep(scan)
        stats = Stats(
            scan.root.files,
            scan.root.size,
            scan.hashed,
            self._database.new - new,
            self._database.new_size - new_size,
            time.perf_counter() - began,
        )
        left_out = scan.left_out
        if self._wanted.git_said:
            left_out = (*left_out, LeftOut(self._wanted.git_said, 0, ()))
        head = self._head()
        taken = Checkpoint(
            0, head.id if head else None, time.time(), kind, label, scan.root.digest, position, stats, left_out
        )
        number = self._database.insert(
            "INSERT INTO checkpoints(parent, tree, kind, record) VALUES(?,?,?,?)",
            (taken.parent, taken.tree, kind, _encode(taken)),
        )
        self._database.set_meta("head", b"%d" % number)
        return msgspec.structs.replace(taken, id=number)

    def _way(self, target: Checkpoint, position: Position | None) -> _Way:
        """The way to ``target`` from a checkpoint that holds the files as they are now: the last one, or a new one.

        Paths that ``target`` holds are looked at though they be ignored by now: they may be overwritten.
        """
        with self._database.transaction():
            head = self._head()
            scan = self._unlocked(target.tree)
            self._cache.keep(scan)
            if head is not None and head.tree == scan.root.digest:
                return _Way(target, head)
            saved = self._take(f"before going to {target.id}", "safety", position, target.tree)
            unsaved = compare(self._database.tree, head.tree, saved.tree) if head else ()
            return _Way(target, saved, saved, tuple(unsaved))

    def _unlocked(self, target: bytes) -> Scan:
        """A scan for which nothing that ``target`` holds is unreadable, where its owner can help it."""
        held = dict(walk(self._database.tree, target))
        tried: set[str] = set()
        while True:
            scan = self._scan(self._database, self._wanted.trie(target))
            closed = {path for out in scan.left_out if out.reason == UNREADABLE for path in out.paths} - tried
            opened = [path for path in closed if path in held and unlock(self.root, path, held[path])]
            tried |= closed
            if not opened:
                return scan

    def _go(self, way: _Way, ahead: list[_Ahead], position: Position | None) -> Restored:
        """Write down where it goes, go there, look whether it arrived."""
        target, first = way.target, way.before
        for _, node in walk(self._database.tree, target.tree):
            if node.kind != "folder" and not self._database.has(node.digest):
                self._database.read(node.digest)  # raises, before anything is touched
        with self._database.transaction():
            self._database.set_meta("begun", _encode(_Begun(target.id, first.id, ahead, position)))
        kept: dict[str, Refused] = {}
        for again in range(ROUNDS):
            work = Restoring(self._database, self.root)
            work.run(self._cache.root(), target.tree)
            kept |= {entry.path: entry for entry in work.kept}
            if not work.moved or again == ROUNDS - 1:
                break
            more = self._way(target, position)
            way = _Way(target, more.before, more.saved or way.saved, (*way.unsaved, *more.unsaved))
        refused = self._refused(work, target, first, kept)
        changes = tuple(compare(self._database.tree, first.tree, target.tree))
        return self._arrived(
            Restored(target, changes, way.saved, way.unsaved, tuple(kept.values()), refused, position), ahead
        )

    def _refused(
        self, work: Restoring, target: Checkpoint, before: Checkpoint, kept: dict[str, Refused]
    ) -> tuple[Refused, ...]:
        """What was refused, and what is not as the checkpoint has it by a new look at the files themselves."""
        refused = {entry.path: entry for entry in work.refused}
        refused |= {path: Refused(path, "was changed meanwhile") for path in work.moved}
        had = {path for path, _ in walk(self._database.tree, before.tree)}
        with self._database.transaction():
            scan = self._scan(self._database, self._wanted.trie(target.tree))
            self._cache.keep(scan)
        for change in compare(self._database.tree, target.tree, scan.root.digest):
            if change.change == "added" and (change.path in kept or change.path not in had):
                continue  # a folder that had to stay; what was left out before, and is seen under the older rules
            refused.setdefault(change.path, Refused(change.path, "is not as the checkpoint has it"))
        return tuple(refused.values())

    def _arrived(self, restored: Restored, ahead: list[_Ahead]) -> Restored:
        with self._database.transaction():
            self._database.set_meta("begun", None)
            self._database.set_meta("head", b"%d" % restored.checkpoint.id)
            self._database.set_meta("ahead", _encode(ahead) if ahead else None)
            self._database.set_meta("unsettled", _encode(restored.position) if restored.position else None)
        return restored

    def _catch_up(self, begun: _Begun) -> Restored:
        """Finish what a killed process had begun; what somebody has changed since is left as it is."""
        target, before = self._get(begun.target), self._get(begun.before)
        with self._database.transaction():
            scan = self._unlocked(target.tree)
            self._cache.keep(scan)
        work = Restoring(self._database, self.root, dict(walk(self._database.tree, before.tree)))
        work.run(scan.root, target.tree)
        kept = {entry.path: entry for entry in work.kept}
        refused = self._refused(work, target, before, kept)
        changes = tuple(compare(self._database.tree, before.tree, target.tree))
        restored = Restored(
            target, changes, kept=tuple(kept.values()), refused=refused, position=begun.position, recovered=True
        )
        return self._arrived(restored, begun.ahead)

    def _earlier(self, kind: str | None, position: Position | None) -> Checkpoint | None:
        forgetting = Forgetting()
        here = self._scan(forgetting, self._wanted.trie()).root.digest
        head = checkpoint = self._head()
        while checkpoint is not None:
            if kind is None:
                if checkpoint.tree != here:
                    return checkpoint
            elif checkpoint.kind == kind:
                # A fork has the entries of the conversation that it came from, under another name.
                stood = checkpoint.position
                went_on = position is not None and stood is not None and stood.entry != position.entry
                if checkpoint is not head or checkpoint.tree != here or went_on:
                    return checkpoint
            checkpoint = self._get(checkpoint.parent) if checkpoint.parent is not None else None
        return None

    def _scan(self, sink: Database | Forgetting, wanted: Trie) -> Scan:
        try:
            store = self.state_dir.stat()
            return Scan(self.root, self._cache.root(), self._rules, self._prefix, store).run(sink, wanted)
        except OSError as error:
            raise VivaceError(f"cannot read the workspace {self.root}: {error}", code="unreadable") from None

    def _head(self) -> Checkpoint | None:
        number = self._database.meta("head")
        return self._get(int(number)) if number else None

    def _get(self, number: int) -> Checkpoint:
        rows = self._database.execute("SELECT record, id, parent FROM checkpoints WHERE id=?", (number,))
        if not rows:
            raise UsageError(
                f"There is no checkpoint {number}.",
                hint="`vivace checkpoints` lists them.",
                code="checkpoint_not_found",
            )
        return _checkpoint(rows[0])

    def _meta(self, key: str, kind: type[T]) -> T | None:
        data = self._database.meta(key)
        return msgspec.msgpack.decode(data, type=kind) if data else None

    def _reader(self, forgetting: Forgetting) -> Load:
        def load(digest: bytes) -> Tree:
            data = forgetting.trees.get(digest)
            return decode_tree(data) if data is not None else self._database.tree(digest)

        return load

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        with self._database.held(), self._database.told():
            try:
                yield
            except BaseException:
                self._cache.drop()
                raise


def _checkpoint(row: tuple[bytes, int, int | None]) -> Checkpoint:
    record, number, parent = row
    return msgspec.structs.replace(_decode(record), id=number, parent=parent)


_decode = msgspec.msgpack.Decoder(Checkpoint).decode

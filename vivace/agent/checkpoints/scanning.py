"""What stands in a workspace now. Files whose stat is what it was are not read again.

A file is taken as unchanged when its mode, size, modification and status change times and inode are those of the time
when it was read. As in git's index, that proves nothing for a file that changed in the same tick of the file system's
clock in which it was read: such an entry is not ``sure``, and is read again at the next scan.

Symbolic links are never followed: every folder is opened relative to the one above it, with ``O_NOFOLLOW``.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Protocol

from msgspec import Struct, field

from vivace.agent.checkpoints.records import LeftOut, Node
from vivace.agent.checkpoints.trees import EMPTY, digest_of, encode_tree
from vivace.agent.ignoring import Rules

LARGE = 16 << 20
"""Bytes from which a file is kept as a file of its own, not compressed."""
HUGE = 512 << 20
"""Bytes from which the content of a file is not kept; going back leaves such a file alone."""
DEEPEST = 128
"""Folders inside each other."""
TICK_NS = 50_000_000
"""Longest step of the clock that stamps files (10 ms where the kernel ticks 100 times a second), with some room."""
COARSE_NS = 2_100_000_000
"""The same where stamps are whole seconds, or the two of FAT."""
TRIES = 3
"""How often a file is read again that changes while it is read."""

TEMPORARY = ".vivace-restoring-"
"""How names of half-written files begin."""
HISTORIES = frozenset({".git", ".hg", ".svn", ".jj", ".bzr"})
CACHES = frozenset(
    {"node_modules", "bower_components", ".venv", ".tox", ".nox", "__pycache__", ".mypy_cache", ".pytest_cache"}
    | {".ruff_cache", ".hypothesis", ".eggs", ".gradle", ".next", ".nuxt", ".turbo", ".parcel-cache", ".terraform"}
    | {".direnv", ".cache"}
)
"""Folders that tools make again; so are folders that hold a ``CACHEDIR.TAG`` or a ``pyvenv.cfg``."""
THROWAWAY = frozenset({"__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache"})
"""Caches that go with their folder when going back removes it."""
_TAG = b"Signature: 8a477f597d28d172789f06886806bc55"

IGNORED = "ignored by the repository"
CACHE = "a cache that tools make again"
HISTORY = "the repository's own"
SPECIAL = "neither file, link nor folder"
TOO_LARGE = f"over {HUGE >> 20} MiB"
TOO_DEEP = f"more than {DEEPEST} folders deep"
UNREADABLE = "not readable"
STORE = "the store of the checkpoints"
_SAMPLE = 20

Stamp = tuple[int, int, int, int, int]
"""Mode, size, mtime and ctime in nanoseconds, inode."""


class Trie(dict[str, "Trie"]):
    """Paths that are taken though ignored, by their parts. ``whole``: everything below, too."""

    whole = False

    def add(self, path: str, *, whole: bool = True) -> None:
        here = self
        for part in path.split("/"):
            here = here.setdefault(part, Trie())
        here.whole = here.whole or whole


class Seen(Struct, gc=False):
    """One entry as it was last read."""

    node: Node
    stamp: Stamp
    sure: bool


class Folder(Struct):
    """A folder as it was last read; ``files`` and ``size`` (bytes) count everything below."""

    seen: dict[str, Seen] = field(default_factory=dict)
    folders: dict[str, Folder] = field(default_factory=dict)
    digest: bytes = b""
    files: int = 0
    size: int = 0


class Sink(Protocol):
    """Where contents go."""

    def put(self, digest: bytes, data: bytes) -> None: ...

    def put_tree(self, digest: bytes, data: bytes) -> None: ...

    def put_large(self, source: int) -> tuple[bytes, int]: ...


class Forgetting:
    """A sink for who only wants to know what differs; it remembers the trees."""

    def __init__(self) -> None:
        self.trees: dict[bytes, bytes] = {}

    def put(self, digest: bytes, data: bytes) -> None:
        pass

    def put_tree(self, digest: bytes, data: bytes) -> None:
        self.trees[digest] = data

    def put_large(self, source: int) -> tuple[bytes, int]:
        digest, size = hashlib.sha256(), 0
        while piece := os.read(source, 1 << 20):
            digest.update(piece)
            size += len(piece)
        return digest.digest(), size


class Scan:
    """One walk over a workspace. ``root`` is what it found, ``fresh`` the folders that differ from ``known``."""

    def __init__(self, workspace: Path, known: Folder, rules: Rules, prefix: str, store: os.stat_result | None) -> None:
        self._rules, self._prefix = rules, prefix
        self._store = (store.st_dev, store.st_ino) if store else None
        self._counts: Counter[str] = Counter()
        self._samples: defaultdict[str, list[str]] = defaultdict(list)
        self.workspace = workspace
        self.known = known
        self.root = Folder()
        self.fresh: dict[str, Folder] = {}
        self.gone: list[str] = []
        self.hashed = 0

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        return tuple(LeftOut(why, self._counts[why], tuple(self._samples[why])) for why in sorted(self._counts))

    def run(self, sink: Sink, wanted: Trie) -> Scan:
        """Walk. Raises :class:`OSError` when the workspace itself cannot be read."""
        self._sink = sink
        handle = os.open(self.workspace, os.O_RDONLY | os.O_DIRECTORY)
        try:
            found = self._folder(handle, "", self.known, self._rules, wanted, False, 0)
        finally:
            os.close(handle)
        self.root = found if found is not None else Folder(digest=digest_of(EMPTY))
        return self

    def skip(self, path: str, reason: str) -> None:
        self._counts[reason] += 1
        if len(self._samples[reason]) < _SAMPLE:
            self._samples[reason].append(path)

    def _folder(
        self, handle: int, base: str, known: Folder, rules: Rules, wanted: Trie, only: bool, depth: int
    ) -> Folder | None:
        """What is in the open folder, ``known`` itself when nothing differs; None for a tagged cache.

        ``base`` is its path with a slash behind it; ``only``: nothing but what is wanted.
        """
        with os.scandir(handle) as found:
            entries = {entry.name: entry for entry in found}
        if base and not only and ("CACHEDIR.TAG" in entries or "pyvenv.cfg" in entries) and _is_cache(handle, entries):
            if not wanted:
                return None
            self.skip(base[:-1], CACHE)
            only = True
        if ".gitignore" in entries and not only:
            rules = self._own_rules(handle, base, rules)
        told = rules.told.setdefault(base, {})
        if len(told) > 2 * len(entries) + 100:  # names come and go
            told.clear()
        seen: dict[str, Seen] = {}
        folders: dict[str, Folder] = {}
        old, old_folders = known.seen, known.folders
        same = True
        for name, entry in entries.items():
            want = wanted.get(name) if wanted else None
            if only and want is None:
                continue
            is_folder = entry.is_dir(follow_symlinks=False)
            excluded = told.get((name, is_folder))
            if excluded is None:
                path = f"{self._prefix}{base}{name}"
                excluded = told[name, is_folder] = rules.ignored(path, is_folder=is_folder)
            reason = self._rule(name, is_folder)
            if reason and (want is None or name in HISTORIES or reason is STORE):
                self.skip(base + name, reason)
                continue
            if excluded and want is None:
                self.skip(base + name, IGNORED)
                continue
            if is_folder:
                narrow = bool(want is not None and not want.whole and (excluded or reason or only))
                below = self._below(handle, base, name, old_folders.get(name), rules, want, narrow, depth)
                if below is None:
                    continue
                folder, mode = below
                folders[name] = folder
                before = old.get(name)
                if before is None or before.node.digest != folder.digest or before.node.mode != mode:
                    before = Seen(Node("folder", mode, 0, folder.digest), (mode, 0, 0, 0, 0), True)
                    same = False
                elif folder is not old_folders.get(name):
                    same = False
                seen[name] = before
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            except PermissionError:
                self.skip(base + name, UNREADABLE)
                continue
            stamp = (status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
            before = old.get(name)
            if before is None or not before.sure or before.stamp != stamp:
                now = self._entry(handle, base + name, name, status, stamp)
                if now is None:
                    continue
                if before is None or now != before:
                    same = False
                    before = now
            seen[name] = before
        if same and len(seen) == len(old) and known.digest:
            return known
        return self._made(base, known, seen, folders)

    def _made(self, base: str, known: Folder, seen: dict[str, Seen], folders: dict[str, Folder]) -> Folder:
        data = encode_tree({name: entry.node for name, entry in seen.items()})
        digest = digest_of(data)
        if digest != known.digest:
            self._sink.put_tree(digest, data)
        files = sum(entry.node.kind == "file" for entry in seen.values()) + sum(f.files for f in folders.values())
        size = sum(entry.node.size for entry in seen.values()) + sum(f.size for f in folders.values())
        made = Folder(seen, folders, digest, files, size)
        self.fresh[base] = made
        self.gone += [f"{base}{name}/" for name in known.folders if name not in folders]
        return made

    def _below(
        self,
        parent: int,
        base: str,
        name: str,
        known: Folder | None,
        rules: Rules,
        want: Trie | None,
        only: bool,
        depth: int,
    ) -> tuple[Folder, int] | None:
        """A folder inside the open one, and its permission bits; None when it is left out."""
        path = base + name
        if depth == DEEPEST:
            self.skip(path, TOO_DEEP)
            return None
        try:
            handle = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
        except PermissionError:
            self.skip(path, UNREADABLE)
            return None
        except OSError:  # gone or replaced meanwhile: the next scan sees what it is
            return None
        try:
            status = os.fstat(handle)
            if (status.st_dev, status.st_ino) == self._store:
                self.skip(path, STORE)
                return None
            wanted = want if want is not None else Trie()
            folder = self._folder(handle, path + "/", known or Folder(), rules, wanted, only, depth + 1)
            if folder is None:
                self.skip(path, CACHE)
                return None
            return folder, stat.S_IMODE(status.st_mode)
        finally:
            os.close(handle)

    def _entry(self, parent: int, path: str, name: str, status: os.stat_result, stamp: Stamp) -> Seen | None:
        """A file or link, read; None when it is left out or gone."""
        try:
            if stat.S_ISLNK(status.st_mode):
                began = time.time_ns()
                target = os.fsencode(os.readlink(name, dir_fd=parent))
                digest = digest_of(target)
                self._sink.put(digest, target)
                return Seen(Node("link", 0, 0, digest), stamp, _is_past(status, began))
            if not stat.S_ISREG(status.st_mode):
                self.skip(path, SPECIAL)
                return None
            if status.st_size > HUGE:
                self.skip(path, TOO_LARGE)
                return None
            return self._file(parent, name)
        except PermissionError:
            self.skip(path, UNREADABLE)
        except OSError:  # gone or replaced meanwhile
            pass
        return None

    def _file(self, parent: int, name: str) -> Seen | None:
        self.hashed += 1
        for again in range(TRIES):
            handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=parent)
            try:
                began, before = time.time_ns(), os.fstat(handle)
                if not stat.S_ISREG(before.st_mode):
                    return None
                if before.st_size > LARGE:
                    digest, size = self._sink.put_large(handle)
                else:
                    data = _read(handle, before.st_size)
                    digest, size = digest_of(data), len(data)
                    self._sink.put(digest, data)
                after = os.fstat(handle)
            finally:
                os.close(handle)
            if stamp_of(before) == stamp_of(after) or again == TRIES - 1:
                break
        node = Node("file", stat.S_IMODE(after.st_mode), size, digest)
        return Seen(node, stamp_of(after), stamp_of(before) == stamp_of(after) and _is_past(after, began))

    def _rule(self, name: str, is_folder: bool) -> str:
        """Why it is left out whatever the repository says; empty when it is not."""
        if name in HISTORIES:
            return HISTORY
        if is_folder and name in CACHES:
            return CACHE
        return STORE if name.startswith(TEMPORARY) else ""

    def _own_rules(self, handle: int, base: str, above: Rules) -> Rules:
        """The rules with the ``.gitignore`` of the open folder; the same object for the same text."""
        try:
            file = os.open(".gitignore", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=handle)
        except OSError:
            return above
        try:
            status = os.fstat(file)
            data = _read(file, status.st_size) if stat.S_ISREG(status.st_mode) and status.st_size <= LARGE else b""
        except OSError:
            return above
        finally:
            os.close(file)
        text = data.decode("utf-8", "surrogateescape")
        return above.inner(self._prefix + base, text)


def _is_cache(handle: int, entries: dict[str, os.DirEntry[str]]) -> bool:
    """Tagged by the CACHEDIR.TAG convention, or a virtual environment."""
    for name, begin in (("CACHEDIR.TAG", _TAG), ("pyvenv.cfg", b"home")):
        if name not in entries:
            continue
        try:
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=handle)
        except OSError:
            continue
        try:
            if stat.S_ISREG(os.fstat(file).st_mode) and os.read(file, 64).startswith(begin):
                return True
        except OSError:
            continue
        finally:
            os.close(file)
    return False


def _read(handle: int, size: int) -> bytes:
    """All of the file; one call where it has the size that its stat said."""
    pieces = []
    while piece := os.read(handle, size + 1):
        pieces.append(piece)
        size = max(0, size - len(piece)) + 4096
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _is_past(status: os.stat_result, began: int) -> bool:
    """Whether a change after ``began`` (nanoseconds since 1970) is certain to be stamped otherwise."""
    coarse = status.st_ctime_ns % 1_000_000_000 == 0 and status.st_mtime_ns % 1_000_000_000 == 0
    return max(status.st_mtime_ns, status.st_ctime_ns) < began - (COARSE_NS if coarse else TICK_NS)


def stamp_of(status: os.stat_result) -> Stamp:
    return (status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)

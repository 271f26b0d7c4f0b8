"""What the last scan saw, kept between processes: one row per folder, written only where something changed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import msgspec

from vivace.agent.checkpoints.database import Database
from vivace.agent.checkpoints.records import Node
from vivace.agent.checkpoints.scanning import Folder, Scan, Seen, Stamp

_Row = tuple[bytes, int, int, list[tuple[bytes, Node, Stamp, bool]]]

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Row).decode


class SeenFolders:
    """The folders of the last scan. They name objects, so they are forgotten when objects have been dropped."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._generation: bytes | None = None
        self._root: Folder | None = None

    def root(self) -> Folder:
        generation = self._database.meta("generation") or b"0"
        if self._root is None or generation != self._generation:
            self._root = self._load()
            self._generation = generation
        return self._root

    def keep(self, scan: Scan) -> None:
        """Remember what a scan saw; inside the transaction that keeps the objects."""
        for path in scan.gone:
            raw = os.fsencode(path)
            # A slash ends the name, and the byte after it is 0: everything below the folder lies between.
            self._database.execute("DELETE FROM folders WHERE path>=? AND path<?", (raw, raw[:-1] + b"0"))
        for path, folder in scan.fresh.items():
            self._write(path, folder)
        self._root = scan.root

    def forget(self) -> None:
        """For this process and the others."""
        generation = int(self._database.meta("generation") or b"0") + 1
        self._database.set_meta("generation", b"%d" % generation)
        self._database.execute("DELETE FROM folders")
        self._root = None

    def drop(self) -> None:
        """Read it again at the next use: a transaction that had kept a scan was rolled back."""
        self._root = None

    def _write(self, path: str, folder: Folder) -> None:
        entries = [(os.fsencode(name), seen.node, seen.stamp, seen.sure) for name, seen in folder.seen.items()]
        data = _encode((folder.digest, folder.files, folder.size, entries))
        self._database.execute("INSERT OR REPLACE INTO folders VALUES(?,?)", (os.fsencode(path), data))

    def _load(self) -> Folder:
        rows: Sequence[tuple[bytes, bytes]] = self._database.execute("SELECT path, data FROM folders ORDER BY path")
        found: dict[bytes, Folder] = {path: _read(data) for path, data in rows}
        for path, folder in found.items():
            if path:
                above, _, name = path[:-1].rpartition(b"/")
                self._hang(found, above + b"/" if above else b"", os.fsdecode(name), folder)
        return found.get(b"") or Folder()

    @staticmethod
    def _hang(found: Mapping[bytes, Folder], above: bytes, name: str, folder: Folder) -> None:
        if above in found:
            found[above].folders[name] = folder


def _read(data: bytes) -> Folder:
    digest, files, size, entries = _decode(data)
    seen = {os.fsdecode(name): Seen(node, stamp, sure) for name, node, stamp, sure in entries}
    return Folder(seen, {}, digest, files, size)

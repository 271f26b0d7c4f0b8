"""The journal of a run: every finished record on a line of its own, so that a killed run goes on where it was."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import Struct

from vivace.bench.tasksets.record import Options, Record
from vivace.errors import UsageError


class Head(Struct, frozen=True):
    """What a run must share with its journal to go on with it. ``tasks`` maps task files to their SHA-256."""

    vivace: str
    options: Options
    tasks: Mapping[str, str]


def journal_of(out: Path) -> Path:
    """Where the journal of a result file lies: beside it."""
    return out.with_name(out.name + ".journal")


class Journal:
    """Appends records; each is on the disk before the next task begins.

    A line that was cut by a kill is dropped. Raises :class:`UsageError` (``journal``) when the journal is that of
    another run.
    """

    def __init__(self, path: Path, head: Head) -> None:
        self.path = path
        self.done: list[Record] = []
        path.parent.mkdir(parents=True, exist_ok=True)
        data = path.read_bytes() if path.exists() else b""
        whole = data[: data.rfind(b"\n") + 1]
        first, _, rest = whole.partition(b"\n")
        if first:
            self._agree(first, head)
            self.done = [msgspec.json.decode(line, type=Record) for line in rest.splitlines()]
        self._file: BinaryIO = path.open("r+b" if data else "wb")
        self._file.truncate(len(whole))
        self._file.seek(len(whole))
        if not first:
            self._write(msgspec.json.encode(head))

    def _agree(self, line: bytes, head: Head) -> None:
        try:
            found = msgspec.json.decode(line, type=Head)
        except msgspec.DecodeError as error:
            raise UsageError(f"{self.path} is no journal ({error}).", code="journal") from None
        names = (*Head.__struct_fields__[:1], *Options.__struct_fields__, "tasks")
        theirs, mine = _flat(found), _flat(head)
        if different := [name for name in names if theirs[name] != mine[name]]:
            raise UsageError(
                f"{self.path} is the journal of another run: different in {', '.join(different)}.",
                hint="Give --json another name, or delete the journal to begin anew.",
                code="journal",
                param="json",
            )

    def add(self, record: Record) -> None:
        self._write(msgspec.json.encode(record))
        self.done.append(record)

    def close(self, *, finished: bool) -> None:
        """``finished``: the result is written, and the journal is needed no more."""
        self._file.close()
        if finished:
            self.path.unlink(missing_ok=True)

    def _write(self, line: bytes) -> None:
        self._file.write(line + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())


def _flat(head: Head) -> dict[str, object]:
    return {"vivace": head.vivace, "tasks": dict(head.tasks), **msgspec.structs.asdict(head.options)}

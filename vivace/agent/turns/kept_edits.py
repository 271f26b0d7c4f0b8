"""Accepted and refused edits, kept on this machine for a later fine-tuning.

``<state_dir>/edits/<year>-<month>.jsonl`` holds one JSON object a line:

- ``version`` 1, ``time`` (seconds since 1970), ``workspace`` (a digest of its path), ``conversation``
- ``model``, ``path``, ``language``
- ``instruction``: what the user asked for; of the ``rewrite`` tool what the model asked for
- ``before`` and ``after``: the file as it was, and as it was proposed
- ``diff``: the minimal unified diff
- ``accepted``: whether it stands; ``reason``: why not, or by whom (``applied``, ``user``, ``undone``, ``replaced``)

An edit that was accepted and does not stand in the end has a second line that says so, which counts. Kept are those of
the fast mode and of the tools ``edit``, ``write`` and ``rewrite``; ``before`` is empty for a new file.

A file that grows beyond :data:`MAX_BYTES` takes no more. ``keep_edits=False`` writes nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

import msgspec
from msgspec import Struct

MAX_BYTES = 64 * 1024 * 1024
MAX_CODE = 200_000
"""Characters of ``before`` and ``after``; longer edits are not kept."""


class KeptEdit(Struct, kw_only=True):
    """One line; see above."""

    version: int = 1
    time: float
    workspace: str
    conversation: str
    model: str
    path: str
    language: str
    instruction: str
    before: str
    after: str
    diff: str
    accepted: bool
    reason: str = ""


class KeptEdits:
    def __init__(self, state_dir: Path, *, enabled: bool = True) -> None:
        self.folder = state_dir / "edits"
        self.enabled = enabled

    def keep(self, edit: KeptEdit) -> bool:
        """Write it down; whether it was. A full disk is no reason for a turn to fail."""
        if not self.enabled or len(edit.before) + len(edit.after) > MAX_CODE:
            return False
        with contextlib.suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            path = self.folder / time.strftime("%Y-%m.jsonl", time.gmtime(edit.time))
            handle = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)  # other conversations write here, too
                if os.fstat(handle).st_size > MAX_BYTES:
                    return False
                os.write(handle, msgspec.json.encode(edit) + b"\n")
            finally:
                os.close(handle)
            return True
        return False


def read_kept(state_dir: Path) -> list[KeptEdit]:
    """All that is kept, oldest first; lines that cannot be read are passed over."""
    found = []
    for path in sorted((state_dir / "edits").glob("*.jsonl")):
        for line in path.read_bytes().splitlines():
            with contextlib.suppress(msgspec.DecodeError):
                found.append(msgspec.json.decode(line, type=KeptEdit))
    return found

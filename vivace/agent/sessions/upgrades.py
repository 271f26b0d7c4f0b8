"""Conversations of older versions, line by line, one version at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from vivace.agent.sessions.entries import VERSION

Line = dict[str, Any]


def _from_1(line: Line) -> Line:
    """Times become seconds; ``type`` becomes ``kind``; a message that was in the file had been delivered."""
    if "version" in line:
        return line | {"created": line["created"] / 1000}
    line = dict(line)
    line["time"] = line["time"] / 1000
    line["kind"] = line.pop("type")
    if line["kind"] == "user":
        line["data"] = {"state": "delivered", **line["data"]}
    return line


UPGRADES: dict[int, Callable[[Line], Line]] = {1: _from_1}


def version_of(header: bytes) -> int | None:
    """Of a file, by its first line; None when that is no header."""
    try:
        version = msgspec.json.decode(header)["version"]
    except (msgspec.DecodeError, KeyError, TypeError):
        return None
    return version if isinstance(version, int) and version >= 1 else None


def upgraded(lines: list[bytes], version: int) -> list[bytes]:
    """The lines as this version writes them, the header first; those that cannot be read stay as they are."""
    made = []
    for number, line in enumerate(lines):
        try:
            read = msgspec.json.decode(line, type=dict[str, Any])
            for step in range(version, VERSION):
                read = UPGRADES[step](read)
            made.append(msgspec.json.encode(read | {"version": VERSION} if number == 0 else read))
        except (msgspec.DecodeError, KeyError, TypeError):
            made.append(line)
    return made

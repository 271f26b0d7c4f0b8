"""JSON files that come with a model: read with a bound, and refused where they are not an object."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

from vivace.errors import VivaceError

MAX_JSON = 64 << 20
"""Bytes; a tokenizer of 152,000 tokens takes 11 MB."""


def read_json(path: Path, limit: int = MAX_JSON) -> dict[str, Any]:
    """The object in a JSON file of at most ``limit`` bytes.

    Raises :class:`VivaceError`: ``model_file_unreadable`` where it cannot be read, ``model_file_invalid`` where it is
    too large or no JSON object.
    """
    try:
        info = path.stat()
        if not stat.S_ISREG(info.st_mode):  # A pipe would block, a device may never end.
            raise VivaceError(f"{path} is not a regular file", code="model_file_unreadable")
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise VivaceError(f"Cannot read {path}: {error.strerror}", code="model_file_unreadable") from error
    if len(data) > limit:
        raise invalid(path, f"it has {info.st_size} bytes, more than {limit}")
    return parse_object(data, path)


def parse_object(data: bytes, path: Path) -> dict[str, Any]:
    """The JSON object that ``data`` is; ``path`` is named where it is none."""
    import msgspec

    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise invalid(path, f"it is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise invalid(path, "it is not a JSON object")
    return found


def read_if_there(path: Path) -> dict[str, Any]:
    """As :func:`read_json`; empty where there is no such file."""
    return read_json(path) if path.exists() else {}


def invalid(path: Path, what: str) -> VivaceError:
    """The refusal of a model file."""
    return VivaceError(
        f"{path} is not usable: {what}", hint="Get the file again, or use another one.", code="model_file_invalid"
    )

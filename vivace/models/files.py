"""Small file helpers that the store, the sources and the tokenizer cache share."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

CHUNK = 1 << 20


def write_atomic(path: Path, data: bytes) -> None:
    """Writes ``data`` to ``path`` so that a reader sees the old file or the whole new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def sha256_of(path: Path, on_bytes: Callable[[int], None] | None = None) -> str:
    """The SHA-256 of a file in hex; ``on_bytes`` is told the bytes hashed so far."""
    digest = hashlib.sha256()
    done = 0
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            done += len(chunk)
            if on_bytes is not None:
                on_bytes(done)
    return digest.hexdigest()


def size_text(count: int) -> str:
    """Bytes for people, in the decimal units that download pages use: ``491.4 MB``."""
    value = float(count)
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"

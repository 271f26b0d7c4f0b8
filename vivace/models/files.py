"""Small file helpers that the store, the sources and the tokenizer cache share."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

CHUNK = 1 << 20


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


def members(path: Path) -> list[Path]:
    """The files that make up a model: the file itself, or those of a folder that anything here reads."""
    if not path.is_dir():
        return [path]
    wanted = (".safetensors", ".json", ".jinja")
    return sorted(file for file in path.iterdir() if file.suffix in wanted and file.is_file())


def state_of(path: Path) -> tuple[int, int]:
    """Bytes of a model file, and a number that is another one when it was changed: its modification time in ns.

    For a folder: bytes of all its members, and a number made of each one's name, size and time.
    """
    if not path.is_dir():
        info = path.stat()
        return info.st_size, info.st_mtime_ns
    found = [(file.name, info.st_size, info.st_mtime_ns) for file in members(path) for info in (file.stat(),)]
    digest = hashlib.blake2b(repr(found).encode(), digest_size=8).digest()
    return sum(size for _, size, _ in found), int.from_bytes(digest, "little")


def sha256_of_model(path: Path) -> str:
    """The SHA-256 of a model file; for a folder, of its members' names and checksums as ``sha256sum`` prints them."""
    if not path.is_dir():
        return sha256_of(path)
    listing = "".join(f"{sha256_of(file)}  {file.name}\n" for file in members(path))
    return hashlib.sha256(listing.encode()).hexdigest()


def size_text(count: int) -> str:
    """Bytes for people, in the decimal units that download pages use: ``491.4 MB``."""
    value = float(count)
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"

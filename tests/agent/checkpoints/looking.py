"""Workspaces for these tests: what stands in a folder, byte by byte, and edits as commands make them."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random

Found = Mapping[bytes, tuple[str, int, bytes]]


def look(root: Path) -> Found:
    """Every path below but ``.git``: what it is, its permission bits, its bytes or where it points."""
    found: dict[bytes, tuple[str, int, bytes]] = {}
    top = os.fsencode(root)
    for folder, names, files in os.walk(top):
        names[:] = [name for name in names if name != b".git"]
        for name in [*names, *files]:
            path = os.path.join(folder, name)  # noqa: PTH118
            status = os.lstat(path)
            if stat.S_ISLNK(status.st_mode):
                entry = ("link", 0, os.readlink(path))  # noqa: PTH115
            elif stat.S_ISDIR(status.st_mode):
                entry = ("folder", stat.S_IMODE(status.st_mode), b"")
            else:
                with open(path, "rb") as file:  # noqa: PTH123
                    entry = ("file", stat.S_IMODE(status.st_mode), file.read())
            found[os.path.relpath(path, top)] = entry
    return found


class Vandal:
    """One random edit or command after the other, all with their own seed."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root = root
        self.random = Random(seed)

    def step(self) -> str:
        """Do something that is possible here; its name."""
        while True:
            act = self.random.choice(ACTS)
            if act(self):
                return act.__name__

    def paths(self, kind: str) -> list[bytes]:
        return sorted(path for path, entry in look(self.root).items() if entry[0] == kind)

    def pick(self, kind: str) -> Path | None:
        paths = self.paths(kind)
        return self.root / os.fsdecode(self.random.choice(paths)) if paths else None

    def free(self) -> Path:
        """A path where nothing stands yet, in some folder."""
        folder = self.random.choice([self.root, *(self.root / os.fsdecode(path) for path in self.paths("folder"))])
        names = [
            "a.py",
            "b.txt",
            "Übung.md",
            "space in name",
            "x" * 100,
            "-rf",
            "line\nbreak",
            os.fsdecode(b"\xff\xfe"),
            "A.py",
        ]
        path = folder / self.random.choice(names)
        while os.path.lexists(path):
            path = folder / f"{self.random.randrange(10**6)}"
        return path

    def content(self) -> bytes:
        return self.random.choice([b"", b"x", b"line\r\nline\n", self.random.randbytes(self.random.randrange(5000))])


def write(vandal: Vandal) -> bool:
    vandal.free().write_bytes(vandal.content())
    return True


def overwrite(vandal: Vandal) -> bool:
    path = vandal.pick("file")
    if path is not None:
        path.write_bytes(vandal.content())
    return path is not None


def append(vandal: Vandal) -> bool:
    path = vandal.pick("file")
    if path is not None:
        with path.open("ab") as file:
            file.write(b"more\n")
    return path is not None


def truncate(vandal: Vandal) -> bool:
    path = vandal.pick("file")
    if path is not None:
        os.truncate(path, path.stat().st_size // 2)
    return path is not None


def same_size_same_time(vandal: Vandal) -> bool:
    """The edit that a look at size and modification time misses."""
    path = vandal.pick("file")
    if path is None or not path.stat().st_size:
        return False
    status = path.stat()
    path.write_bytes(bytes(255 - byte for byte in path.read_bytes()))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    return True


def touch(vandal: Vandal) -> bool:
    path = vandal.pick("file")
    if path is not None:
        os.utime(path, (1, vandal.random.randrange(10**9)))
    return path is not None


def delete(vandal: Vandal) -> bool:
    path = vandal.pick("file") or vandal.pick("link")
    if path is not None:
        path.unlink()
    return path is not None


def chmod(vandal: Vandal) -> bool:
    path = vandal.pick(vandal.random.choice(["file", "folder"]))
    if path is not None:
        path.chmod(vandal.random.choice([0o644, 0o755, 0o700, 0o600, 0o775]))
    return path is not None


def rename(vandal: Vandal) -> bool:
    path = vandal.pick(vandal.random.choice(["file", "folder", "link"]))
    if path is None:
        return False
    target = vandal.free()
    if target.is_relative_to(path):
        return False
    path.rename(target)
    return True


def replace(vandal: Vandal) -> bool:
    path, other = vandal.pick("file"), vandal.pick("file")
    if path is None or other is None:
        return False
    path.replace(other)
    return True


def mkdir(vandal: Vandal) -> bool:
    vandal.free().mkdir()
    return True


def rmdir(vandal: Vandal) -> bool:
    path = vandal.pick("folder")
    if path is not None:
        shutil.rmtree(path)
    return path is not None


def symlink(vandal: Vandal) -> bool:
    vandal.free().symlink_to(vandal.random.choice(["a.py", "/etc/hostname", "..", "nowhere", os.fsdecode(b"\xfe")]))
    return True


def file_to_folder(vandal: Vandal) -> bool:
    path = vandal.pick("file")
    if path is None:
        return False
    path.unlink()
    path.mkdir()
    (path / "inside").write_bytes(vandal.content())
    return True


def folder_to_link(vandal: Vandal) -> bool:
    path = vandal.pick("folder")
    if path is None:
        return False
    shutil.rmtree(path)
    path.symlink_to("..")
    return True


def link_to_file(vandal: Vandal) -> bool:
    path = vandal.pick("link")
    if path is None:
        return False
    path.unlink()
    path.write_bytes(vandal.content())
    return True


ACTS: list[Callable[[Vandal], bool]] = [
    write, write, write, overwrite, append, truncate, same_size_same_time, touch, delete, chmod, rename, replace,
    mkdir, rmdir, symlink, file_to_folder, folder_to_link, link_to_file,
]  # fmt: skip

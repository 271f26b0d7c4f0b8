"""Paths as a model gives them: inside the workspace, links out of it refused."""

from __future__ import annotations

from pathlib import Path

from vivace.errors import UsageError


def inside(root: Path, name: str, *, param: str = "path") -> Path:
    """The real path behind ``name``, which is relative to ``root`` or absolute; it need not exist.

    Raises :class:`UsageError` (``bad_path``, ``outside_workspace``). ``root`` is a real path.
    """
    if not name or "\0" in name:
        raise UsageError("a path is empty or holds a zero byte", code="bad_path", param=param)
    try:
        real = (root / name).resolve()
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of symlinks, before Python 3.13
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"{name}: {reason}", code="bad_path", param=param) from None
    if not real.is_relative_to(root):
        raise UsageError(f"{name}: lies outside the workspace ({root})", code="outside_workspace", param=param)
    return real


def shown(root: Path, path: Path) -> str:
    """How messages call a path of the workspace."""
    return path.relative_to(root).as_posix()


def existing(root: Path, name: str, *, param: str = "path") -> Path:
    """:func:`inside`, of something that exists; otherwise :class:`UsageError` (``file_not_found``) with near names."""
    path = inside(root, name, param=param)
    if path.exists():
        return path
    raise UsageError(f"{name}: no such file or folder", hint=_near(root, path), code="file_not_found", param=param)


def _near(root: Path, path: Path) -> str:
    """The likeliest names: the nearest in the same folder, and files of that very name elsewhere."""
    from rapidfuzz import process

    from vivace.agent.repomap.files import project_files

    try:
        siblings = sorted(entry.name for entry in path.parent.iterdir()) if path.parent.is_dir() else []
    except OSError:
        siblings = []
    near = [
        shown(root, path.parent / found[0]) for found in process.extract(path.name, siblings, limit=2, score_cutoff=60)
    ]
    near += [file for file in project_files(root) if file.rsplit("/", 1)[-1] == path.name][:3]
    return f"Did you mean {' or '.join(dict.fromkeys(near))}?" if near else ""

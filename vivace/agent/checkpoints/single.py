"""The checkpoint before an edit that belongs to no conversation, such as ``vivace edit`` makes.

It is taken where the workspace is one: where the agent has worked before, in the root of a git repository, or in a
folder of a moderate size. Nobody wants his home folder read for the edit of one file in it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from vivace.agent.checkpoints.place import place_of
from vivace.agent.checkpoints.records import Checkpoint
from vivace.agent.checkpoints.store import CheckpointStore

EDIT = "edit"
"""The kind of these checkpoints. They have no place in a conversation."""
MOST_FILES = 2_000
"""Of a folder that is neither a repository nor known."""


def has_checkpoints(workspace: Path, state_dir: Path) -> bool:
    """Whether any were taken there; nothing is made."""
    return (place_of(workspace, state_dir / "checkpoints") / "store.sqlite").exists()


def take_before(workspace: Path, state_dir: Path, paths: Sequence[str], label: str) -> Checkpoint | None:
    """Record the workspace as it is before ``paths`` are changed. None where nothing is kept, or none lies in it.

    Raises what :class:`CheckpointStore` raises.
    """
    root = workspace.resolve()
    inside = [path for path in paths if (root / path).resolve().is_relative_to(root)]
    if not inside or not (has_checkpoints(root, state_dir) or (root / ".git").exists() or _moderate(root)):
        return None
    with CheckpointStore(root, state_dir) as store:
        return store.take(label, EDIT, touching=inside)


def _moderate(root: Path) -> bool:
    count = 0
    for _, folders, names in os.walk(root):
        count += len(folders) + len(names)
        if count > MOST_FILES:
            return False
    return True

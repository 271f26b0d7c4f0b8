"""Dropping old checkpoints, and what no other one holds."""

from __future__ import annotations

from collections.abc import Sequence

from vivace.agent.checkpoints.database import Database
from vivace.agent.checkpoints.records import Checkpoint, Pruned


def drop(database: Database, checkpoints: Sequence[Checkpoint], stay: set[int]) -> Pruned:
    """Keep those in ``stay``; a parent that goes is replaced by the nearest one above it that stays."""
    parents = {checkpoint.id: checkpoint.parent for checkpoint in checkpoints}
    marked: set[bytes] = set()
    for checkpoint in checkpoints:
        if checkpoint.id not in stay:
            database.execute("DELETE FROM checkpoints WHERE id=?", (checkpoint.id,))
            continue
        parent = checkpoint.parent
        while parent is not None and parent not in stay:
            parent = parents.get(parent)
        database.execute("UPDATE checkpoints SET parent=? WHERE id=?", (parent, checkpoint.id))
        _mark(database, checkpoint.tree, marked)
    gone, size = database.drop_all_but(marked)
    return Pruned(len(checkpoints) - len(stay), gone, size)


def _mark(database: Database, tree: bytes, marked: set[bytes]) -> None:
    if tree in marked:
        return
    marked.add(tree)
    for node in database.tree(tree).values():
        if node.kind == "folder":
            _mark(database, node.digest, marked)
        else:
            marked.add(node.digest)

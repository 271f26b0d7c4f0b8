"""Checkpoints of a workspace: every file as it was, outside the repository, without git."""

from vivace.agent.checkpoints.records import (
    Change,
    Checkpoint,
    LeftOut,
    Node,
    Position,
    Pruned,
    Refused,
    Restored,
    Stats,
    shown,
)
from vivace.agent.checkpoints.store import CheckpointStore

__all__ = [
    "Change",
    "Checkpoint",
    "CheckpointStore",
    "LeftOut",
    "Node",
    "Position",
    "Pruned",
    "Refused",
    "Restored",
    "Stats",
    "shown",
]

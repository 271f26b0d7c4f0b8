"""kill -9 at any moment: the files are those of a checkpoint or of a finished step, and everything goes on."""

from __future__ import annotations

from pathlib import Path

from tests.agent.checkpoints.killed import kill_and_look


def test_twenty_kills_at_random_moments(tmp_path: Path) -> None:
    at = kill_and_look(tmp_path, 20, seed=1, longest=0.3)
    assert at["going"] >= 3 and len(at) >= 3, at

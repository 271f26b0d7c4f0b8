"""Two hundred kills at random moments of a turn, and long walks of undo and redo."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent.checkpoints.killed import kill_and_look
from tests.agent.checkpoints.test_undo import undone_and_redone

pytestmark = pytest.mark.soak


def test_two_hundred_kills_at_random_moments(tmp_path: Path) -> None:
    at = kill_and_look(tmp_path, 200, seed=2)
    print(dict(at))
    assert at["going"] >= 30 and at["finished on opening"] >= 5 and len(at) >= 5, at


@pytest.mark.parametrize("seed", range(40))
def test_fifty_random_edits_are_undone_and_redone_from_many_beginnings(tmp_path: Path, seed: int) -> None:
    undone_and_redone(tmp_path, seed, reopen=seed % 2 == 0)

"""A turn that is killed at any moment: the files are those of a checkpoint or a finished step, and it goes on."""

from __future__ import annotations

from pathlib import Path
from random import Random

from tests.agent.turns.killed import Course

KILLS = 3


def test_a_turn_that_is_killed_at_random_moments_resumes(tmp_path: Path) -> None:
    Course(tmp_path, steps=12).run(KILLS, Random(7))

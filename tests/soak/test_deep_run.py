"""The agent for minutes: 500 steps, 200 kills, storms of 1,000 messages and stops."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.agent.turns.killed import Course
from tests.agent.turns.long_run import looked_at, run
from tests.agent.turns.test_steering import storm

pytestmark = pytest.mark.soak


def test_five_hundred_steps_with_three_compactions_and_a_kill(tmp_path: Path) -> None:
    said = run(tmp_path, steps=500, window=20_000, kills=1, seed=3)
    assert said == ["done "]
    assert looked_at(tmp_path, 500) >= 3


def test_two_hundred_kills_at_random_moments(tmp_path: Path) -> None:
    Course(tmp_path, steps=700, window=20_000).run(200, Random(11))


def test_storms_of_a_thousand(tmp_path: Path) -> None:
    storm(tmp_path, 3000, every=3)

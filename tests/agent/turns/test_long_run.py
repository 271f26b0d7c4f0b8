"""A long deep turn: compactions lose nothing, a kill loses nothing, nothing is done twice."""

from __future__ import annotations

from pathlib import Path

from tests.agent.turns.long_run import looked_at, run


def test_sixty_steps_with_compactions_and_a_kill_are_each_done_once(tmp_path: Path) -> None:
    """Fails or loops when the window is small: openai/codex#13279, #11641, #37476."""
    said = run(tmp_path, steps=60, window=4_400, kills=1, seed=1)
    assert said == ["done "]
    assert looked_at(tmp_path, 60) >= 3

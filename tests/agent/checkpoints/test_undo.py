"""Undo and redo give every byte, mode, link and empty folder back, whatever edits and commands did."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.agent.checkpoints.looking import Vandal, look
from vivace.agent.checkpoints import CheckpointStore, Position
from vivace.errors import UsageError


def undone_and_redone(base: Path, seed: int, *, reopen: bool) -> None:
    """Fifty steps with a checkpoint before each, all the way back and forth again."""
    workspace, state = base / "workspace", base / "state"
    workspace.mkdir()
    vandal = Vandal(workspace, seed)
    for _ in range(10):
        vandal.step()
    seen = [look(workspace)]
    store = CheckpointStore(workspace, state)
    for number in range(50):
        store.take(f"step {number}", "step", Position("c", str(number)))
        vandal.step()
        seen.append(look(workspace))
    position: Position | None = Position("c", "end")
    for back in range(49, -1, -1):
        if reopen and back % 10 == 0:
            store.close()
            store = CheckpointStore(workspace, state)
        restored = store.undo("step", position)
        assert not restored.refused and not restored.kept
        assert look(workspace) == seen[back]
        position = restored.position
        assert position == Position("c", str(back))
    with pytest.raises(UsageError, match="nothing to undo"):
        store.undo("step", position)
    for forth in range(1, 51):
        restored = store.redo(position)
        assert not restored.refused and look(workspace) == seen[forth]
        position = restored.position
        assert position == Position("c", "end" if forth == 50 else str(forth))
    with pytest.raises(UsageError, match="nothing to redo"):
        store.redo()
    store.close()


@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 2**32), reopen=st.booleans())
def test_fifty_random_edits_are_undone_and_redone_one_by_one(seed: int, reopen: bool) -> None:
    with TemporaryDirectory() as folder:
        undone_and_redone(Path(folder), seed, reopen=reopen)


@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_any_checkpoint_is_restored_from_any_state(seed: int) -> None:
    with TemporaryDirectory() as folder:
        workspace = Path(folder) / "workspace"
        workspace.mkdir()
        vandal = Vandal(workspace, seed)
        with CheckpointStore(workspace, Path(folder) / "state") as store:
            seen = {}
            for _ in range(12):
                for _ in range(8):
                    vandal.step()
                seen[store.take("state").id] = look(workspace)
            for _ in range(12):
                if vandal.random.random() < 0.5:
                    vandal.step()
                    dirty = look(workspace)
                else:
                    dirty = None
                number = vandal.random.choice(list(seen))
                restored = store.restore(number)
                assert not restored.refused and look(workspace) == seen[number]
                if dirty is not None and restored.saved is not None:
                    seen[restored.saved.id] = dirty
                assert store.diff(number) == []

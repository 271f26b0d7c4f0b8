"""The task sets beside the checkout, for the tests that hold a promise about every task."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

TASKS = Path(os.environ.get("VIVACE_TASKS", Path(__file__).parents[1].parent / "shared" / "data" / "tasks"))


def task_rows(name: str) -> list[dict[str, Any]]:
    """The tasks of a set (``edit``, ``repair``, ``long_edit``); skips where the data is not there."""
    path = TASKS / f"{name}.jsonl"
    if not path.exists():
        pytest.skip(f"no task data at {TASKS} (set VIVACE_TASKS)")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

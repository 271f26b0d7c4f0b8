"""Coding tasks with an instruction, a file and tests, one JSON object a line."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct


class Task(Struct, frozen=True):
    """One task. Only ``instruction``, ``path`` and ``before`` may reach a model; ``tests`` are for the grader."""

    id: str
    kind: str
    instruction: str
    path: str
    before: str
    tests: str


class TaskFile(Struct, frozen=True):
    """One file of tasks, and the hash that tells which edition of it was run."""

    name: str
    sha256: str
    tasks: list[Task]


def load(folder: Path, names: Sequence[str]) -> list[TaskFile]:
    """Read ``NAME.jsonl`` of ``folder`` for each name; raises :class:`SystemExit` for a file that is not there."""
    files = []
    for name in names:
        path = folder / f"{name}.jsonl"
        if not path.is_file():
            raise SystemExit(f"no {name}.jsonl in the folder that --tasks names")
        data = path.read_bytes()
        tasks = [msgspec.json.decode(line, type=Task) for line in data.splitlines() if line.strip()]
        if any(Path(task.path).name != task.path for task in tasks):
            raise SystemExit(f"{name}.jsonl: the path of a task is not a bare file name")
        files.append(TaskFile(name, hashlib.sha256(data).hexdigest(), tasks))
    return files

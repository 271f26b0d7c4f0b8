"""Coding tasks, one JSON object a line; what a solver sees of one, and what only the grader sees."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

import msgspec
from msgspec import Struct

from vivace.errors import UsageError


class Problem(Struct, frozen=True):
    """All that a solver is given: neither tests nor reference are in here, so nothing that it asks can hold them."""

    id: str
    kind: str
    instruction: str
    paths: tuple[str, ...]
    """The files that a person would name with the instruction."""
    files: Mapping[str, str]
    """The whole workspace, path -> text; the tests that a task shows are among them."""


class Region(Struct, frozen=True):
    """Lines of ``before``, from 1, both included."""

    start_line: int
    end_line: int


class Task(Struct, frozen=True):
    """One task as its file holds it. docs/bench-tasks.md has the schema; keys that are not here are passed over."""

    id: str
    kind: str
    instruction: str
    path: str
    before: str
    tests: str
    reference: str = ""
    files: dict[str, str] = {}
    """The rest of the workspace."""
    paths: tuple[str, ...] = ()
    """What a person would name, where that is more than ``path``."""
    reference_files: dict[str, str] = {}
    """What the reference changes beside ``path``."""
    region: Region | None = None
    """The only lines of ``path`` that the task is about."""
    seconds: float = 10.0
    """Limit of the hidden tests."""

    @property
    def problem(self) -> Problem:
        return Problem(self.id, self.kind, self.instruction, self.paths or (self.path,), self.workspace)

    @property
    def workspace(self) -> dict[str, str]:
        return {**self.files, self.path: self.before}

    @property
    def solved(self) -> dict[str, str]:
        """The workspace with the reference in place."""
        return {**self.workspace, **self.reference_files, self.path: self.reference}

    @property
    def touches(self) -> frozenset[str]:
        """The files that the reference changes."""
        before, after = self.workspace, self.solved
        return frozenset(path for path, text in after.items() if before.get(path) != text)

    def strays(self, after: Mapping[str, bytes]) -> bool:
        """Whether ``after`` changes what the task is not about: another file, or lines outside of the region.

        A new file among the tests is no fault: who adds a feature may add its test.
        """
        before = {path: text.encode("utf-8") for path, text in self.workspace.items()}
        changed = {path for path in {*before, *after} if before.get(path) != after.get(path)}
        added = {path for path in changed - before.keys() if PurePosixPath(path).parts[0] in ("test", "tests")}
        if changed - self.touches - {self.path} - added:
            return True
        if self.region is None:
            return False
        lines = before[self.path].split(b"\n")
        head = b"".join(line + b"\n" for line in lines[: self.region.start_line - 1])
        tail = b"\n".join(lines[self.region.end_line :])
        text = after.get(self.path, b"")
        return not (len(text) >= len(head) + len(tail) and text.startswith(head) and text.endswith(tail))


class TaskSet(Struct, frozen=True):
    """One file of tasks, and the SHA-256 that tells which edition of it was run."""

    name: str
    sha256: str
    tasks: list[Task]


def load(paths: Sequence[Path]) -> list[TaskSet]:
    """Read files of tasks. Raises :class:`UsageError` that says which file, line and key are wrong."""
    sets = [_load(path) for path in paths]
    seen: dict[str, str] = {}
    for one in sets:
        for task in one.tasks:
            if task.id in seen:
                raise UsageError(f"Task {task.id} is in {seen[task.id]} and in {one.name}.", param="file")
            seen[task.id] = one.name
    return sets


def _load(path: Path) -> TaskSet:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}", param="file") from None
    tasks: list[Task] = []
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        try:
            task = msgspec.json.decode(line, type=Task)
        except msgspec.DecodeError as error:
            raise UsageError(f"{path}, line {number}: no task ({error}).", param="file") from None
        if fault := _fault(task):
            raise UsageError(f"{path}, line {number}, task {task.id}: {fault}.", param="file")
        if any(task.id == other.id for other in tasks):
            raise UsageError(f"{path}, line {number}: a second task {task.id}.", param="file")
        tasks.append(task)
    if not tasks:
        raise UsageError(f"{path} holds no task.", param="file")
    return TaskSet(path.name, hashlib.sha256(data).hexdigest(), tasks)


def _fault(task: Task) -> str:
    for path in (*task.workspace, *task.reference_files):
        pure = PurePosixPath(path)
        if not path or pure.is_absolute() or ".." in pure.parts or "\0" in path or str(pure) != path:
            return f"the path {path!r} is not a plain one inside the workspace"
        if path == TESTS:
            return f"{TESTS} is the name of the hidden tests"
    missing = [path for path in task.paths if path not in task.workspace]
    return f"{', '.join(missing)} of `paths` is not among the files" if missing else ""


TESTS = "task_tests.py"
"""The file that the hidden tests are put in, in the grader's own folder."""


def chosen(sets: Sequence[TaskSet], limit: int | None) -> list[Task]:
    """The tasks to run: all, or ``limit`` of them, spread evenly over the files and over each file's length."""
    tasks = [task for one in sets for task in one.tasks]
    if limit is None or limit >= len(tasks):
        return tasks
    return [tasks[(2 * n + 1) * len(tasks) // (2 * limit)] for n in range(limit)]

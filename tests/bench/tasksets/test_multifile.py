"""The project's own set of tasks over several files."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from vivace.agent.sandbox.base import NoSandbox
from vivace.bench.tasksets.grading import grade
from vivace.bench.tasksets.task import Task, load
from vivace.bench.tasksets.tree import encoded

DATA = Path(__file__).parents[3] / "benchmarks" / "data" / "multifile"
TASKS = load([DATA / "multifile.jsonl"])[0].tasks


@pytest.fixture(scope="module")
def build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("multifile_build", DATA / "build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_set_is_what_its_sources_make(build: ModuleType, tmp_path: Path) -> None:
    made = "".join(json.dumps(task) + "\n" for task in build.tasks())
    assert (DATA / "multifile.jsonl").read_text("utf-8") == made, "run: python benchmarks/data/multifile/build.py"


def test_thirty_tasks_over_several_files() -> None:
    assert len(TASKS) == 30
    kinds = [task.kind for task in TASKS]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {
        "multi_repair": 10,
        "multi_trace": 4,
        "multi_extend": 12,
        "multi_refactor": 4,
    }
    assert sum(len(task.touches) > 1 for task in TASKS) >= 10
    for task in TASKS:
        assert len(task.workspace) >= 5 and any(path.startswith("tests/test_") for path in task.workspace)
        # Where the fault has to be traced, what is named is where it shows, and not where it is.
        assert (task.kind == "multi_trace") == (not task.touches <= set(task.problem.paths)), task.id


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)
def test_the_reference_passes_and_the_task_as_given_does_not(task: Task) -> None:
    assert grade(encoded(task.solved), task.tests, NoSandbox()).passed
    assert not grade(encoded(task.workspace), task.tests, NoSandbox()).passed
    assert not task.strays(encoded(task.solved))


@pytest.mark.parametrize("task", TASKS[::6], ids=lambda task: task.id)
def test_the_shown_tests_tell_before_from_after(build: ModuleType, task: Task) -> None:
    assert build.passes(task.solved, ["-m", "unittest"])
    assert not build.passes(task.workspace, ["-m", "unittest"])
    # What only grades is nowhere in what is shown.
    hidden = [line for line in task.tests.splitlines() if line.startswith("assert ")]
    shown = "\n".join(task.workspace.values()) + task.instruction
    assert hidden and not any(line in shown for line in hidden)

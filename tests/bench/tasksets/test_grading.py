"""Hidden tests: what passes, what cannot cheat its way through, what is ended."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path

import pytest

from tests.bench.tasksets.samples import BEFORE, GOOD, TESTS, WRONG
from tests.tasks import TASKS
from vivace.agent.sandbox.base import NoSandbox, Sandbox, detect
from vivace.bench.tasksets.grading import grade
from vivace.bench.tasksets.task import load

FOUND = detect()
SANDBOXES = [pytest.param(NoSandbox(), id="none")]
if FOUND.sandbox.holds:
    SANDBOXES.append(pytest.param(FOUND.sandbox, id=FOUND.sandbox.name))
needs_sandbox = pytest.mark.skipif(not FOUND.sandbox.holds, reason=FOUND.reason)


def graded(text: str, sandbox: Sandbox, tests: str = TESTS, seconds: float = 10) -> str:
    return grade({"solution.py": text.encode()}, tests, sandbox, seconds).why


@pytest.mark.parametrize("sandbox", SANDBOXES)
def test_right_wrong_broken_and_silent(sandbox: Sandbox) -> None:
    assert graded(GOOD, sandbox) == "passed"
    for text in (BEFORE, WRONG, "", "def double(:\n", "import sys\nsys.exit(0)\n"):
        assert graded(text, sandbox) == "failed", text


@pytest.mark.parametrize("sandbox", SANDBOXES)
def test_what_never_ends_is_ended(sandbox: Sandbox) -> None:
    started = time.perf_counter()
    assert graded("while True:\n    pass\n", sandbox, seconds=1) == "timeout"
    assert graded("import time\ntime.sleep(60)\n", sandbox, seconds=1) == "timeout"
    assert time.perf_counter() - started < 10


@pytest.mark.parametrize("sandbox", SANDBOXES)
def test_memory_is_limited(sandbox: Sandbox) -> None:
    assert graded("x = bytearray(3 << 30)\n" + GOOD, sandbox) == "failed"


@pytest.mark.parametrize("sandbox", SANDBOXES)
def test_the_environment_is_empty(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "1")
    assert graded("import os\nassert 'SOME_TOKEN' not in os.environ\n" + GOOD, sandbox) == "passed"


@needs_sandbox
def test_nothing_outside_is_written(tmp_path: Path) -> None:
    target = Path.cwd() / f".written-{os.getpid()}"
    text = f"try:\n    open({str(target)!r}, 'w').write('x')\nexcept OSError:\n    pass\n{GOOD}"
    assert graded(text, FOUND.sandbox) == "passed"
    assert not target.exists()


@needs_sandbox
def test_there_is_no_network() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = ("127.0.0.1", server.getsockname()[1])
        text = (
            f"import socket\ntry:\n    socket.create_connection({address!r}, 1)\n"
            f"except OSError:\n    pass\nelse:\n    raise SystemExit(5)\n{GOOD}"
        )
        assert graded(text, FOUND.sandbox) == "passed"
        assert graded(text, NoSandbox()) == "failed", "the connection is there to be had"


@pytest.mark.skipif(not TASKS.is_dir(), reason="no task files beside the checkout")
def test_tasks_of_the_sets_pass_by_their_reference_only() -> None:
    for found in load([TASKS / f"{name}.jsonl" for name in ("edit", "repair", "long_edit")]):
        for task in found.tasks[7:40:16]:
            solved = {path: text.encode() for path, text in task.solved.items()}
            given = {path: text.encode() for path, text in task.workspace.items()}
            assert grade(solved, task.tests, FOUND.sandbox).passed, task.id
            assert not grade(given, task.tests, FOUND.sandbox, 3).passed, task.id


def test_the_documented_way_to_run_a_task_agrees(tmp_path: Path) -> None:
    """A task file's own rule: exit code 0, and TESTS PASSED on the last line."""
    said = json.dumps("TESTS PASSED")
    for tests, why in [
        (f"print({said})", "passed"),
        (f"print({said}); print('more')", "failed"),
        (f"print({said}); raise SystemExit(3)", "failed"),
        ("pass", "failed"),
    ]:
        assert graded(GOOD, NoSandbox(), tests) == why

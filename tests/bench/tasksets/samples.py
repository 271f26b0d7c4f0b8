"""Tasks, records and reports to test with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vivace.bench.record import Machine
from vivace.bench.tasksets.record import Options, Record, Report
from vivace.bench.tasksets.summary import summarise
from vivace.bench.tasksets.task import Task

SECRET = "xylophone_quartz"
"""Stands in the hidden tests and the reference only."""

BEFORE = 'def double(x):\n    """Twice x."""\n    return x\n'
AFTER = f'def double(x):\n    """Twice x."""\n    return x * 2  # {SECRET}\n'
GOOD = 'def double(x):\n    """Twice x."""\n    return x * 2\n'
WRONG = 'def double(x):\n    """Twice x."""\n    return x * 3\n'
TESTS = f"""
import sys
sys.path.insert(0, __file__.rpartition("/")[0])
from solution import double
assert double(21) == 42, "{SECRET}"
print("TESTS PASSED")
"""


def task(**changes: Any) -> Task:
    """A small one that fails as it is given; ``GOOD`` and its reference pass."""
    fields: dict[str, Any] = {
        "id": "sample/double",
        "kind": "repair",
        "instruction": "Fix the bug in the function `double`.",
        "path": "solution.py",
        "before": BEFORE,
        "tests": TESTS,
        "reference": AFTER,
    }
    return Task(**{**fields, **changes})


def write(path: Path, *entries: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")
    return path


def entry(**changes: Any) -> dict[str, Any]:
    """A task as a line of a file, with keys that a reader need not know."""
    fields = {
        "id": "sample/double",
        "source": "here",
        "licence": "Apache-2.0",
        "kind": "repair",
        "language": "python",
        "instruction": "Fix the bug in the function `double`.",
        "path": "solution.py",
        "before": BEFORE,
        "tests": TESTS,
        "reference": AFTER,
    }
    return {**fields, **changes}


def record(number: int, *, passed: bool, seconds: float = 1.0, seed: int = 0, **changes: Any) -> Record:
    fields: dict[str, Any] = {
        "id": f"t/{number}",
        "kind": "edit",
        "seed": seed,
        "status": "changed",
        "applied": True,
        "passed": passed,
        "grade": "passed" if passed else "failed",
        "wrong_place": False,
        "seconds": seconds,
        "changed_lines_ratio": 1.0,
        "diff": f"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new {number}\n",
    }
    return Record(**{**fields, **changes})


def report(records: list[Record], **options: Any) -> Report:
    return Report(
        command="vivace bench tasks edit.jsonl",
        date="2026-01-02",
        vivace="0.1.0",
        machine=Machine(cpu="a chip", cores=2, memory_bytes=1 << 30, features=[], system="Linux", python="3.11"),
        engine="kernels",
        sandbox="none",
        options=Options(**{"model": "coder-0.5b", **options}),
        tasks={"edit.jsonl": "00"},
        summary=summarise(records),
        records=records,
    )

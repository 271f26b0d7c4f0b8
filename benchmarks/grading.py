"""Run a task's tests on a finished file.

The code under test is a model's and is not trusted. It runs in a process of its own, in an empty folder, without
environment or input, under limits of memory, processor time, wall time and file size. That stops accidents; it is no
sandbox against malice, so grade on a machine that holds nothing of value.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Literal

from msgspec import Struct

SECONDS = 10
MEMORY = 2 << 30
OUTPUT = 16 << 20

# The limits are set by a first interpreter that then becomes the second: a hook between fork and exec is not safe in
# a process with threads.
_LIMITED = f"""
import os, resource, sys
for what, most in ((resource.RLIMIT_AS, {MEMORY}), (resource.RLIMIT_CPU, {SECONDS}),
                   (resource.RLIMIT_FSIZE, {OUTPUT}), (resource.RLIMIT_CORE, 0)):
    resource.setrlimit(what, (most, most))
os.execv(sys.executable, [sys.executable, "-I", "-S", "-B", "task_tests.py"])
"""


class Grade(Struct, frozen=True):
    """``untouched`` is ``None`` where the tests do not look at the rest of the file."""

    passed: bool
    why: Literal["passed", "failed", "timeout"]
    untouched: bool | None = None


def grade(name: str, text: bytes, tests: str) -> Grade:
    """Grade ``text`` as the file ``name``: it passed when the exit code is 0 and the last line is TESTS PASSED."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as output:
        Path(folder, name).write_bytes(text)
        Path(folder, "task_tests.py").write_bytes(tests.encode("utf-8"))
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", "-c", _LIMITED],
            cwd=folder,
            env={},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            code: int | None = process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            code = None
        with contextlib.suppress(ProcessLookupError):  # and what it may have started
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        output.seek(0)
        lines = output.read().decode("utf-8", "replace").rstrip().split("\n")
    untouched = {"UNTOUCHED OK": True, "UNTOUCHED CHANGED": False}.get(lines[0])
    if code is None or -code in (signal.SIGKILL, signal.SIGXCPU):
        return Grade(False, "timeout", untouched)
    passed = code == 0 and lines[-1].endswith("TESTS PASSED")
    return Grade(passed, "passed" if passed else "failed", untouched)

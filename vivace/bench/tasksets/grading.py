"""Run a task's hidden tests on what a turn left behind.

The code under test is a model's and is not trusted. It runs in a process of its own, in a fresh folder, without
environment, input or network, under limits of memory, processor time, wall time and file size; inside the sandbox of
this machine where there is one. Without one (:attr:`Detection.sandbox` says so) the limits stop accidents, not malice.
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

from vivace.agent.sandbox.base import Sandbox
from vivace.agent.sandbox.policy import policy_for
from vivace.bench.tasksets.task import TESTS
from vivace.bench.tasksets.tree import Tree, lay_out

MEMORY = 2 << 30
OUTPUT = 16 << 20

# The limits are set by a first interpreter that then becomes the second: a hook between fork and exec is not safe in
# a process with threads.
_LIMITED = f"""
import os, resource, sys
for what, most in ((resource.RLIMIT_AS, {MEMORY}), (resource.RLIMIT_CPU, int(sys.argv[1])),
                   (resource.RLIMIT_FSIZE, {OUTPUT}), (resource.RLIMIT_CORE, 0)):
    resource.setrlimit(what, (most, most))
os.execv(sys.executable, [sys.executable, "-I", "-S", "-B", "{TESTS}"])
"""


class Grade(Struct, frozen=True):
    passed: bool
    why: Literal["passed", "failed", "timeout"]


def grade(files: Tree, tests: str, sandbox: Sandbox, seconds: float = 10.0) -> Grade:
    """It passed when the tests end with exit code 0 and TESTS PASSED on the last line, within ``seconds``."""
    with tempfile.TemporaryDirectory(prefix="vivace-grade-") as folder, tempfile.TemporaryFile() as output:
        root = Path(folder).resolve()
        lay_out({**files, TESTS: tests.encode("utf-8")}, root)
        limited = [sys.executable, "-I", "-S", "-B", "-c", _LIMITED, str(max(1, round(seconds)))]
        process = subprocess.Popen(
            sandbox.wrap(limited, policy_for(root)),
            cwd=root,
            env={},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            code: int | None = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            with contextlib.suppress(ProcessLookupError):  # and what it may have started
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        printed = output.read().decode("utf-8", "replace").rstrip()
    # A sandbox reports the signal that ended its command as 128 and the number.
    if code is None or any(code in (-number, 128 + number) for number in (signal.SIGKILL, signal.SIGXCPU)):
        return Grade(False, "timeout")
    passed = code == 0 and printed.endswith("TESTS PASSED")
    return Grade(passed, "passed" if passed else "failed")

"""When this process started, on the clock of ``time.perf_counter``: imports count as waiting too."""

from __future__ import annotations

import os
import time
from pathlib import Path


def process_started() -> float:
    """``time.perf_counter()`` at the start of the process, within 10 ms on Linux; elsewhere the moment of the call."""
    now = time.perf_counter()
    try:
        # proc(5): field 22 is the start in clock ticks since boot; the name before it may hold blanks.
        fields = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, ValueError, IndexError):
        return now
    return now - age if 0 <= age < 3600 else now

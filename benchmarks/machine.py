"""What a result was measured on, without saying whose machine it is."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def describe() -> dict[str, str | int | float]:
    """Processor, cores that this process may use, memory in GiB, and the Python that ran."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 0
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cpu": _cpu(),
        "cores": cores,
        "memory_gib": round(memory, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def _cpu() -> str:
    """The processor's name, with family, model and stepping: a virtual machine's name says too little."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or "unknown"
    facts: dict[str, str] = {}
    for line in text.split("\n\n", 1)[0].splitlines():
        key, _, value = line.partition(":")
        facts[key.strip()] = value.strip()
    name = facts.get("model name", "unknown")
    numbers = [f"{key} {facts[key]}" for key in ("cpu family", "model", "stepping") if key in facts]
    return f"{name} ({', '.join(numbers)})" if numbers else name

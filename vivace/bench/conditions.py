"""The machine and how busy it is, from what the system says about itself."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

from vivace.bench.record import Machine

FEATURES = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16", "asimddp", "i8mm", "sve")
"""Instruction sets that decide how fast an engine can be."""


def machine() -> Machine:
    """Processor, cores this process may use, memory and Python; no names of hosts or people."""
    facts: dict[str, str] = {}
    for line in _read("/proc/cpuinfo").split("\n\n", 1)[0].splitlines():
        key, _, value = line.partition(":")
        facts[key.strip()] = value.strip()
    flags = set((facts.get("flags") or facts.get("Features") or "").split())
    model = [f"{key} {facts[key]}" for key in ("cpu family", "model", "stepping") if key in facts]
    name = facts.get("model name") or platform.processor() or "unknown"
    return Machine(
        cpu=f"{name} ({', '.join(model)})" if model else name,
        cores=cores(),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        features=[feature for feature in FEATURES if feature in flags],
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
    )


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def busy(seconds: float = 0.2) -> float:
    """Share of all cores' time that was not idle over the next ``seconds``, time stolen by a hypervisor included."""
    before = _ticks()
    time.sleep(seconds)
    after = _ticks()
    total = sum(after) - sum(before)
    idle = sum(after[3:5]) - sum(before[3:5])
    return round(1 - idle / total, 3) if total > 0 else 0.0


def resident_bytes(pid: int) -> int:
    """Memory of a process that is in use now; 0 where it cannot be told."""
    for line in _read(f"/proc/{pid}/status").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def _ticks() -> list[int]:
    first = _read("/proc/stat").split("\n", 1)[0].split()
    return [int(field) for field in first[1:9]] if first else [0] * 8


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""

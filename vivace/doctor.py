"""``vivace doctor``: what this machine has, what it measured in ten seconds, and which model that is enough for."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from vivace.recommendation import CONTEXT, Estimate, Place, Recommendation, estimate, recommend
from vivace.settings import Settings

if TYPE_CHECKING:
    from vivace.backends.discovery import Found

BANDWIDTH_SECONDS = 2.0
"""Three times, the best counts: other programs only ever take bandwidth away."""
INT8_SECONDS = 3.0

BUILD_HINT = "install vivace again where a C++ compiler is, or run: python setup.py build_ext --inplace"

T = TypeVar("T")
How = Literal["measured", "derived", "read from the system"]


@dataclass(frozen=True)
class Figure:
    """A number and where it comes from; ``value`` None could not be found out."""

    value: float | None
    unit: str
    how: How


@dataclass(frozen=True)
class Machine:
    """The machine as far as it decides which model runs how fast on it."""

    python: str
    torch: str | None
    cores: int | None
    """Physical ones; None where the system does not say."""
    allowed: int
    """Logical CPUs that this process may use."""
    threads: int
    isa: str | None
    """What the native kernels would use; None where they are not built."""
    memory_total: int | None
    memory_free: int
    gpu: str | None
    gpu_memory_free: int
    bandwidth: float | None
    int8: float | None
    gpu_bandwidth: float | None
    load: float
    """Average number of programs that wanted a CPU in the minute before."""

    @property
    def busy(self) -> bool:
        return self.load > max(1.0, self.allowed / 2)

    @property
    def place(self) -> Place:
        """Where the engine would compute by itself."""
        if self.gpu is not None:
            return Place(self.gpu, self.gpu_memory_free, self.gpu_bandwidth, 2)
        fast = self.isa is not None or "avx512f" in _cpu_flags()
        return Place("CPU", self.memory_free, self.bandwidth, 1 if fast else 4)


def doctor(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Measure this machine for ten seconds and recommend a model and a mode."""
    from vivace.backends.discovery import find_servers
    from vivace.models.catalogue import load_catalogue
    from vivace.models.store import is_present

    settings = context.obj if isinstance(context.obj, Settings) else Settings()
    typer.echo("measuring memory and arithmetic for ten seconds ...", err=True)
    machine = examine(settings)
    models = load_catalogue(settings)
    place = machine.place
    estimates = [estimate(model, place) for model in models.values()]
    present = {name for name, model in models.items() if is_present(model, settings)}
    advice = recommend(estimates, place)
    servers = asyncio.run(find_servers())
    if as_json:
        print(json.dumps(report(machine, estimates, present, advice, servers), indent=2))
    else:
        _show(machine, estimates, present, advice)
        _show_servers(servers)


def examine(settings: Settings) -> Machine:
    """Look at the machine and measure it. PyTorch is imported only where there may be a GPU."""
    from vivace.engine import native
    from vivace.engine.load import available_bytes, default_threads, has_cuda_device

    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    threads = settings.threads or default_threads()
    gpu: tuple[str, int, float] | None = None
    if settings.device != "cpu" and has_cuda_device():
        gpu = _examine_gpu()
    bandwidth = int8 = None
    if native.available():
        bandwidth = max(native.probe(0, threads, seconds=BANDWIDTH_SECONDS) for _ in range(3))
        int8 = native.probe(1, threads, seconds=INT8_SECONDS)
    else:
        bandwidth = _numpy_bandwidth(3 * BANDWIDTH_SECONDS)
    return Machine(
        python=platform.python_version(),
        torch=_version("torch"),
        cores=_physical_cores(),
        allowed=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        threads=threads,
        isa=native.isa_name(native.isa_best()) if native.available() else None,
        memory_total=_memory_total(),
        memory_free=available_bytes(),
        gpu=gpu[0] if gpu else None,
        gpu_memory_free=gpu[1] if gpu else 0,
        bandwidth=bandwidth or None,
        int8=int8 or None,
        gpu_bandwidth=gpu[2] if gpu else None,
        load=load,
    )


def report(
    machine: Machine,
    estimates: list[Estimate],
    present: set[str],
    advice: Recommendation,
    servers: Sequence[Found] = (),
) -> dict[str, Any]:
    """Everything as JSON values; each number is a :class:`Figure`."""
    figures = {
        "cores": Figure(machine.cores, "physical cores", "read from the system"),
        "allowed": Figure(machine.allowed, "logical CPUs", "read from the system"),
        "threads": Figure(machine.threads, "engine threads", "derived"),
        "memory_total": Figure(machine.memory_total, "bytes", "read from the system"),
        "memory_free": Figure(machine.memory_free, "bytes", "read from the system"),
        "bandwidth": Figure(machine.bandwidth, "bytes/s", "measured"),
        "int8": Figure(machine.int8, "op/s", "measured"),
        "load": Figure(machine.load, "programs", "read from the system"),
        "gpu_memory_free": Figure(machine.gpu_memory_free or None, "bytes", "read from the system"),
        "gpu_bandwidth": Figure(machine.gpu_bandwidth, "bytes/s", "measured"),
    }
    place = machine.place
    return {
        "python": machine.python,
        "torch": machine.torch,
        "kernels": {
            "built": machine.isa is not None,
            "isa": machine.isa,
            "hint": "" if machine.isa else BUILD_HINT,
        },
        "gpu": machine.gpu,
        "figures": {name: asdict(figure) for name, figure in figures.items()},
        "computes_on": place.name,
        "bytes_per_weight": place.weight_bytes,
        "models": [
            {
                "name": e.model.name,
                "present": e.model.name in present,
                "licence": e.model.licence,
                "caution": e.model.caution,
                "fits": e.fits,
                "memory": asdict(Figure(e.memory, "bytes", "derived")),
                "pass_bytes": asdict(Figure(e.pass_bytes, "bytes", "derived")),
                "decode_bound": asdict(Figure(e.decode, "tokens/s", "derived")),
            }
            for e in estimates
        ],
        "recommendation": asdict(advice),
        "servers": [{"kind": s.kind, "base_url": s.base_url, "models": s.models, "window": s.window} for s in servers],
    }


def _show(machine: Machine, estimates: list[Estimate], present: set[str], advice: Recommendation) -> None:
    from rich.console import Console
    from rich.table import Table

    def giga(value: float | None, unit: str, how: How) -> str:
        return "not known" if value is None else f"{value / 1e9:,.1f} G{unit} ({how})"

    rows: list[tuple[str, str]] = [
        ("Python", machine.python),
        ("PyTorch", machine.torch or "not installed"),
        ("cores", f"{machine.cores or 'not known'} physical, {machine.allowed} allowed (read from the system)"),
        ("native kernels", machine.isa or f"not built: {BUILD_HINT}"),
        ("memory free", giga(machine.memory_free, "B", "read from the system")),
        ("memory bandwidth", giga(machine.bandwidth, "B/s", "measured")),
        ("int8 arithmetic", giga(machine.int8, "op/s", "measured")),
        ("GPU", machine.gpu or "none"),
    ]
    if machine.gpu:
        rows.append(("GPU memory free", giga(machine.gpu_memory_free, "B", "read from the system")))
        rows.append(("GPU bandwidth", giga(machine.gpu_bandwidth, "B/s", "measured")))
    for name, text in rows:
        typer.echo(f"{name:17} {text}")
    typer.echo(
        f"\nOn {machine.place.name}, {machine.place.weight_bytes} byte(s) a weight; the numbers below are derived."
    )
    table = Table(box=None, pad_edge=False)
    for column in ("model", "memory", "tokens/s at most", "file", ""):
        table.add_column(column, justify="right" if column in ("memory", "tokens/s at most") else "left")
    for e in estimates:
        decode = "not known" if e.decode is None else f"{e.decode:,.1f}"
        note = "" if e.fits else "does not fit"
        table.add_row(
            e.model.name, f"{e.memory / 1e9:.1f} GB", decode, "present" if e.model.name in present else "-", note
        )
    Console().print(table)
    typer.echo(
        f"\nmemory: weights and {CONTEXT:,} positions; tokens/s at most: bandwidth over the bytes of a pass, no draft"
    )
    for e in estimates:
        if e.model.caution:
            typer.echo(f"{e.model.name}: only if you ask for it: {e.model.caution}")
    if machine.busy:
        typer.echo(f"\n{machine.load:.1f} programs were running beside this: what was measured is less than there is.")
    typer.echo("\nRecommended:")
    for reason in advice.reasons:
        typer.echo(f"  {reason}")
    for name in dict.fromkeys(name for name in (advice.fast, advice.deep) if name and name not in present):
        typer.echo(f"  get it: vivace models pull {name}")


def _show_servers(servers: Sequence[Found]) -> None:
    """Model servers that run here already, and the lines that put vivace in front of them."""
    for server in servers:
        models = ", ".join(server.models) or "no model loaded"
        typer.echo(
            f"\n{server.kind} answers at {server.base_url} ({models}). As a backend of 'vivace serve --config':\n"
        )
        typer.echo("\n".join(f"  {line}" for line in server.config().splitlines()))


def _examine_gpu() -> tuple[str, int, float] | None:
    """Name, free bytes and bandwidth (bytes/s: a copy reads and writes) of the first CUDA device; None without one."""
    import torch

    if not torch.cuda.is_available():
        return None
    size = 1 << 30
    source = torch.empty(size, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    target.copy_(source)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    start.record()
    for _ in range(20):
        target.copy_(source)
    end.record()
    torch.cuda.synchronize()
    rate = 20 * 2 * size / (start.elapsed_time(end) / 1000)
    del source, target
    torch.cuda.empty_cache()
    return torch.cuda.get_device_name(), torch.cuda.mem_get_info()[0], rate


def _numpy_bandwidth(seconds: float) -> float:
    """Bytes/s that one thread reads: a lower bound, where the kernels' own measurement is not there."""
    import time

    import numpy as np

    data = np.ones(1 << 25, np.float64)
    best = 0.0
    end = time.perf_counter() + seconds
    while (started := time.perf_counter()) < end:
        data.max()
        best = max(best, data.nbytes / (time.perf_counter() - started))
    return best


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu_flags() -> str:
    return _from_proc("/proc/cpuinfo", lambda text: next(line for line in text.splitlines() if "flags" in line)) or ""


def _physical_cores() -> int | None:
    def count(text: str) -> int:
        cores = set()
        for block in text.split("\n\n"):
            fields = dict(line.split(":", 1) for line in block.splitlines() if ":" in line)
            named = {key.strip(): value.strip() for key, value in fields.items()}
            if "core id" in named:
                cores.add((named.get("physical id", "0"), named["core id"]))
        return len(cores)

    return _from_proc("/proc/cpuinfo", count) or None


def _memory_total() -> int | None:
    return _from_proc(
        "/proc/meminfo",
        lambda text: next(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("MemTotal:")),
    )


def _from_proc(path: str, read: Callable[[str], T]) -> T | None:
    """What ``read`` finds in a file of /proc; None on systems without it."""
    if sys.platform != "linux":
        return None
    try:
        return read(Path(path).read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError, StopIteration, IndexError):
        return None

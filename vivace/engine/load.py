"""From a configuration to a loaded model: which device, which arithmetic, how much memory."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from vivace.engine.costs import CostCurve
from vivace.engine.kv import BLOCK
from vivace.engine.messages import EngineConfig
from vivace.engine.runner import AbortFlag, Runner, Span
from vivace.engine.scheduler import Limits
from vivace.engine.spec import ModelSpec, read_spec
from vivace.engine.weights import Kind, Report, Weights, converted_folder, load_weights
from vivace.errors import VivaceError
from vivace.models.weight_source import open_model

if TYPE_CHECKING:
    from vivace.engine.spelling import Spelling


def load_runner(config: EngineConfig, limits: Limits, report: Report) -> tuple[Runner, ModelSpec]:
    """Load the model that ``config`` names. Raises :class:`VivaceError` where this machine or file cannot do it."""
    threads = config.threads or default_threads()
    path, cache = Path(config.model_path), Path(config.cache_dir)
    why_not = _why_not_native(config)
    if why_not is None:
        from vivace.engine.native_runner import NativeRunner, packer

        weights = load_weights(path, cache, "int8", report, packer())
        blocks = kv_blocks(config, weights.spec)
        return NativeRunner(weights, blocks, limits.most_rows, threads, kv_type=config.kv_type), weights.spec
    if config.kernels == "native":
        raise VivaceError(
            f"The native kernels cannot run this: {why_not}.",
            hint="They are built at installation where a C++ compiler is found, and compute int8 on the CPU.",
            code="no_kernels",
        )
    if config.kv_type == "int8":
        raise VivaceError(
            f"int8 KV memory needs the native kernels, which cannot run this: {why_not}.",
            hint="Use bf16 (VIVACE_KV_TYPE=bf16).",
            code="no_kernels",
        )
    import torch

    from vivace.engine.torch_runner import TorchRunner

    torch.set_num_threads(threads)
    device = _torch_device(config)
    weights = load_weights(path, cache, _torch_kind(config, device), report)
    blocks = kv_blocks(config, weights.spec) if device == "cpu" else _cuda_kv_blocks(config, weights)
    note = why_not if why_not == NO_EXPERTS else ""
    return TorchRunner(weights, blocks, device, note=note, pack_budget=available_bytes() // 2), weights.spec


NO_EXPERTS = "the native kernels have no sparse experts yet"


def _why_not_native(config: EngineConfig) -> str | None:
    """Why the native kernels do not run this; None where they do. Finds out without importing PyTorch."""
    from vivace.engine import native

    if config.kernels == "torch":
        return "PyTorch was asked for"
    if config.device == "cuda" or config.precision not in ("auto", "int8"):
        return "they compute int8 on the CPU"
    if config.kernels == "auto" and config.device == "auto" and has_cuda_device():
        return "there is a CUDA device"
    if not native.available():
        return "they are not built"
    return NO_EXPERTS if _has_experts(config) else None


def _has_experts(config: EngineConfig) -> bool:
    """Whether the model is sparse. Its header is not read where the kernels' weights were made of it before."""
    from vivace.engine.native_runner import packer

    path = Path(config.model_path)
    if (converted_folder(path, Path(config.cache_dir), "int8", packer()) / "index.msgpack").exists():
        return False
    with open_model(path) as source:
        return read_spec(source).experts > 0


def has_cuda_device() -> bool:
    """Whether the system has a driver for one; asked without importing PyTorch."""
    return Path("/dev/nvidiactl").exists() or Path("/dev/dxg").exists()


def _torch_device(config: EngineConfig) -> str:
    import torch

    wanted = config.device if config.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    if wanted == "cuda" and not torch.cuda.is_available():
        raise VivaceError("There is no CUDA device here.", hint="Use the CPU (VIVACE_DEVICE=cpu).", code="no_device")
    return wanted


def _torch_kind(config: EngineConfig, device: str) -> Kind:
    from vivace.engine.torch_runner import bf16_is_fast, int8_is_fast

    if config.precision == "int8" and device == "cuda":
        raise VivaceError("int8 runs on the CPU only.", hint="Use bf16 on CUDA.", code="no_device")
    if config.precision != "auto":
        return config.precision
    if device == "cuda":
        return "bf16"
    return "int8" if int8_is_fast() else "bf16" if bf16_is_fast() else "fp32"


def kv_blocks(config: EngineConfig, spec: ModelSpec) -> int:
    """Blocks of KV memory: two full windows, within a quarter of the free memory, and at least one small window."""
    if config.kv_tokens:
        return -(-config.kv_tokens // BLOCK)
    return _blocks_within(available_bytes() // 4, config, spec)


def _cuda_kv_blocks(config: EngineConfig, weights: Weights) -> int:
    """As :func:`kv_blocks`, within half of the device memory that the weights will leave."""
    import torch

    if config.kv_tokens:
        return -(-config.kv_tokens // BLOCK)
    free = torch.cuda.mem_get_info()[0] - sum(array.nbytes for array in weights.arrays.values())
    return _blocks_within(max(0, free) // 2, config, weights.spec)


def _blocks_within(memory: int, config: EngineConfig, spec: ModelSpec) -> int:
    return max(2048, min(2 * spec.window, memory // kv_bytes(config, spec))) // BLOCK


def kv_bytes(config: EngineConfig, spec: ModelSpec) -> int:
    """Bytes of KV memory that one position takes. int8 has an fp32 scale for each head of K and of V."""
    if config.kv_type == "int8":
        return spec.layers * 2 * (spec.kv_width + 4 * spec.kv_heads)
    return spec.layers * 2 * spec.kv_width * (4 if config.precision == "fp32" else 2)


def default_threads() -> int:
    """One thread per physical core that this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        twins = Path("/sys/devices/system/cpu/smt/active").read_text().strip() == "1"
    except OSError:
        twins = False
    return max(1, cores // 2 if twins else cores)


def measure_costs(runner: Runner, limits: Limits, positions: int) -> CostCurve:
    """The cost of verification passes on this machine: each width twice, the faster one counts. The KV is empty yet.

    A sequence has at most so many ``positions``.
    """
    points = {}
    for rows in (1, 16, 32, 64, limits.draft + 1):
        if rows > positions:
            break
        points[rows] = _seconds(runner, rows, 0)
    context = min(1024, positions - max(points))
    if context < BLOCK or len(points) < 3:
        return CostCurve(points)
    rows = sorted(points)[-2]
    return CostCurve(points, max(0.0, _seconds(runner, rows, context) - points[rows]) / (rows * context))


def _seconds(runner: Runner, rows: int, context: int) -> float:
    """A pass of so many rows behind so many positions, whatever those hold."""
    blocks = list(range(-(-(context + rows) // BLOCK)))
    taken = []
    for _ in range(2):
        started = time.perf_counter()
        runner.forward([Span([0] * rows, context, blocks, rows)], AbortFlag())
        taken.append(time.perf_counter() - started)
    return min(taken)


def spelling(config: EngineConfig) -> Callable[[], Spelling]:
    """The model's vocabulary; it is read when the first stop string or grammar asks for it."""

    @cache
    def read() -> Spelling:
        from vivace.engine.spelling import Spelling
        from vivace.models.vocabulary import load_vocabulary
        from vivace.settings import Settings

        return Spelling(load_vocabulary(Path(config.model_path), Settings(cache_dir=Path(config.cache_dir))))

    return read


def available_bytes() -> int:
    """Memory that can be taken without pushing others out; 4 GiB where the system does not say."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 4 << 30

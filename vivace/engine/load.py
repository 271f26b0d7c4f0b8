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
from vivace.engine.spec import ModelSpec
from vivace.engine.weights import Kind, Report, load_weights
from vivace.errors import VivaceError

if TYPE_CHECKING:
    from vivace.models.tokenizer import Tokenizer


def load_runner(config: EngineConfig, limits: Limits, report: Report) -> tuple[Runner, ModelSpec]:
    """Load the model that ``config`` names. Raises :class:`VivaceError` where this machine or file cannot do it."""
    threads = config.threads or default_threads()
    path, cache = Path(config.model_path), Path(config.cache_dir)
    if _native_fits(config):
        from vivace.engine.native_runner import NativeRunner, packer

        weights = load_weights(path, cache, "int8", report, packer())
        return NativeRunner(weights, kv_blocks(config, weights.spec), limits.most_rows, threads), weights.spec
    if config.kernels == "native":
        raise VivaceError(
            "The native kernels are not there, or not for this device and precision.",
            hint="They are built at installation where a C++ compiler is found, and compute int8 on the CPU.",
            code="no_kernels",
        )
    import torch

    from vivace.engine.torch_runner import TorchRunner

    torch.set_num_threads(threads)
    device = _torch_device(config)
    weights = load_weights(path, cache, _torch_kind(config, device), report)
    return TorchRunner(weights, kv_blocks(config, weights.spec), device), weights.spec


def _native_fits(config: EngineConfig) -> bool:
    """Whether the native kernels are built and are what ``config`` asks for. Finds out without importing PyTorch."""
    from vivace.engine import native

    if config.kernels == "torch" or config.device == "cuda" or config.precision not in ("auto", "int8"):
        return False
    if config.kernels == "auto" and config.device == "auto" and _has_cuda_device():
        return False
    return native.available()


def _has_cuda_device() -> bool:
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
    per_token = spec.layers * 2 * spec.kv_width * (4 if config.precision == "fp32" else 2)
    affordable = _available_bytes() // 4 // per_token
    return max(2048, min(2 * spec.window, affordable)) // BLOCK


def default_threads() -> int:
    """One thread per physical core that this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        twins = Path("/sys/devices/system/cpu/smt/active").read_text().strip() == "1"
    except OSError:
        twins = False
    return max(1, cores // 2 if twins else cores)


def measure_costs(runner: Runner, limits: Limits) -> CostCurve:
    """The cost of verification passes on this machine: each width twice, the faster one counts. The KV is empty yet."""
    points = {}
    for rows in (1, 16, 32, 64, limits.draft + 1):
        blocks = list(range(-(-rows // BLOCK)))
        taken = []
        for _ in range(2):
            started = time.perf_counter()
            runner.forward([Span([0] * rows, 0, blocks, rows)], AbortFlag())
            taken.append(time.perf_counter() - started)
        points[rows] = min(taken)
    return CostCurve(points)


def token_bytes(config: EngineConfig) -> Callable[[int], bytes]:
    """The bytes of a token by id; the vocabulary is read when the first stop string asks for it."""

    @cache
    def tokenizer() -> Tokenizer:
        from vivace.models.tokenizer import Tokenizer
        from vivace.settings import Settings

        return Tokenizer.load(Path(config.model_path), Settings(cache_dir=Path(config.cache_dir)))

    return lambda token: tokenizer().token_bytes(token)


def _available_bytes() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 4 << 30

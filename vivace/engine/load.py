"""From a configuration to a loaded model: which device, which arithmetic, how much memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from vivace.engine.kv import BLOCK
from vivace.engine.messages import EngineConfig
from vivace.engine.runner import Runner
from vivace.engine.spec import ModelSpec
from vivace.engine.weights import Kind, Report, load_weights
from vivace.errors import VivaceError

if TYPE_CHECKING:
    from vivace.models.tokenizer import Tokenizer


def load_runner(config: EngineConfig, report: Report) -> tuple[Runner, ModelSpec]:
    """Load the model that ``config`` names. Raises :class:`VivaceError` where this machine or file cannot do it."""
    import torch

    torch.set_num_threads(config.threads or default_threads())
    device = "cuda" if config.device == "cuda" or (config.device == "auto" and torch.cuda.is_available()) else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise VivaceError("There is no CUDA device here.", hint="Use --device cpu.", code="no_device")
    from vivace.engine.torch_runner import TorchRunner

    weights = load_weights(Path(config.model_path), Path(config.cache_dir), _kind(config, device), report)
    report("loading", 0.0)
    return TorchRunner(weights, kv_blocks(config, weights.spec), device), weights.spec


def _kind(config: EngineConfig, device: str) -> Kind:
    from vivace.engine.torch_runner import bf16_is_fast, int8_is_fast

    if config.precision != "auto":
        if config.precision == "int8" and device == "cuda":
            raise VivaceError("int8 runs on the CPU only.", hint="Use --precision bf16 on CUDA.", code="no_device")
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

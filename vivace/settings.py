"""Every setting of vivace, typed and documented here and nowhere else.

Values come from the command line, then the environment (``VIVACE_`` and the name), then the defaults below.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import platformdirs
from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """The settings object. One is made by the command and handed down."""

    model_config = SettingsConfigDict(env_prefix="VIVACE_", extra="ignore", frozen=True)

    models_dir: Path = Field(default_factory=lambda: Path(platformdirs.user_data_dir("vivace")) / "models")
    """Where verified model files are kept."""

    cache_dir: Path = Field(default_factory=lambda: Path(platformdirs.user_cache_dir("vivace")))
    """Where converted weights and partial downloads are kept. Safe to delete."""

    threads: int = 0
    """Threads of the engine; 0 takes one per physical core that this process may use."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the engine computes; ``auto`` takes a CUDA device when there is one."""

    precision: Literal["auto", "int8", "bf16", "fp32"] = "auto"
    """Weights and activations of the engine; ``auto`` takes int8 on a CPU that is fast at it, else bf16 or fp32."""

    kernels: Literal["auto", "native", "torch"] = "auto"
    """Who multiplies on the CPU: the compiled kernels where they were built, or PyTorch."""

    kv_tokens: int = 0
    """Positions of KV memory over all sequences; 0 sizes it from the model's window and the free memory."""

    state_dir: Path = Field(default_factory=lambda: Path(platformdirs.user_state_dir("vivace")))
    """Where the service keeps its database and socket, and the agent its checkpoints and conversations."""

    resident_minutes: float = 15.0
    """Minutes after which the resident service of ``vivace edit`` ends when nobody asks it; 0 goes without it."""

    database_url: str = ""
    """The service's database, such as ``postgresql://user@host/name``; empty is an SQLite file in ``state_dir``."""

    tiers_file: Path | None = None
    """Tiers, plans and prices of the service (docs/tiers.md); without it four tiers and no limits."""

    kv_type: Literal["bf16", "int8"] = "bf16"
    """What KV memory keeps; ``int8`` takes half the memory, on the native kernels only."""

"""Every setting of vivace, typed and documented here and nowhere else.

Values come from the command line, then the environment (``VIVACE_`` and the name), then the defaults below.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import platformdirs
from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from vivace.errors import UsageError

PREFIX = "VIVACE_"
ALSO = ("VIVACE_API_KEY", "VIVACE_COMMAND")
"""Variables that are no settings: the key of a server, and the mark of the commands that the agent runs."""


class Settings(BaseSettings):
    """The settings object. One is made by the command and handed down."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore", frozen=True)

    def __init__(self, **values: Any) -> None:
        """Raises :class:`UsageError` (``bad_setting``) that names the variable and what it takes."""
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise _bad_setting(error, values) from None

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

    config_dir: Path = Field(default_factory=lambda: Path(platformdirs.user_config_dir("vivace")))
    """Where your own ``mcp.toml`` and ``mcp.json`` lie: the MCP servers that the agent has in every folder."""

    keep_edits: bool = True
    """Whether edits that you accepted or refused are kept in ``state_dir``, for a later fine-tuning; they stay here."""

    resident_minutes: float = 15.0
    """Minutes after which the resident service, which all commands ask, ends when nobody does; 0 goes without it."""

    database_url: str = ""
    """The service's database, such as ``postgresql://user@host/name``; empty is an SQLite file in ``state_dir``."""

    response_days: float = Field(default=30.0, ge=0)
    """Days that the service keeps stored responses, OpenAI's 30 unless said; 0 keeps them until they are deleted."""

    tiers_file: Path | None = None
    """Tiers, plans and prices of the service (docs/tiers.md); without it four tiers and no limits."""

    kv_type: Literal["bf16", "int8"] = "bf16"
    """What KV memory keeps; ``int8`` takes half the memory, on the native kernels only."""


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """A sentence for each variable that looks like one of ours and is none: it changes nothing."""
    from difflib import get_close_matches

    known = [f"{PREFIX}{name.upper()}" for name in Settings.model_fields] + list(ALSO)
    unknown = sorted(name for name in environ if name.upper().startswith(PREFIX) and name.upper() not in known)
    told = []
    for name in unknown:
        near = get_close_matches(name.upper(), known, 1, 0.8)
        told.append(f"{name} is no setting and changes nothing." + (f" Did you mean {near[0]}?" if near else ""))
    return told


def _bad_setting(error: ValidationError, given: Mapping[str, object]) -> UsageError:
    """The first thing that is wrong, in words."""
    fault = error.errors(include_url=False)[0]
    field = str(fault["loc"][0]) if fault["loc"] else ""
    name = field if field in given else f"{PREFIX}{field.upper()}"
    match fault["type"].split("_")[0]:
        case "int":
            takes = "it takes a whole number"
        case "float":
            takes = "it takes a number"
        case "bool":
            takes = "it takes true or false"
        case "literal":
            takes = f"it is one of {fault.get('ctx', {}).get('expected', '')}".replace("'", "")
        case "path":
            takes = "it takes a path"
        case _:
            takes = f"{fault['msg'][:1].lower()}{fault['msg'][1:]}"
    return UsageError(f"{name} is {str(fault['input'])!r}; {takes}.", code="bad_setting", param=name)

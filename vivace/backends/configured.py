"""Backends out of the server's configuration file, one table ``[backends.NAME]`` each."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, field

from vivace.backends.base import Backend
from vivace.backends.config import checked
from vivace.backends.paced import Pace, PacedBackend
from vivace.backends.paced_script import Script, load_script
from vivace.backends.replicas import Replica
from vivace.backends.upstream import Api, Upstream, UpstreamBackend
from vivace.errors import UsageError, did_you_mean


class UpstreamConfig(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The keys of ``kind = "upstream"``. Times are seconds."""

    kind: Literal["upstream"]
    base_url: str | list[str]
    """The server's address as OpenAI's clients take it, ending in ``/v1``; a list for several replicas."""
    api_key_env: str = ""
    """The environment variable that holds the key; keys do not belong into files."""
    model: str = ""
    """The server's name for the model; not needed where it has only one."""
    window: int | None = None
    """Tokens, prompt and output together; not needed where the server says it."""
    api: Api = "auto"
    """Chat Completions (``chat``), ``responses``, or ``auto``: the first where the server has it."""
    developer: Literal["system", "developer"] = "system"
    """The role of developer messages; ``developer`` for OpenAI's own models."""
    dialect: str = "hermes"
    """The family in which the model writes calls that the server leaves in the text, or ``none``."""
    fim: list[str] = field(default_factory=list)
    """Three marks of the model for filling a gap in a text; not needed where the server has them itself."""
    headers: dict[str, str] = field(default_factory=dict)
    """Sent with every request."""
    options: dict[str, Any] = field(default_factory=dict)
    """Put into every request body, such as ``chat_template_kwargs``."""
    retries: int = 2
    """Further attempts when one failed before its first piece."""
    connect_timeout: float = 5.0
    """Until a connection must stand."""
    silence: float = 300.0
    """Without a byte for so long, the server counts as lost; a long prefill is silent."""
    probe_every: float = 10.0
    """Between two looks after an idle replica."""


class PacedConfig(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The keys of ``kind = "paced"``."""

    kind: Literal["paced"]
    tok_s: float = 1000.0
    """Tokens per second of one answer."""
    ttft_ms: float = 50.0
    """Milliseconds until its first token."""
    prefill_tok_s: float | None = None
    """Tokens of new prompt read per second; without it, prompts take no time."""
    reference_speed: float = 1.0
    """How many times faster tokens come that occur in the reference."""
    window: int = 131_072
    """Tokens, prompt and output together."""
    script: str = ""
    """A script, see docs/paced.md."""
    stamp: bool = False
    """Tokens say when they were due, to measure the delay of their delivery."""
    tick_ms: float = 1.0
    """Answers wake together, at most this often."""


Config = UpstreamConfig | PacedConfig
_KINDS: dict[str, type[UpstreamConfig] | type[PacedConfig]] = {"upstream": UpstreamConfig, "paced": PacedConfig}


def backend_from_config(
    table: Mapping[str, Any],
    name: str,
    *,
    folder: Path = Path(),
    environ: Mapping[str, str] = os.environ,
) -> Backend:
    """The backend of ``[backends.NAME]``. Paths in it start at ``folder``, where the file is.

    Raises :class:`UsageError` that names the key, the nearest known ones, and what is wrong with it.
    """
    where = f"backends.{name}"
    kind = table.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        hint = did_you_mean(kind, list(_KINDS)) if isinstance(kind, str) else f"Known: {', '.join(_KINDS)}."
        raise UsageError(f"{where} has kind {kind!r}.", hint=hint, param="kind")
    config: Config = checked(dict(table), _KINDS[kind], where)
    if isinstance(config, PacedConfig):
        return _paced(config, name, folder)
    return _upstream(config, name, where, environ)


def _paced(config: PacedConfig, name: str, folder: Path) -> PacedBackend:
    pace = Pace(
        tok_s=config.tok_s,
        ttft=config.ttft_ms / 1000,
        prefill_tok_s=config.prefill_tok_s,
        reference_speed=config.reference_speed,
        stamp=config.stamp,
        tick=config.tick_ms / 1000,
    )
    script = load_script(folder / config.script) if config.script else Script()
    return PacedBackend(name, script, pace, config.window)


def _upstream(config: UpstreamConfig, name: str, where: str, environ: Mapping[str, str]) -> UpstreamBackend:
    urls = [config.base_url] if isinstance(config.base_url, str) else config.base_url
    if not urls or len(set(urls)) < len(urls):
        raise UsageError(f"{where}.base_url needs one address or several different ones.", param="base_url")
    key = environ.get(config.api_key_env, "") if config.api_key_env else ""
    if config.api_key_env and not key:
        raise UsageError(
            f"{where}.api_key_env: {config.api_key_env} is not set in the environment.", param="api_key_env"
        )
    if config.fim and (len(config.fim) != 3 or not all(config.fim)):
        raise UsageError(
            f"{where}.fim needs three marks: before the text that precedes the gap, before the text that follows it, "
            "and before the answer.",
            param="fim",
        )
    for number in ("retries", "window", "connect_timeout", "silence", "probe_every"):
        value = getattr(config, number)
        if value is not None and (value < 0 or (value == 0 and number != "retries")):
            raise UsageError(f"{where}.{number} is {value}; it takes a number above 0.", param=number)
    return UpstreamBackend(
        Upstream(
            name=name,
            replicas=tuple(Replica(url, key) for url in urls),
            model=config.model,
            api=config.api,
            window=config.window,
            developer=config.developer,
            dialect=config.dialect,
            fim=tuple(config.fim),
            headers=config.headers,
            options=config.options,
            retries=config.retries,
            connect_timeout=config.connect_timeout,
            silence=config.silence,
            probe_every=config.probe_every,
        )
    )

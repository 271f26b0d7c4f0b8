"""What ``vivace serve`` stands in front of: the gateway for the backends that the command line and its file name."""

from __future__ import annotations

import tomllib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from vivace.backends.base import Backend
from vivace.backends.config import checked
from vivace.composing import CatalogueBackend, compose_gateway
from vivace.errors import UsageError, VivaceError, did_you_mean
from vivace.models.catalogue import find_model
from vivace.models.progress import pull_shown
from vivace.server.command import Choice, Composed
from vivace.service.plans import Plan
from vivace.settings import Settings

DEFAULT_MODEL = "coder-0.5b"
"""What is served where nothing is said."""


class ServeFile(Struct, frozen=True, forbid_unknown_fields=True):
    """The file of ``vivace serve --config``. Paths in it start where it lies."""

    backends: dict[str, dict[str, Any]] = field(default_factory=dict)
    """A table for each backend, see docs/backends.md."""
    models: dict[str, str] = field(default_factory=dict)
    """Names under which models are offered -> the backend that answers, where they differ."""
    capacity: dict[str, int] = field(default_factory=dict)
    """How many responses a backend runs at a time; more of them wait in the fair queue. 64 where nothing is said."""
    local: list[str] = field(default_factory=list)
    """Models of the catalogue that the embedded engine serves."""
    tiers: str = ""
    """The file of tiers, plans and prices, see docs/tiers.md."""
    database: str = ""
    """The database's URL."""
    operators: list[str] = field(default_factory=list)
    """Principals who see everybody's use in the console."""


def read_serve_file(path: Path) -> ServeFile:
    """Raises :class:`UsageError` that names what is wrong, and where."""
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"Cannot read {path}: {error.strerror}", param="config") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}", param="config") from error
    return checked(content, ServeFile, str(path))


@asynccontextmanager
async def compose_serve(choice: Choice, settings: Settings) -> AsyncIterator[Composed]:
    """The gateway of a server. Models of the catalogue that it serves are fetched first, with a line that says so."""
    file = read_serve_file(choice.config) if choice.config is not None else ServeFile()
    folder = choice.config.parent if choice.config is not None else Path()
    changed: dict[str, Any] = {}
    if choice.database or file.database:
        changed["database_url"] = choice.database or file.database
    if file.tiers:
        changed["tiers_file"] = folder / file.tiers
    settings = settings.model_copy(update=changed)
    tables = _tables(choice, file)
    local = _local(choice, file, tables)
    backends: dict[str, Backend] = {name: _catalogue_backend(name, settings) for name in local}
    gateway = compose_gateway(
        settings,
        backends=backends,
        tables=tables,
        folder=folder,
        models=file.models,
        catalogue=False,
        capacity=file.capacity,
    )
    gateway.operators = frozenset(file.operators)
    await gateway.begin()
    try:
        authenticate = gateway.accounts.authenticate if gateway.accounts.needs_key() else None
        yield Composed(gateway, authenticate, _refused(gateway.tiers.default_plan, gateway.backends.listed()))
    finally:
        await gateway.close()


def _refused(plan: Plan, models: Sequence[str]) -> str:
    """What the plan of those who have no key keeps from them, in words; empty for nothing."""
    refused = []
    for model in models:
        try:
            plan.check_model(model)
        except VivaceError:
            refused.append(model)
    allowed = ", ".join(plan.models) or "no model"
    return f"The plan {plan.id!r} does not include {', '.join(refused)}: it allows {allowed}." if refused else ""


def _tables(choice: Choice, file: ServeFile) -> dict[str, dict[str, Any]]:
    """The backend tables that are served: the file's, or what ``--backend`` names out of it and makes up."""
    if not choice.backends:
        return file.backends
    tables: dict[str, dict[str, Any]] = {}
    for number, name in enumerate(choice.backends):
        if name == "paced":
            table: dict[str, Any] = {"kind": "paced", **file.backends.get("paced", {})}
            given = {"tok_s": choice.tok_s, "ttft_ms": choice.ttft_ms}
            table |= {key: value for key, value in given.items() if value is not None}
            if choice.script is not None:
                table["script"] = str(choice.script.absolute())
            tables[name] = table
        elif name.startswith(("http://", "https://")):
            key = choice.model if choice.model and number == 0 else f"upstream-{number}" if number else "upstream"
            tables[key] = {"kind": "upstream", "base_url": name}
        elif name in file.backends:
            tables[name] = file.backends[name]
        elif name != "local":
            known = ["paced", "local", *file.backends]
            raise UsageError(f"There is no backend {name!r}", hint=did_you_mean(name, known), param="backend")
    if "paced" not in tables and (choice.script or choice.tok_s or choice.ttft_ms):
        raise UsageError("--script, --tok-s and --ttft-ms are for --backend paced", param="backend")
    return tables


def _local(choice: Choice, file: ServeFile, tables: dict[str, dict[str, Any]]) -> list[str]:
    """The models of the catalogue that are served."""
    if "local" not in choice.backends and (choice.backends or file.backends):
        return file.local if not choice.backends else []
    names = list(file.local)
    if choice.model and choice.model not in (*tables, *file.models, *names):
        names.append(choice.model)
    return names or [DEFAULT_MODEL]


def _catalogue_backend(name: str, settings: Settings) -> Backend:
    return CatalogueBackend(find_model(name, settings), settings, pull_shown)

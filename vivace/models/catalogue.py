"""Which models there are: the shipped catalogue and what the user added."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast

from vivace.edit_dialect import edit_dialect
from vivace.errors import UsageError, VivaceError, did_you_mean
from vivace.settings import Settings

Lane = Literal["fast", "deep", ""]

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,79}")
"""A model's name is also its file's name, so nothing in it may mean another folder."""


@dataclass(frozen=True)
class HubSource:
    """A file on the model hub; ``revision`` is a commit, or a branch where no commit is known."""

    repo: str
    revision: str
    file: str


@dataclass(frozen=True)
class Mirror:
    """Wheels on the package index whose members that match ``member``, joined in this order, are the file."""

    packages: tuple[str, ...]
    """Requirements with exact versions: ``name==version``."""

    member: str
    """A glob that matches exactly one name in each wheel."""


@dataclass(frozen=True)
class ModelInfo:
    """What is known of a model before its file is there."""

    name: str
    architecture: str
    parameters: int
    context_window: int
    licence: str
    bytes: int = 0
    """Size of the file; 0 where it is not known before it was pulled."""

    sha256: str = ""
    """Empty where it is not known: then the hub's own record says it when the file is pulled, and it is kept."""

    dialect: str = ""
    """How the model writes edits best; where nothing is said, what its family and size tell."""

    lane: Lane = ""
    """The lane that uses it where the user names none."""

    source: HubSource | None = None
    mirror: Mirror | None = None
    path: str = ""
    """Where a file or folder lies that the user added from this machine; empty for files that vivace keeps itself."""

    pass_parameters: int = 0
    """Weights that a pass of one row reads; 0 where these are all of them."""

    kv_values: int = 0
    """Numbers that the keys and values of one position take over all layers; 0 where it is not known."""

    caution: str = ""
    """Why it is not recommended without being asked for."""

    def __post_init__(self) -> None:
        if not self.dialect:
            object.__setattr__(self, "dialect", edit_dialect(self.name, self.parameters))


def load_catalogue(settings: Settings) -> dict[str, ModelInfo]:
    """All models by name: shipped ones first, then those in ``models_dir/added.toml``."""
    return {**shipped(), **load_added(settings)}


@cache
def shipped() -> dict[str, ModelInfo]:
    """The models of ``catalogue.toml``."""
    return _read(Path(__file__).with_name("catalogue.toml"))


def added_path(settings: Settings) -> Path:
    """Where the user's own entries are kept."""
    return settings.models_dir / "added.toml"


def load_added(settings: Settings) -> dict[str, ModelInfo]:
    """The user's own models; none where nothing was added."""
    path = added_path(settings)
    return _read(path) if path.exists() else {}


def find_model(name: str, settings: Settings) -> ModelInfo:
    """The model of that name; raises :class:`UsageError` (``model_not_found``) with the nearest known names."""
    known = load_catalogue(settings)
    if name not in known:
        raise UsageError(
            f"There is no model {name!r}", hint=did_you_mean(name, list(known)), code="model_not_found", param="model"
        )
    return known[name]


def default_model(lane: Lane) -> ModelInfo:
    """The shipped model of the fast or the deep lane."""
    for info in shipped().values():
        if lane and info.lane == lane:
            return info
    raise UsageError(f"There is no lane {lane!r}", hint="Known: fast, deep.", param="lane")


def _read(path: Path) -> dict[str, ModelInfo]:
    import tomllib

    import msgspec

    try:
        models = msgspec.convert(tomllib.loads(path.read_text("utf-8")).get("model", []), list[ModelInfo])
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise VivaceError(
            f"Cannot use the catalogue {path}: {error}", hint="Correct or delete it.", code="catalogue_invalid"
        ) from error
    for info in models:
        # Without a checksum of its own, only the hub's record can tell the file from another one.
        hub_only = info.source is not None and info.mirror is None and not info.path and info.bytes == 0
        known = re.fullmatch(r"[0-9a-f]{64}", info.sha256) or (info.sha256 == "" and hub_only)
        if not NAME.fullmatch(info.name) or info.bytes < 0 or not known:
            raise VivaceError(
                f"Cannot use the catalogue {path}: the entry {info.name!r} has an unusable name, size or checksum",
                hint="Correct or delete it.",
                code="catalogue_invalid",
            )
    return {info.name: info for info in models}


def to_toml(models: dict[str, ModelInfo]) -> str:
    """The entries as TOML that :func:`load_added` reads back."""
    import msgspec

    lines: list[str] = []
    for info in models.values():
        entry = cast(dict[str, Any], msgspec.to_builtins(info))
        tables = {key: value for key, value in entry.items() if isinstance(value, dict)}
        lines.append("[[model]]")
        lines += [f"{key} = {_toml(value)}" for key, value in entry.items() if key not in tables and value is not None]
        for table, content in tables.items():
            lines.append(f"[model.{table}]")
            lines += [f"{key} = {_toml(value)}" for key, value in content.items()]
        lines.append("")
    return "\n".join(lines)


def _toml(value: str | int | list[str] | tuple[str, ...]) -> str:
    if isinstance(value, int):
        return str(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    escaped = "".join(f"\\u{ord(char):04x}" if char < " " or char in '"\\\x7f' else char for char in value)
    return f'"{escaped}"'

"""A model by whatever names it: a shipped name, a ``config.json``, a folder with one, a GGUF file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from vivace.errors import UsageError
from vivace.plan.library import Library
from vivace.plan.model import Model

Catalogue = Callable[[str], Path | None]
"""Where a model of the user's own catalogue lies; None where there is none of that name or its file is not here."""


def find_model(library: Library, name: str, catalogue: Catalogue | None = None) -> Model:
    """Files first, then shipped names, then the catalogue. Raises :class:`UsageError` with the nearest names."""
    path = Path(name).expanduser()
    if path.suffix in (".json", ".gguf") or (path.is_dir() and (path / "config.json").is_file()):
        return read_model(path)
    try:
        return library.model(name)
    except UsageError:
        place = catalogue(name) if catalogue else None
        if place is None:
            raise
        return read_model(place)


def read_model(path: Path) -> Model:
    if not path.exists():
        raise UsageError(f"There is no file {path}.", code="model_not_found", param="model")
    if path.suffix == ".gguf":
        from vivace.plan.gguf_shape import model_from_gguf

        return model_from_gguf(path)
    from vivace.plan.config_json import model_from_config

    return model_from_config(path / "config.json" if path.is_dir() else path)

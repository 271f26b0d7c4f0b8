"""The data files: found by name, read, checked. A user's own files stand beside the shipped ones and go first."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from vivace.errors import UsageError, VivaceError, did_you_mean
from vivace.plan.device import Calibration, Device, Format, Price, Source
from vivace.plan.evidence import Evidence, Figure
from vivace.plan.model import Model

DATA = Path(__file__).parent / "data"
THIS_MACHINE = "this-machine"
"""What 'vivace plan calibrate' calls the machine that it measured."""
T = TypeVar("T", Device, Model, Calibration, Price)

FOLDERS: dict[type, str] = {Device: "devices", Model: "models", Calibration: "calibrations", Price: "prices"}
WORDS: dict[type, str] = {Device: "device", Model: "model", Calibration: "calibration", Price: "tier"}


class Library:
    """Reads lazily: a plan opens the few files that it needs."""

    def __init__(self, folders: Sequence[Path] = (DATA,)) -> None:
        """``folders``: each with ``devices``, ``models``, ``calibrations`` and ``prices`` in it; the first wins."""
        self._folders = [folder for folder in folders if folder.is_dir()]
        self._read: dict[Path, Any] = {}

    @classmethod
    def for_user(cls, own: Path | None = None) -> Library:
        """The shipped files and those in ``own``, where ``vivace plan calibrate`` writes."""
        return cls([*([own] if own else []), DATA])

    @cached_property
    def formats(self) -> dict[str, Format]:
        found: dict[str, Format] = _convert(_toml(DATA / "formats.toml"), dict[str, Format], DATA / "formats.toml")
        return found

    @cached_property
    def sources(self) -> dict[str, Source]:
        found: dict[str, Source] = _convert(_toml(DATA / "sources.toml"), dict[str, Source], DATA / "sources.toml")
        return found

    def device(self, name: str) -> Device:
        try:
            return self._find(Device, name)
        except UsageError as error:
            if name != THIS_MACHINE:
                raise
            raise UsageError(
                "This machine is not calibrated yet.",
                hint="Run 'vivace plan calibrate': it measures this machine and makes it a device.",
                code="not_calibrated",
                param=error.param,
            ) from None

    def model(self, name: str) -> Model:
        return self._find(Model, name)

    def calibration(self, name: str) -> Calibration:
        return self._find(Calibration, name)

    def price(self, name: str) -> Price:
        return self._find(Price, name)

    def format(self, name: str) -> Format:
        try:
            return self.formats[name]
        except KeyError:
            raise UsageError(
                f"There is no number format {name!r}.", hint=did_you_mean(name, list(self.formats)), param="weights"
            ) from None

    def names(self, kind: type) -> list[str]:
        return sorted({path.stem for path in self._paths(kind)})

    def every(self, kind: type[T]) -> list[T]:
        return [self._find(kind, name) for name in self.names(kind)]

    def _paths(self, kind: type) -> Iterator[Path]:
        for folder in self._folders:
            yield from sorted((folder / FOLDERS[kind]).glob("*.toml"))

    def _find(self, kind: type[T], name: str) -> T:
        wanted = name.strip().lower()
        for folder in self._folders:
            path = folder / FOLDERS[kind] / f"{wanted}.toml"
            if path.name == f"{wanted}.toml" and path.parent == folder / FOLDERS[kind] and path.is_file():
                return self._load(kind, path)
        return self._by_alias(kind, wanted, name)

    def _by_alias(self, kind: type[T], wanted: str, name: str) -> T:
        known: list[str] = []
        for path in self._paths(kind):
            known.append(path.stem)
            if f'"{wanted}"' in path.read_text(encoding="utf-8"):
                entry = self._load(kind, path)
                if wanted in [alias.lower() for alias in getattr(entry, "aliases", [])]:
                    return entry
        word = WORDS[kind]
        raise UsageError(
            f"There is no {word} {name!r}.", hint=did_you_mean(wanted, known), code=f"{word}_not_found", param=word
        )

    def _load(self, kind: type[T], path: Path) -> T:
        if path not in self._read:
            entry = _convert(_toml(path), kind, path)
            if entry.name != path.stem:
                raise VivaceError(f"{path}: the file's name and its entry's name {entry.name!r} differ.", code="data")
            self._read[path] = entry
        found: T = self._read[path]
        return found


def figures(entry: object, place: str = "") -> Iterator[tuple[str, Figure | Evidence]]:
    """Every figure inside an entry, with its place in it."""
    if isinstance(entry, Figure | Evidence):
        yield place, entry
    elif isinstance(entry, dict):
        for key, value in entry.items():
            yield from figures(value, f"{place}.{key}" if place else str(key))
    elif isinstance(entry, msgspec.Struct):
        for field in entry.__struct_fields__:
            yield from figures(getattr(entry, field), f"{place}.{field}" if place else field)


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise VivaceError(f"{path} cannot be read: {error}", code="data") from None


def _convert(raw: object, kind: Any, path: Path) -> Any:
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        hint = "Every figure needs value, grade, source and date."
        raise VivaceError(f"{path}: {error}", hint=hint, code="data") from None

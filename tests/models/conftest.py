"""Fixtures of this room: folders of the test's own, and sources without a network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_sources import Hub, Index, serve_hub

from vivace.settings import Settings


@pytest.fixture
def here(tmp_path: Path) -> Settings:
    """Settings whose folders are the test's own."""
    return Settings(models_dir=tmp_path / "models", cache_dir=tmp_path / "cache")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    made = Index(tmp_path / "index")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(made.folder))
    return made


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with serve_hub() as state:
        _point_hub_at(state.address, tmp_path, monkeypatch)
        yield state


@pytest.fixture
def no_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub that nobody answers for."""
    _point_hub_at("http://127.0.0.1:9", tmp_path, monkeypatch)


def _point_hub_at(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub-cache"))

"""Fixtures for every room."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings as hypothesis_settings

# What a test takes depends on what else the machine does; it is no property.
hypothesis_settings.register_profile("vivace", deadline=None)
hypothesis_settings.load_profile("vivace")


@pytest.fixture(scope="session")
def model_file() -> Callable[[str], Path]:
    """Gives the verified file of a catalogue model, pulled into the user's own models folder where it is not there yet.

    Tests that use it carry the marker ``model``; they skip with the reason when no source answers.
    """
    from vivace.errors import VivaceError
    from vivace.models.catalogue import find_model
    from vivace.models.pull import pull
    from vivace.settings import Settings

    @cache
    def get(name: str) -> Path:
        settings = Settings()
        try:
            return pull(find_model(name, settings), settings)
        except VivaceError as error:
            if error.code not in ("model_unavailable", "disk_full"):
                raise
            pytest.skip(error.message)

    return get

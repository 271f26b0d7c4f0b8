"""What every test of the planner starts from."""

from __future__ import annotations

import pytest

from vivace.plan.library import Library


@pytest.fixture(scope="session")
def library() -> Library:
    """The shipped files alone, whatever the user of this machine has beside them."""
    return Library()

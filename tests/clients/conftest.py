"""What the tests of real clients share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.clients.harness import Server


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Starts a server with these rules; it is ended after the test, and must end well."""
    with ExitStack() as stack:

        def start(*rules: dict[str, Any], **settings: Any) -> Server:
            return stack.enter_context(Server(tmp_path / "server", rules, **settings))

        yield start


@pytest.fixture(params=["ws", "http"])
def way(request: pytest.FixtureRequest) -> str:
    """The transport: WebSocket, or HTTP with server-sent events."""
    found: str = request.param
    return found

"""Which models a server has: as it lists them, and what is no list."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.client.serving import MODEL, serving
from vivace.client.http import Answer
from vivace.client.models import models_of
from vivace.client.service import RemoteService
from vivace.errors import VivaceError


def test_the_names_are_those_of_the_server(tmp_path: Path) -> None:
    async def main(address: str) -> list[str]:
        service = RemoteService(address)
        try:
            return await models_of(service)
        finally:
            await service.close()

    with serving(tmp_path) as server:
        assert asyncio.run(main(server.address)) == [MODEL]


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (200, b'{"data":[{"id":"b","x":1},{"id":"a"}],"models":[]}', ""),
        (200, b'{"data":[]}', "no_models"),
        (200, b"<html>", "service_error"),
        (200, b'{"data":[{}]}', "service_error"),
        (401, b'{"error":{"message":"Who are you?","code":"invalid_api_key"}}', "invalid_api_key"),
        (502, b"", "service_error"),
    ],
)
def test_answers_of_other_servers(monkeypatch: pytest.MonkeyPatch, status: int, body: bytes, code: str) -> None:
    service = RemoteService("http://127.0.0.1:9")

    async def call(*_: Any) -> Answer:
        return Answer(status, body)

    monkeypatch.setattr(service.http, "call", call)
    if not code:
        assert asyncio.run(models_of(service)) == ["b", "a"]  # in the server's order
        return
    with pytest.raises(VivaceError) as told:
        asyncio.run(models_of(service))
    assert told.value.code == code

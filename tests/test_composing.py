"""The composed gateway: backends from files and from the catalogue, and what outlives the process."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from vivace.composing import CatalogueBackend, compose_gateway
from vivace.errors import UsageError, VivaceError
from vivace.models.catalogue import ModelInfo
from vivace.protocol.contracts import Principal
from vivace.protocol.requests import ResponseRequest
from vivace.settings import Settings

ME = Principal()
FAST = {"kind": "paced", "tok_s": 1e6, "ttft_ms": 0}


@pytest.fixture
def place(tmp_path: Path) -> Settings:
    return Settings(state_dir=tmp_path / "state", models_dir=tmp_path / "models", cache_dir=tmp_path / "cache")


def test_responses_and_use_outlive_the_process(place: Settings) -> None:
    async def first() -> str:
        gateway = compose_gateway(place, tables={"quick": FAST}, models={"shown": "quick"})
        await gateway.begin()
        turn = await gateway.respond(ResponseRequest(model="shown", input="hello"), ME)
        assert (await turn.wait()).status == "completed"
        await gateway.close()
        return turn.response_id

    async def second(id: str) -> None:
        gateway = compose_gateway(place, tables={"quick": FAST}, models={"shown": "quick"})
        await gateway.begin()
        assert (await gateway.retrieve(id, ME)).status == "completed"
        follow = ResponseRequest(model="shown", input="more", previous_response_id=id)
        assert (await (await gateway.respond(follow, ME)).wait()).status == "completed"
        assert gateway.kept is not None
        await gateway.kept.ledger.flush()
        assert len(await gateway.kept.ledger.latest()) == 2
        await gateway.close()

    asyncio.run(second(asyncio.run(first())))


def test_without_a_database_nothing_is_written(place: Settings) -> None:
    async def main() -> None:
        gateway = compose_gateway(place, tables={"quick": FAST}, database=False)
        await gateway.begin()
        assert (await (await gateway.respond(ResponseRequest(model="quick", input="a"), ME)).wait()).status
        assert not gateway.accounts.needs_key()
        await gateway.close()

    asyncio.run(main())
    assert [path.name for path in place.state_dir.iterdir()] == ["sealing.key"]


def test_keys_of_the_database_are_asked_for(place: Settings) -> None:
    async def main() -> None:
        gateway = compose_gateway(place, catalogue=False)
        assert gateway.kept is not None and not gateway.accounts.needs_key()
        secret, record = gateway.kept.keys.create("ann")
        assert gateway.accounts.needs_key()
        principal = await gateway.accounts.authenticate(secret)
        assert principal is not None and principal.id == record.principal
        await gateway.close()

    asyncio.run(main())


def test_a_table_that_is_wrong_is_said(place: Settings) -> None:
    with pytest.raises(UsageError, match=r"backends\.x"):
        compose_gateway(place, tables={"x": {"kind": "nonsense"}}, database=False)


def test_a_catalogue_model_is_pulled_when_it_is_asked_for(place: Settings) -> None:
    pulled: list[str] = []

    def pull(info: ModelInfo, settings: Settings) -> None:
        pulled.append(info.name)

    async def main() -> None:
        gateway = compose_gateway(place, pull=pull, database=False)
        assert gateway.backends.names() == []
        for _ in range(2):
            with pytest.raises(VivaceError, match=r"coder-0\.5b is not pulled") as caught:
                await gateway.open("coder-0.5b")
            assert caught.value.code == "model_not_pulled"
        (backend,) = gateway.backends.opened().values()
        assert isinstance(backend, CatalogueBackend) and not backend.ready
        with pytest.raises(VivaceError, match="does not exist here"):
            await gateway.open("no-such-model")
        await gateway.close()
        other = compose_gateway(place, catalogue=False, database=False)
        with pytest.raises(VivaceError, match="does not exist here"):
            await other.open("coder-0.5b")
        await other.close()

    asyncio.run(main())
    assert pulled == ["coder-0.5b"] * 2

"""Stored responses: for their principal only, until they expire, their items in pages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import msgspec
import pytest
from sqlalchemy import Engine

from tests.service.databases import engine, postgres, url
from vivace.errors import UsageError
from vivace.service.response_store import ResponseStore, StoredResponse
from vivace.service.writer import Writer

__all__ = ["engine", "postgres", "url"]

NOW = 1_800_000_000.0


@pytest.fixture
def writer(engine: Engine) -> Iterator[Writer]:
    writer = Writer(engine)
    yield writer
    assert writer.close()


def stored(id: str = "resp_1", principal: str = "ann", **more: object) -> StoredResponse:
    items = [{"id": f"msg_{number}", "type": "message", "text": "\u0000ä€"} for number in range(5)]
    values: dict[str, object] = {
        "id": id,
        "principal": principal,
        "created": NOW,
        "request": b'{"model":"m"}',
        "response": b'{"id":"resp_1"}',
        "items": msgspec.json.encode(items),
        "previous": "resp_0",
    }
    return StoredResponse(**{**values, **more})  # type: ignore[arg-type]


def test_a_response_is_kept_for_its_principal_until_it_expires(engine: Engine, writer: Writer) -> None:
    async def main() -> None:
        store = ResponseStore(engine, writer)
        await store.put(stored(expires=NOW + 60)).wait()
        assert await store.get("resp_1", "ann", NOW) == stored(expires=NOW + 60)
        assert await store.get("resp_1", "bob", NOW) is None
        assert await store.get("resp_2", "ann", NOW) is None
        assert await store.get("resp_1", "ann", NOW + 60) is None
        await store.put(stored(response=b"{}")).wait()
        again = await store.get("resp_1", "ann", NOW + 60)
        assert again is not None
        assert again.response == b"{}"
        # Somebody else's id is neither read nor replaced.
        await store.put(stored(principal="bob", response=b"stolen")).wait()
        assert (await store.get("resp_1", "ann", NOW)) == again
        assert not await store.delete("resp_1", "bob")
        assert await store.delete("resp_1", "ann")
        assert not await store.delete("resp_1", "ann")
        assert await store.get("resp_1", "ann", NOW) is None
        await store.put(stored("resp_a", expires=NOW)).wait()
        await store.put(stored("resp_b", expires=NOW + 1)).wait()
        await store.put(stored("resp_c")).wait()
        assert await store.purge(NOW) == 1
        assert await store.get("resp_b", "ann", NOW) is not None

    asyncio.run(main())


def test_input_items_come_in_pages(engine: Engine, writer: Writer) -> None:
    async def main() -> None:
        store = ResponseStore(engine, writer)
        await store.put(stored()).wait()

        async def page(**more: object) -> tuple[list[str], str | None, str | None, bool]:
            found = await store.input_items("resp_1", "ann", NOW, **more)  # type: ignore[arg-type]
            assert found is not None
            ids = [item["id"] for item in msgspec.json.decode(msgspec.json.encode(found))["data"]]
            return ids, found.first_id, found.last_id, found.has_more

        assert await page() == (["msg_4", "msg_3", "msg_2", "msg_1", "msg_0"], "msg_4", "msg_0", False)
        assert await page(order="asc", limit=2) == (["msg_0", "msg_1"], "msg_0", "msg_1", True)
        assert await page(order="asc", limit=2, after="msg_1") == (["msg_2", "msg_3"], "msg_2", "msg_3", True)
        assert await page(order="asc", limit=2, after="msg_3") == (["msg_4"], "msg_4", "msg_4", False)
        assert await page(order="asc", after="msg_4") == ([], None, None, False)
        assert await store.input_items("resp_1", "bob", NOW) is None
        for wrong, param in (({"limit": 0}, "limit"), ({"limit": 101}, "limit"), ({"after": "msg_9"}, "after")):
            with pytest.raises(UsageError) as error:
                await page(**wrong)
            assert error.value.param == param

    asyncio.run(main())

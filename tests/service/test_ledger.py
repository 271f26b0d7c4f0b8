"""The ledger on real databases: what is acknowledged outlives kill -9 and outages, and is counted once."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import Engine, select

from tests.service.databases import PostgresServer, engine, postgres, url
from vivace.errors import VivaceError
from vivace.protocol.items import InputTokensDetails, OutputTokensDetails, Usage
from vivace.service import database as db
from vivace.service.ledger import Entry, Ledger, grant_credits
from vivace.service.meters import Account
from vivace.service.writer import BATCH, Writer

__all__ = ["engine", "postgres", "url"]

NOW = 1_800_000_000.0


def entry(number: int, **more: object) -> Entry:
    values: dict[str, object] = {
        "response": f"resp_{number}",
        "principal": "ann",
        "key": "vv_abcdefgh",
        "model": "coder-0.5b",
        "family": "coder",
        "tier": "default",
        "backend": "local",
        "status": "completed",
        "usage": Usage(
            input_tokens=100,
            input_tokens_details=InputTokensDetails(cached_tokens=40),
            output_tokens=20,
            output_tokens_details=OutputTokensDetails(reasoning_tokens=5, accepted_prediction_tokens=12),
        ),
        "created": NOW,
        "ended": NOW + 2.5,
    }
    return Entry(**{**values, **more})  # type: ignore[arg-type]


@pytest.fixture
def writer(engine: Engine) -> Iterator[Writer]:
    writer = Writer(engine)
    yield writer
    assert writer.close()


@pytest.fixture
def ledger(engine: Engine, writer: Writer) -> Ledger:
    return Ledger(engine, writer)


def test_what_is_recorded_can_be_summed_by_anything(ledger: Ledger) -> None:
    async def main() -> None:
        ledger.record(entry(1, cost=7))
        ledger.record(entry(2, cost=3, ttft_ms=12.4, queue_ms=3.6))
        ledger.record(entry(3, model="big", family="big", ended=NOW + 86400))
        ledger.record(entry(4, principal="bob"))
        await ledger.flush()
        ann, next_day, bob = await ledger.sums()
        assert ann.group == ("ann", "2027-01-15", "coder-0.5b")
        assert msgspec.structs.astuple(ann)[1:] == (2, 200, 80, 40, 10, 24, 10)
        assert next_day.group == ("ann", "2027-01-16", "big")
        assert bob.group[0] == "bob"
        assert [s.requests for s in await ledger.sums(["tier"])] == [4]
        assert [s.group for s in await ledger.sums(["model"], principal="ann", since="2027-01-16")] == [("big",)]
        assert [s.group for s in await ledger.sums(["principal"], until="2027-01-15")] == [("ann",), ("bob",)]
        newest = await ledger.latest(3, principal="ann")
        assert [row["response"] for row in newest] == ["resp_3", "resp_2", "resp_1"]
        assert (newest[1]["ttft_ms"], newest[1]["queue_ms"], newest[2]["ttft_ms"]) == (12, 4, None)

    asyncio.run(main())


def test_a_response_is_recorded_and_paid_once(ledger: Ledger, engine: Engine) -> None:
    async def main() -> None:
        assert grant_credits(engine, "ann", 1000) == Account(balance=1000)
        assert grant_credits(engine, "ann", opted_in=True) == Account(balance=1000, opted_in=True)
        acks = [ledger.record(entry(1, cost=300, credits=True)) for _ in range(3)]
        acks.append(ledger.record(entry(2, cost=5)))
        for ack in acks:
            await ack.wait(10)
        assert [s.requests for s in await ledger.sums(["principal"])] == [2]
        assert (await ledger.accounts())["ann"] == Account(balance=700, opted_in=True)

    asyncio.run(main())


def test_one_bad_row_does_not_spoil_the_others(ledger: Ledger) -> None:
    async def main() -> None:
        good = [ledger.record(entry(number)) for number in range(20)]
        bad = ledger.record(entry(99, cost=2**70))
        good += [ledger.record(entry(number)) for number in range(20, 40)]
        for ack in good:
            await ack.wait(10)
        with pytest.raises(VivaceError) as error:
            await bad.wait(10)
        assert error.value.code == "database_refused"
        assert [s.requests for s in await ledger.sums(["principal"])] == [40]

    asyncio.run(main())


def test_recording_does_not_wait_for_a_locked_database(tmp_path: Path) -> None:
    async def main() -> None:
        engine = db.open_database(f"sqlite:///{tmp_path}/service.db")
        writer = Writer(engine)
        ledger = Ledger(engine, writer)
        locked = engine.connect()
        locked.exec_driver_sql("UPDATE credits SET balance = 0")  # takes the write lock
        begun = time.perf_counter()
        acks = [ledger.record(entry(number)) for number in range(1000)]
        assert time.perf_counter() - begun < 1
        with pytest.raises(VivaceError) as error:
            await acks[0].wait(0.05)
        assert error.value.code == "database_unavailable"
        locked.rollback()
        locked.close()
        await ledger.flush(10)
        assert [s.requests for s in await ledger.sums(["principal"])] == [1000]
        assert writer.close()
        with pytest.raises(VivaceError, match="takes no more"):
            ledger.record(entry(1001))
        engine.dispose()

    asyncio.run(main())


def test_closing_writes_what_waits(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    engine = db.open_database(f"sqlite:///{tmp_path}/service.db")
    writer = Writer(engine)
    ledger = Ledger(engine, writer)
    for number in range(5 * BATCH):
        ledger.record(entry(number))
    assert writer.close()
    with engine.connect() as connection:
        assert len(connection.execute(select(db.usage.c.id)).all()) == 5 * BATCH
    engine.dispose()
    assert not any(thread.name == "vivace-writer" for thread in set(threading.enumerate()) - before)


CHILD = """
import asyncio, sys
sys.path.insert(0, {root!r})
from tests.service.test_ledger import entry
from vivace.service.database import open_database
from vivace.service.ledger import Ledger
from vivace.service.response_store import ResponseStore, StoredResponse
from vivace.service.writer import Writer

async def main():
    engine = open_database({url!r})
    writer = Writer(engine)
    ledger, store = Ledger(engine, writer), ResponseStore(engine, writer)

    async def lane(first):
        for number in range(first, 10**9, 8):
            stored = StoredResponse(
                id=f"resp_{{number}}", principal="ann", created=1.0, request=b"{{}}", response=b"{{}}", items=b"[]"
            )
            await ledger.record(entry(number), store.row(stored)).wait()
            print(number, flush=True)

    await asyncio.gather(*(lane(first) for first in range(8)))

asyncio.run(main())
"""


def test_nothing_that_was_acknowledged_is_lost_by_kill_9(engine: Engine, url: str) -> None:
    root = str(Path(__file__).parents[2])
    code = CHILD.format(root=root, url=url)
    for round_ in range(3):
        with engine.begin() as connection:
            connection.execute(db.usage.delete())
            connection.execute(db.responses.delete())
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        told = [child.stdout.readline() for _ in range(40 + 37 * round_)]
        os.kill(child.pid, signal.SIGKILL)
        told += child.stdout.readlines()
        child.wait()
        child.stdout.close()
        acknowledged = {f"resp_{int(line)}" for line in told if line.endswith("\n")}
        assert len(acknowledged) >= 40
        with engine.connect() as connection:
            recorded = set(connection.execute(select(db.usage.c.response)).scalars())
            stored = set(connection.execute(select(db.responses.c.id)).scalars())
        assert acknowledged <= recorded
        # A response and its usage are one commit.
        assert recorded == stored


@pytest.mark.postgres
def test_a_server_that_goes_away_is_waited_for(postgres: PostgresServer) -> None:
    async def main() -> None:
        engine = db.open_database(postgres.new_database())
        writer = Writer(engine)
        ledger = Ledger(engine, writer)
        await ledger.record(entry(1)).wait(10)
        postgres.stop()
        try:
            acks = [ledger.record(entry(number)) for number in range(2, 300)]
            with pytest.raises(VivaceError) as error:
                await acks[0].wait(0.3)
            assert error.value.code == "database_unavailable"
        finally:
            postgres.start()
        for ack in acks:
            await ack.wait(20)
        assert [s.requests for s in await ledger.sums(["principal"])] == [299]
        assert writer.close()
        engine.dispose()

    asyncio.run(main())

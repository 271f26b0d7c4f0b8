"""The meters follow the ledger: over a restart, and of several servers on one database."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, insert

from tests.service.databases import PostgresServer, engine, postgres, url
from tests.service.test_ledger import entry
from vivace.service import database as db
from vivace.service.follow import LATE, Follower
from vivace.service.ledger import Ledger, grant_credits
from vivace.service.meters import Account, Meters
from vivace.service.plans import KeyLimits, Plan, Window
from vivace.service.writer import Writer

__all__ = ["engine", "postgres", "url"]

HOUR5, WEEK = 18000, 604800
NOW = 1_800_000_000.0


@pytest.fixture
def writer(engine: Engine) -> Iterator[Writer]:
    writer = Writer(engine)
    yield writer
    assert writer.close()


TEAM = Plan(
    id="team",
    windows=[Window("tokens", HOUR5, 10_000), Window("tokens", WEEK, 100_000), Window("requests", HOUR5, 100)],
    cached_percent=10,
)
KEY = KeyLimits("vv_abcdefgh", requests_per_minute=10, tokens_per_day=5000)


def new_meters() -> Meters:
    return Meters({HOUR5, WEEK}, family=lambda model: "coder")


def counted(meters: Meters, now: float) -> dict[str, int]:
    return {state.name: state.used for state in meters.snapshot("ann", TEAM, KEY, "coder-0.5b", now)}


def test_what_was_used_survives_a_restart(engine: Engine, writer: Writer) -> None:
    async def main() -> None:
        ledger, before = Ledger(engine, writer), new_meters()
        for number in range(60):
            # Over ten days, in uneven steps, the last one now.
            moment = NOW - (59 - number) ** 2 * 250 - (0.25 if number < 59 else 0)
            held = before.reserve("ann", Plan(id="open"), None, "coder-0.5b", 1, 1, moment)
            one = entry(number, created=moment - 3, ended=moment)
            held.settle(one.usage, moment)
            ledger.record(one)
        ledger.record(entry(100, credits=True, created=NOW - 3, ended=NOW))
        ledger.record(entry(101, key="", created=NOW - 40, ended=NOW - 30))
        await ledger.flush()
        after = new_meters()
        await Follower(Ledger(engine, writer), after).load(NOW)
        used = counted(after, NOW)
        # 60 fresh, 40 cached at a tenth, 20 made: 84 each, with the one that no key asked for.
        in_5h = sum((59 - n) ** 2 * 250 < HOUR5 for n in range(60)) + 1
        in_week = sum((59 - n) ** 2 * 250 < WEEK for n in range(60)) + 1
        assert used["tokens/5h/coder"] == 84 * in_5h
        assert used["tokens/7d/coder"] == 84 * in_week
        assert used["requests/5h/coder"] == in_5h
        assert counted(before, NOW)["tokens/7d/coder"] == 84 * (in_week - 1)
        # The key pays for what the credits paid too; 120 tokens each, as a key counts cached ones fully.
        in_day = sum((59 - n) ** 2 * 250 < 86400 for n in range(60))
        assert used["tokens/1d/key vv_abcdefgh"] == 120 * (in_day + 1)
        assert used["requests/1m/key vv_abcdefgh"] == 2

    asyncio.run(main())


def test_servers_on_one_database_see_each_others_use_once(engine: Engine, writer: Writer) -> None:
    async def main() -> None:
        one, two = Ledger(engine, writer), Ledger(engine, writer)
        meters = new_meters()
        follower = Follower(two, meters)
        one.record(entry(1))
        two.record(entry(2))
        await two.flush()
        await follower.load(NOW + 3)
        assert counted(meters, NOW + 3)["requests/5h/coder"] == 2
        for number in range(10, 20):
            one.record(entry(number))
            two.record(entry(100 + number))  # counted by its own reservation
        grant_credits(engine, "ann", 55, opted_in=True)
        await two.flush()
        for _ in range(3):
            await follower.step()
        assert counted(meters, NOW + 3)["requests/5h/coder"] == 12
        assert counted(meters, NOW + 3)["tokens/5h/coder"] == 12 * 84
        assert meters.credits["ann"] == Account(balance=55, opted_in=True)
        # What a running response holds of the credits is not overwritten.
        meters.credits["ann"].held = 5
        await follower.step()
        assert meters.credits["ann"].held == 5
        for number in range(LATE + 50):
            two.record(entry(10_000 + number))
        one.record(entry(99_999))
        await two.flush()
        await follower.step()
        assert counted(meters, NOW + 3)["requests/5h/coder"] == 13
        await follower.step()
        assert len(follower._seen) <= LATE

    asyncio.run(main())


@pytest.mark.postgres
def test_a_row_that_is_committed_after_a_later_one_is_seen(postgres: PostgresServer) -> None:
    async def main() -> None:
        engine = db.open_database(postgres.new_database())
        writer = Writer(engine)
        other, ledger = Ledger(engine, writer), Ledger(engine, writer)
        meters = new_meters()
        follower = Follower(ledger, meters)
        await follower.load(NOW + 3)
        slow = engine.connect()
        slow.execute(insert(db.usage), other._row(entry(1)))
        await other.record(entry(2)).wait()
        await follower.step()
        assert counted(meters, NOW + 3)["requests/5h/coder"] == 1
        slow.commit()
        slow.close()
        await follower.step()
        await follower.step()
        assert counted(meters, NOW + 3)["requests/5h/coder"] == 2
        assert writer.close()
        engine.dispose()

    asyncio.run(main())


def test_following_goes_on_by_itself(engine: Engine, writer: Writer) -> None:
    async def main() -> None:
        meters = new_meters()
        follower = Follower(Ledger(engine, writer), meters, interval=0.02)
        await follower.load(NOW)
        task = asyncio.create_task(follower.run())
        await Ledger(engine, writer).record(entry(1)).wait()
        for _ in range(200):
            await asyncio.sleep(0.02)
            if counted(meters, NOW + 3)["requests/5h/coder"]:
                break
        assert counted(meters, NOW + 3)["requests/5h/coder"] == 1
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())

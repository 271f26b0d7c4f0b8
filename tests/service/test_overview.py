"""What the console is told: whose it is, what was counted, and a ledger that is seldom read."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert
from sqlalchemy.exc import OperationalError

from tests.service.lines import Database, Watched, answer, gateway, request, run
from vivace.backends.base import End, Job, Piece, Run
from vivace.protocol.contracts import Principal
from vivace.service import overview
from vivace.service.database import usage
from vivace.service.plans import Plan, Window
from vivace.service.tiers import BUILT_IN, TierFile, TierTable

HERE = Principal()
ANN, BOB = Principal("ann", "vv_ann", "small"), Principal("bob", "vv_bob", "small")
RULES: list[dict[str, Any]] = [{"steps": [{"text": "abc"}, {"hang": True}]}]
DAY = 86_400_000


class Silent:
    """A run that does not say how many tokens it made."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def __aiter__(self) -> AsyncIterator[Piece]:
        return self._run.__aiter__()

    async def stop(self) -> End:
        return await self._run.stop()


class Counted(Silent):
    made = 7


class Telling(Watched):
    """Its runs are ``kind``."""

    def __init__(self, kind: type[Silent]) -> None:
        super().__init__(RULES)
        self.kind = kind

    def start(self, job: Job) -> Any:
        return self.kind(super().start(job))


def limited() -> TierTable:
    plan = Plan("small", windows=[Window("requests", 3600, 9)])
    return TierTable(TierFile(plans=[plan], tiers=BUILT_IN))


def test_running_responses_are_told_in_tokens_and_the_queue_by_tier() -> None:
    async def work() -> None:
        for backend, made, counted in ((Telling(Counted), 7, True), (Telling(Silent), 1, False)):
            service = gateway(backend, tiers=limited(), slots=1)
            turns = [await service.respond(request(), ANN) for _ in range(2)]
            await asyncio.sleep(0.1)
            shown = await service.overview(ANN)
            first, second = shown["running"]
            assert (first["state"], first["tokens"], first["counted"]) == ("in_progress", made, counted)
            assert (second["state"], second["tokens"], second["first_ms"]) == ("queued", 0, None)
            assert first["first_ms"] < 1000 * first["seconds"]
            assert first["tokens_a_second"] == pytest.approx(made / (first["seconds"] - first["first_ms"] / 1000), 0.05)
            assert shown["queue"]["default"] == 1 and shown["made"] == made
            assert [(meter["name"], meter["used"]) for meter in shown["meters"]] == [("requests/1h/paced", 2)]
            for turn in turns:
                await turn.stop("cancelled")
            ended = await service.overview(ANN)
            assert ended["running"] == [] and ended["since_start"]["requests"] == 2
            assert ended["made"] == ended["since_start"]["output_tokens"]
            assert ended["ledger"] is None
            await service.close()

    run(work)


def test_others_are_seen_by_operators_and_on_this_machine_only() -> None:
    async def work() -> None:
        service = gateway(tiers=limited(), rules=RULES)
        turns = [await service.respond(request(), who) for who in (ANN, BOB)]

        async def seen(by: Principal) -> tuple[set[str], set[str]]:
            shown = await service.overview(by)
            running = {response["principal"] for response in shown["running"]}
            return running, {meter["principal"] for meter in shown["meters"]}

        assert await seen(ANN) == ({"ann"}, {"ann"})
        assert await seen(HERE) == ({"ann", "bob"}, {"ann", "bob"})
        service.operators = frozenset({"bob"})
        assert await seen(BOB) == ({"ann", "bob"}, {"ann", "bob"})
        for turn in turns:
            await turn.stop("cancelled")
        assert await seen(BOB) == (set(), {"ann", "bob"})
        assert await seen(ANN) == (set(), {"ann"})
        assert (await service.overview(ANN))["since_start"]["requests"] == 1
        await service.close()

    run(work)


def test_running_responses_beyond_what_is_shown_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "SHOWN", 2)

    async def work() -> None:
        service = gateway(tiers=limited(), rules=RULES)
        turns = [await service.respond(request(), ANN) for _ in range(5)]
        shown = await service.overview(ANN)
        assert (len(shown["running"]), shown["more"]) == (2, 3)
        for turn in turns:
            await turn.stop("cancelled")
        await service.close()

    run(work)


def rows(now: int, number: int) -> list[dict[str, Any]]:
    """``number`` rows over the last 14 days: two principals, two models."""
    return [
        {
            "response": f"resp_{n}", "server": "s", "principal": ("ann", "bob")[n % 2], "key": "", "family": "f",
            "model": ("small", "big")[n // 2 % 2], "tier": "default", "backend": "b", "status": "completed",
            "input_tokens": 100, "cached_tokens": 60, "output_tokens": 41, "reasoning_tokens": 0, "accepted_tokens": 0,
            "cost": 5, "credits": False, "ttft_ms": 100, "queue_ms": 0, "created": at - 500, "ended": at,
            "day": datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d"),
        }
        for n in range(number)
        for at in [now - n * 14 * DAY // number]
    ]  # fmt: skip


def test_the_ledger_is_summed_by_day_model_and_principal(tmp_path: Path) -> None:
    database = Database(tmp_path)
    written = rows(int(time.time() * 1000), 280)
    with database.engine.begin() as connection:
        connection.execute(insert(usage), written)
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    week = sorted({row["day"] for row in written})[-7:]

    async def work() -> None:
        service = database.gateway(tiers=limited())
        shown = (await service.overview(HERE))["ledger"]
        of_week = [row for row in written if row["day"] in week]
        assert shown["week"]["all"] == {
            "requests": len(of_week), "input_tokens": 100 * len(of_week), "cached_tokens": 60 * len(of_week),
            "output_tokens": 41 * len(of_week), "cost": 5 * len(of_week),
        }  # fmt: skip
        assert shown["today"]["all"]["requests"] == sum(row["day"] == today for row in written)
        for groups, name in (("models", "model"), ("principals", "principal")):
            for each in shown["week"][groups]:
                assert each["requests"] == sum(row[name] == each["name"] for row in of_week)
        assert [row["response"] for row in shown["latest"]] == [f"resp_{n}" for n in range(279, 259, -1)]
        assert shown["latest"][0]["tokens_a_second"] == pytest.approx(100)
        own = (await service.overview(ANN))["ledger"]
        assert [each["name"] for each in own["week"]["principals"]] == ["ann"]
        assert {row["principal"] for row in own["latest"]} == {"ann"}
        await service.close()

    run(work)
    database.close()


def test_a_large_ledger_is_read_once_for_all_who_look(tmp_path: Path) -> None:
    database = Database(tmp_path)
    with database.engine.begin() as connection:
        connection.execute(insert(usage), rows(int(time.time() * 1000), 100_000))

    async def work() -> None:
        service = database.gateway()
        reads, read = 0, database.ledger.sums

        async def counted(*given: Any, **more: Any) -> Any:
            nonlocal reads
            reads += 1
            return await read(*given, **more)

        database.ledger.sums = counted  # type: ignore[method-assign]
        begun = time.monotonic()
        first = await asyncio.gather(*(service.overview(HERE) for _ in range(20)))
        took = time.monotonic() - begun
        assert reads == 1 and all(shown["ledger"] == first[0]["ledger"] for shown in first)
        assert took < 2.0  # 0.1 s where nothing else runs
        await answer(service)
        begun = time.monotonic()
        again = await service.overview(HERE)
        assert time.monotonic() - begun < 0.1 and reads == 1
        assert again["ledger"] is first[0]["ledger"] and again["since_start"]["requests"] == 1
        service._overview.ticks = lambda: time.monotonic() + 3600.0  # nobody looked for an hour
        assert (await service.overview(HERE))["ledger"] is not first[0]["ledger"] and reads == 2
        await service.close()

    run(work)
    database.close()


def test_a_ledger_that_cannot_be_read_says_so_and_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "FRESH", 0.0)
    monkeypatch.setattr(overview, "SPARING", 0)
    database = Database(tmp_path)

    async def work() -> None:
        service = database.gateway()
        read = database.ledger.sums

        async def broken(*given: Any, **more: Any) -> Any:
            raise OperationalError("select", {}, Exception("gone"))

        database.ledger.sums = broken  # type: ignore[method-assign]
        shown = await service.overview(HERE)
        assert "does not answer" in shown["ledger"]["fault"]
        database.ledger.sums = read  # type: ignore[method-assign]
        for _ in range(100):
            if "fault" not in (shown := await service.overview(HERE))["ledger"]:
                break
            await asyncio.sleep(0.01)
        assert shown["ledger"]["today"]["all"] == {}
        await service.close()

    run(work)
    database.close()

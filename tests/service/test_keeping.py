"""Responses after their end: out of memory, and out of a database after a restart."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.service.lines import ME, SHELL, Database, Watched, answer, check, gateway, last, request, run
from vivace.protocol import events as ev
from vivace.protocol import items as it
from vivace.protocol.contracts import Principal
from vivace.protocol.errors import BadRequest
from vivace.protocol.items import item_text
from vivace.service.gateway import LocalGateway
from vivace.service.upkeep import Upkeep

YOU = Principal("you")
CALL = [{"when": {"user": "go"}, "steps": [{"reasoning": "hm"}, {"text": "so"}, {"call": "shell", "call_id": "c1"}]}]


def said(items: list[it.Item]) -> list[str]:
    return [item_text(item) for item in items]


async def refused(work: Any) -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        await work
    return caught.value


@pytest.fixture
def database(tmp_path: Path) -> Any:
    database = Database(tmp_path)
    yield database
    database.close()


def test_a_stored_response_can_be_had_and_forgotten(database: Database) -> None:
    async def work() -> None:
        for service in (gateway(), database.gateway()):
            response, _ = await answer(service, "hello")
            assert (await service.retrieve(response.id, ME)).output == response.output
            assert said(await service.input_items(response.id, ME)) == ["hello"]
            assert (await service.cancel(response.id, ME)).status == "completed"
            for looking in (service.retrieve, service.input_items, service.cancel, service.delete, service.resume):
                error = await refused(looking(response.id, YOU))
                assert (error.status, error.code) == (404, "response_not_found")
            await service.delete(response.id, ME)
            for looking in (service.retrieve, service.input_items, service.delete):
                assert (await refused(looking(response.id, ME))).status == 404
            assert (
                await refused(answer(service, previous_response_id=response.id))
            ).code == "previous_response_not_found"
            kept, _ = await answer(service, store=False)
            assert (await refused(service.retrieve(kept.id, ME))).status == 404
            await service.close()

    run(work)


def test_a_chain_goes_on_after_a_restart(database: Database) -> None:
    async def work() -> None:
        before = database.gateway(Watched(CALL))
        first, _ = await answer(before, "go", tools=[SHELL], instructions="Be good.")
        output = [{"type": "function_call_output", "call_id": "c1", "output": "listed"}]
        second, _ = await answer(before, output, tools=[SHELL], previous_response_id=first.id, max_output_tokens=2)
        await before.close()

        backend = Watched([{"steps": [{"text": "yes"}]}])
        after = database.gateway(backend)
        assert (await after.retrieve(second.id, ME)).output == second.output
        third, _ = await answer(after, "more", previous_response_id=second.id, instructions="Be good.")
        asked = backend.jobs[0].items
        assert said(asked) == ["Be good.", "go", "hm", "so", "{}", "listed", said(second.output)[0], "more"]
        assert said(await after.input_items(third.id, ME)) == said(asked)[1:]
        assert (await refused(answer(after, previous_response_id=second.id, principal=YOU))).status == 400
        fourth, _ = await answer(after, "again", previous_response_id=third.id)
        assert backend.jobs[1].items[-2] == third.output[0]
        assert fourth.status == "completed"
        await after.close()

    run(work)


def test_a_stored_response_behind_one_that_is_not_takes_everything_along(database: Database) -> None:
    async def work() -> None:
        before = database.gateway(rules=[{"steps": [{"text": "yes"}]}])
        first, _ = await answer(before, "one", store=False)
        second, _ = await answer(before, "two", previous_response_id=first.id)
        third, _ = await answer(before, "three", previous_response_id=second.id)
        await before.delete(second.id, ME)
        fourth, _ = await answer(before, "four", previous_response_id=third.id)
        await before.close()
        backend = Watched()
        after = database.gateway(backend)
        await refused(answer(after, previous_response_id=first.id))
        assert (
            await refused(answer(after, previous_response_id=third.id))
        ).status == 400  # what it stood on is deleted
        await answer(after, "five", previous_response_id=fourth.id, max_output_tokens=1)
        assert said(backend.jobs[0].items) == ["one", "yes", "two", "yes", "three", "yes", "four", "yes", "five"]
        await after.close()

    run(work)


def test_a_failed_response_is_kept_and_not_continued(database: Database) -> None:
    async def work() -> None:
        rules: list[dict[str, Any]] = [{"when": {"user": "fail"}, "steps": [{"error": "server_error"}]}]
        for service in (database.gateway(rules=rules), database.gateway()):
            first, _ = await answer(service, "go")
            failed, _ = await answer(service, "fail", previous_response_id=first.id)
            await service.close()
            again = database.gateway()
            assert (await again.retrieve(failed.id, ME)).status == failed.status
            assert said(await again.input_items(failed.id, ME)) == ["go", said(first.output)[0], "fail"]
            if failed.status == "failed":
                assert (await refused(answer(again, previous_response_id=failed.id))).status == 400
            await again.close()

    run(work)


def test_a_background_response_is_followed_while_it_runs_and_after(database: Database) -> None:
    async def work() -> None:
        service = database.gateway(
            rules=[{"steps": [{"tokens": 100, "pause": 0.003}], "prefill": 0.2}], keep_alive=0.05
        )
        turn = await service.respond(request(background=True), ME)
        head = await turn.ready()
        assert isinstance(head[0], ev.Created)
        assert (await refused(service.resume(turn.response_id, YOU))).status == 404
        from_the_start = await service.resume(turn.response_id, ME)
        await asyncio.sleep(0.3)
        assert (await service.retrieve(turn.response_id, ME)).status == "in_progress"
        later = await service.resume(turn.response_id, ME, after=10)
        whole, rest = await asyncio.gather(_all(from_the_start), _all(later))
        check(whole)
        assert rest == whole[11:]
        ended = await service.resume(turn.response_id, ME, after=10)
        assert await _all(ended) == [event for event in rest if not isinstance(event, ev.Keepalive)]
        assert (await _all(await service.resume(turn.response_id, ME, after=10_000))) == []
        assert (await ended.stop("disconnect")).status == "completed"
        plain, _ = await answer(service)
        assert (await refused(service.resume(plain.id, ME))).code == "stream_not_available"
        running = await service.respond(request(), ME)
        assert (await refused(service.resume(running.response_id, ME))).code == "stream_not_available"
        await running.stop("cancelled")
        await service.close()
        again = database.gateway()
        assert (await again.retrieve(turn.response_id, ME)).output == last(whole).output
        told = [event for event in whole if not isinstance(event, ev.Keepalive)]
        assert _written(await _all(await again.resume(turn.response_id, ME))) == _written(told)
        assert _written(await _all(await again.resume(turn.response_id, ME, after=10))) == _written(told, 10)
        assert (await _all(await again.resume(turn.response_id, ME, after=10_000))) == []
        assert (await refused(again.resume(turn.response_id, YOU))).status == 404
        assert (await refused(again.resume(plain.id, ME))).code == "stream_not_available"
        await again.close()

    run(work)


@pytest.mark.parametrize("how", ["cancelled", "failed", "incomplete"])
def test_how_a_background_response_ended_is_told_after_a_restart(database: Database, how: str) -> None:
    async def work() -> None:
        steps: dict[str, list[dict[str, Any]]] = {
            "cancelled": [{"text": "a b c"}, {"hang": True}],
            "failed": [{"text": "a b c"}, {"error": "server_error"}],
            "incomplete": [{"tokens": 50}],
        }
        service = database.gateway(rules=[{"steps": steps[how]}])
        turn = await service.respond(request(background=True, max_output_tokens=20), ME)
        if how == "cancelled":
            await asyncio.sleep(0.05)
            await service.cancel(turn.response_id, ME)
        told = await _all(await service.resume(turn.response_id, ME))
        await service.close()
        again = database.gateway()
        assert (await again.retrieve(turn.response_id, ME)).status == how
        replayed = await _all(await again.resume(turn.response_id, ME))
        assert _written(replayed) == _written([event for event in told if not isinstance(event, ev.Keepalive)])
        check(replayed)
        await again.close()

    run(work)


def test_a_background_response_whose_server_is_gone_has_failed(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vivace.service.keeping.LEASE", 0.4)

    async def work() -> None:
        service = database.gateway(rules=[{"steps": [{"text": "a b c"}, {"hang": True}]}])
        turn = await service.respond(request("go", background=True), ME)
        other = database.gateway()
        await _until(lambda: other.retrieve(turn.response_id, ME))
        upkeep = asyncio.create_task(Upkeep(service.keeper, vouch_every=0.1).run())
        await asyncio.sleep(0.6)  # longer than a lease
        assert (await other.retrieve(turn.response_id, ME)).status == "in_progress"
        assert said(await service.input_items(turn.response_id, ME)) == ["go"]
        assert said(await other.input_items(turn.response_id, ME)) == ["go"]
        error = await refused(other.resume(turn.response_id, ME))
        assert (error.status, error.code) == (409, "stream_not_available")
        assert (await refused(answer(other, previous_response_id=turn.response_id))).status == 400

        # As if it had been killed: nobody vouches for it any more.
        upkeep.cancel()
        await asyncio.gather(upkeep, return_exceptions=True)
        await asyncio.sleep(0.6)
        found = await other.retrieve(turn.response_id, ME)
        assert found.status == "failed"
        assert found.error is not None and found.error.code == "server_error"
        begin, end = await _all(await other.resume(turn.response_id, ME))
        assert isinstance(begin, ev.Created) and isinstance(end, ev.Failed)
        assert end.response.status == "failed"
        (end,) = await _all(await other.resume(turn.response_id, ME, after=7))
        assert isinstance(end, ev.Failed) and end.sequence_number == 8
        assert (await refused(answer(other, previous_response_id=turn.response_id))).status == 400

        # It was only slow: what it says at its end counts.
        await service.cancel(turn.response_id, ME)
        await database.ledger.flush(5)
        assert (await other.retrieve(turn.response_id, ME)).status == "cancelled"
        await service.delete(turn.response_id, ME)
        assert (await refused(other.retrieve(turn.response_id, ME))).status == 404
        await other.close()
        await service.close()

    run(work)


def test_a_response_that_is_deleted_at_once_does_not_come_back(database: Database) -> None:
    async def work() -> None:
        service = database.gateway()
        for _ in range(5):
            response, _ = await answer(service, max_output_tokens=1)
            await service.delete(response.id, ME)
            other = database.gateway()
            assert (await refused(other.retrieve(response.id, ME))).status == 404
            await other.close()
        await service.close()

    run(work)


def test_old_responses_go_by_themselves(database: Database) -> None:
    async def work() -> None:
        service = database.gateway(retention=1.0)
        keeping = asyncio.create_task(Upkeep(service.keeper, purge_every=0.1).run())
        first, _ = await answer(service, "one", max_output_tokens=1)
        old, _ = await answer(service, "old", max_output_tokens=1)
        await asyncio.sleep(0.8)
        second, _ = await answer(service, "two", previous_response_id=first.id, max_output_tokens=1)
        await asyncio.sleep(0.4)
        # What a kept response goes on from is kept with it, and is not to be had by itself.
        again = database.gateway(retention=1.0)
        assert (await refused(again.retrieve(old.id, ME))).status == 404
        assert (await refused(again.retrieve(first.id, ME))).status == 404
        third, _ = await answer(again, "three", previous_response_id=second.id, store=False, max_output_tokens=1)
        assert said(await again.input_items(third.id, ME))[0] == "one"
        assert _count(database) == 2
        assert (await refused(service.retrieve(old.id, ME))).status == 404
        async with asyncio.timeout(5):
            while _count(database):
                await asyncio.sleep(0.05)
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        await again.close()
        await service.close()

    run(work)


def _count(database: Database) -> int:
    with database.engine.connect() as connection:
        return int(connection.exec_driver_sql("SELECT count(*) FROM responses").scalar() or 0)


async def _until(look: Any) -> None:
    """Until it is found: what was put is written soon."""
    async with asyncio.timeout(5):
        while True:
            try:
                await look()
                return
            except BadRequest:
                await asyncio.sleep(0.01)


def _written(events: Sequence[ev.Event], after: int = -1) -> list[Any]:
    """The JSON of the events with higher numbers."""
    return [json.loads(ev.encode(event)) for event in events if (event.sequence_number or 0) > after]


async def _all(stream: Any) -> list[ev.Event]:
    return [event async for event in stream]


def test_a_background_response_is_cancelled_and_deleted_while_it_runs() -> None:
    async def work() -> None:
        service = gateway(rules=[{"steps": [{"text": "a b c"}, {"hang": True}]}])
        turns = [await service.respond(request(background=True), ME) for _ in range(2)]
        await asyncio.sleep(0.02)
        now = await service.retrieve(turns[0].response_id, ME)
        assert now.status == "in_progress"
        assert said(await service.input_items(turns[0].response_id, ME)) == ["hello"]
        began = time.monotonic()
        assert (await service.cancel(turns[0].response_id, ME)).status == "cancelled"
        await service.delete(turns[1].response_id, ME)
        assert time.monotonic() - began < 0.1
        assert (await service.retrieve(turns[0].response_id, ME)).status == "cancelled"
        assert (await refused(service.retrieve(turns[1].response_id, ME))).status == 404
        await service.close()

    run(work)


def test_a_database_that_is_gone_holds_no_response_up(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vivace.service.gateway.DATABASE_PATIENCE", 0.3)

    async def work() -> None:
        service: LocalGateway = database.gateway(keep_alive=0.1)
        first, _ = await answer(service)
        with closing(sqlite3.connect(str(database.engine.url.database), isolation_level=None)) as lock:
            lock.execute("BEGIN EXCLUSIVE")
            began = time.monotonic()
            response, events = await answer(service, max_output_tokens=5)
            waited = time.monotonic() - began
            assert response.status == "incomplete"
            assert waited > 0.3
            assert any(isinstance(event, ev.Keepalive) for event in events)
            # Nobody waits so long again as long as it does not answer.
            began = time.monotonic()
            await answer(service, max_output_tokens=5)
            assert time.monotonic() - began < 0.2
            service._unanswered = None
            turn = await service.respond(request(max_output_tokens=5), ME)
            await asyncio.sleep(0.1)
            assert turn.response.status == "incomplete" and not turn.ended.is_set()
            began = time.monotonic()
            await turn.stop("cancelled")
            assert time.monotonic() - began < 0.1
            lock.rollback()
        await turn.wait()
        await database.ledger.flush(5)
        assert len(await database.ledger.latest()) == 4
        assert first.status == "completed"
        await service.close()

    run(work)


def test_a_lookup_in_a_database_that_is_gone_is_an_error_that_may_be_tried_again(database: Database) -> None:
    async def work() -> None:
        service = database.gateway()
        with database.engine.begin() as connection:
            connection.exec_driver_sql("DROP TABLE responses")
        for looking in (
            answer(service, previous_response_id="resp_1"),
            service.retrieve("resp_1", ME),
            service.delete("resp_1", ME),
        ):
            error = await refused(looking)
            assert (error.status, error.code) == (503, "database_unavailable")
        await service.close()

    run(work)

"""A generation that is asked for without waiting."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from tests.service.lines import ME, Watched, check, freed, gateway, last, request, run
from vivace.protocol import events as ev
from vivace.protocol.contracts import ModelCard


class Slow(Watched):
    ready = False

    async def open(self, watch: Any) -> ModelCard:
        await asyncio.sleep(0.2)
        return await super().open(watch)


@pytest.mark.parametrize("after", [-1.0, 0.05, 0.25])
def test_it_can_be_stopped_at_any_moment(after: float) -> None:
    async def work() -> None:
        service = gateway(Slow([{"steps": [{"text": "a"}, {"hang": True}]}]))
        generation = service.start(request(), ME)
        if after >= 0:
            await asyncio.sleep(after)
        began = time.monotonic()
        finals = await asyncio.gather(generation.stop("cancelled"), generation.stop("lost_race"))
        assert time.monotonic() - began < 0.1
        assert [final.status for final in finals] == ["cancelled", "cancelled"]
        events = [event async for event in generation]
        check(events) if len(events) > 2 else None
        assert isinstance(events[0], ev.Created) and isinstance(events[-1], ev.Incomplete)
        assert (await generation.stop("cancelled")).status == "cancelled"
        await freed(service)
        await service.close()

    run(work)


def test_who_iterates_is_told_when_it_is_stopped_elsewhere() -> None:
    async def work() -> None:
        service = gateway(Slow())
        generation = service.start(request(), ME)

        async def read() -> list[ev.Event]:
            return [event async for event in generation]

        reading = asyncio.create_task(read())
        await asyncio.sleep(0.05)
        await generation.stop("disconnect")
        assert isinstance((await reading)[-1], ev.Incomplete)
        await service.close()

    run(work)


def test_a_refusal_and_a_defect_are_events() -> None:
    async def work() -> None:
        service = gateway()
        wrong = service.start(request(service_tier="no"), ME)
        events = [event async for event in wrong]
        assert last(events).error is not None and last(events).status == "failed"
        assert (await wrong.stop("cancelled")).status == "failed"
        service.desk.tables = None  # type: ignore[assignment]
        broken = [event async for event in service.start(request(), ME)]
        error = last(broken).error
        assert error is not None and error.code == "server_error" and "AttributeError" in error.message
        await freed(service)
        await service.close()

    run(work)


def test_a_reader_that_is_cancelled_is_cancelled() -> None:
    async def work() -> None:
        service = gateway(Slow([{"steps": [{"hang": True}]}]))
        generation = service.start(request(), ME)

        async def read() -> None:
            async for _ in generation:
                pass

        reading = asyncio.create_task(read())
        await asyncio.sleep(0.02)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await generation.stop("disconnect")
        await freed(service)
        await service.close()

    run(work)

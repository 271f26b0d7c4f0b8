"""Which backend answers, and when it is ready to."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.service.lines import Watched, run
from vivace.errors import VivaceError
from vivace.protocol.contracts import ModelCard
from vivace.protocol.errors import Refused
from vivace.service.registry import Backends
from vivace.service.tiers import Tier


class Slow(Watched):
    ready = False

    def __init__(self, seconds: float = 0.05, fails: bool = False) -> None:
        super().__init__()
        self.seconds, self.fails, self.opens, self.closed = seconds, fails, 0, False

    async def open(self, watch: Any) -> ModelCard:
        self.opens += 1
        watch("loading", 0.5)
        await asyncio.sleep(self.seconds)
        if self.fails:
            raise VivaceError("Its file is damaged.", code="engine")
        return await super().open(watch)

    async def close(self) -> None:
        self.closed = True
        await super().close()


def test_a_tier_may_have_a_backend_of_its_own() -> None:
    async def work() -> None:
        slow, fast = Watched(), Watched()
        backends = Backends({"slow": slow, "fast": fast}, {"coder": "slow"})
        assert (await backends.find("coder")).backend is slow
        assert (await backends.find("coder", Tier("t", backend={"cod*": "fast"}))).backend_id == "fast"
        assert backends.names() == ["slow", "fast", "coder"]
        with pytest.raises(Refused, match="coder") as caught:
            await backends.find("codr")
        assert (caught.value.status, caught.value.code, caught.value.param) == (404, "model_not_found", "model")
        await backends.close()

    run(work)


def test_opening_is_shared_and_nobody_ends_it_by_leaving() -> None:
    async def work() -> None:
        told: list[tuple[str, float]] = []
        slow = Slow()
        backends = Backends({"m": slow}, watch=lambda stage, share: told.append((stage, share)))
        first, second = (asyncio.create_task(backends.find("m")) for _ in range(2))
        await asyncio.sleep(0.01)
        first.cancel()
        assert (await second).opening is None
        assert slow.opens == 1 and told == [("loading", 0.5)]
        waiting = await backends.find("m", patience=0.01)
        assert waiting.opening is not None and not waiting.opening.done()
        assert (await waiting.opening).context_window == slow.window
        assert (await backends.card("m")).name == "paced"
        await backends.close()
        assert slow.closed

    run(work)


def test_what_cannot_be_opened_is_tried_again_the_next_time() -> None:
    async def work() -> None:
        slow = Slow(0.01, fails=True)
        backends = Backends({"m": slow})
        for _ in range(2):
            with pytest.raises(VivaceError, match="damaged"):
                await backends.find("m")
        slow.fails = False
        assert (await backends.find("m")).opening is None
        assert slow.opens == 3
        await backends.close()

    run(work)


def test_closing_ends_an_opening() -> None:
    async def work() -> None:
        slow = Slow(60)
        backends = Backends({"m": slow})
        waiting = asyncio.create_task(backends.find("m"))
        await asyncio.sleep(0.01)
        await backends.close()
        with pytest.raises(Refused) as caught:
            await waiting
        assert caught.value.status == 503
        assert slow.closed

    run(work)


def test_a_model_is_made_when_it_is_asked_for_and_listed_from_then_on() -> None:
    async def work() -> None:
        made: list[str] = []

        def make(name: str) -> Watched | None:
            made.append(name)
            return Watched(name=name) if name == "found" else None

        backends = Backends({"m": Watched()}, make=make, makeable=lambda: ["found"])
        assert backends.names() == ["m", "found"]
        assert backends.listed() == ["m"] and made == []
        found = await backends.find("found")
        assert (await backends.find("found")).backend is found.backend
        assert made == ["found"] and backends.listed() == ["m", "found"]
        await backends.close()

    run(work)

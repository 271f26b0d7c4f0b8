"""Limits as a request meets them: what is refused, what pays beyond a plan, and what is free."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.service.lines import ME, answer, freed, gateway, request, run
from vivace.protocol.errors import Refused
from vivace.service.gateway import LocalGateway
from vivace.service.meters import Account, Meters
from vivace.service.tiers import TierTable

TIERS = """
default_plan = "small"
[[tier]]
id = "default"
[[tier]]
id = "turbo"
aliases = ["fast"]
price = { "*" = 3 }
[[price]]
model = "*"
input = 1
output = 10
[[plan]]
id = "small"
concurrent = 1
overflow_to_credits = true
[[plan.window]]
meter = "requests"
seconds = 18000
limit = 2
"""


@pytest.fixture
def service(tmp_path: Path) -> LocalGateway:
    (tmp_path / "tiers.toml").write_text(TIERS)
    tiers = TierTable.load(tmp_path / "tiers.toml")
    meters = Meters(tiers.window_lengths, tiers.family)
    return gateway(rules=[{"steps": [{"text": "yes"}]}], tiers=tiers, meters=meters)


async def refused(service: LocalGateway, **fields: object) -> Refused:
    with pytest.raises(Refused) as caught:
        await service.respond(request(**fields), ME)
    return caught.value


def test_counting_is_not_limited_and_does_not_count(service: LocalGateway) -> None:
    async def work() -> None:
        for _ in range(5):
            assert await service.input_tokens(request(), ME) > 0
        running = await service.respond(request(max_output_tokens=10), ME)
        assert await service.input_tokens(request(), ME) > 0
        error = await refused(service)
        assert (error.status, error.headers["x-ratelimit-meter"]) == (429, "concurrent/paced")
        await running.wait()
        await answer(service)
        error = await refused(service)
        assert error.headers["x-ratelimit-meter"] == "requests/5h/paced"
        assert await service.input_tokens(request(), ME) > 0
        await freed(service)
        await service.close()

    run(work)


def test_credits_pay_beyond_a_plan_where_there_are_enough(service: LocalGateway) -> None:
    async def work() -> None:
        for _ in range(2):
            await answer(service)
        account = service.meters.credits[ME.id] = Account(balance=1000, opted_in=True)
        # Ten millionths for each token that it may make, in the dearer tier three times that.
        assert (await refused(service, max_output_tokens=101)).status == 429
        assert (await refused(service, max_output_tokens=40, service_tier="fast")).status == 429
        await answer(service, max_output_tokens=90)
        spent = 1000 - account.balance
        assert 0 < spent < 100 and account.held == 0
        await answer(service, max_output_tokens=20, service_tier="fast")
        assert 1000 - account.balance > 2 * spent
        account.opted_in = False
        assert (await refused(service, max_output_tokens=1)).status == 429
        await freed(service)
        await service.close()

    run(work)

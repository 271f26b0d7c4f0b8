"""Keys to principals, principals to plans and limits, and what that means for a request."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.service.lines import ME, answer, freed, gateway, request
from vivace.errors import UsageError
from vivace.protocol.contracts import Principal
from vivace.protocol.errors import BadRequest, Refused
from vivace.service.accounts import Accounts
from vivace.service.database import open_database
from vivace.service.keys import KeyStore
from vivace.service.plans import Plan
from vivace.service.tiers import TierFile, TierTable

TIERS = TierTable(TierFile(default_plan="small", plans=[Plan("small", concurrent=1), Plan("large")]))


def test_without_keys_there_is_one_principal_with_the_default_plan() -> None:
    accounts = Accounts(TIERS)
    assert not accounts.needs_key()
    assert asyncio.run(accounts.authenticate("vv_anything")) is None
    buyer = accounts.buyer(ME)
    assert (buyer.plan.id, buyer.key) == ("small", None)
    buyer.check_model("anything")
    assert accounts.buyer(Principal("x", plan="large")).plan.id == "large"
    with pytest.raises(UsageError) as caught:
        accounts.buyer(Principal("x", plan="gone"))
    assert caught.value.code == "plan_not_found"


def test_a_key_brings_its_principal_plan_models_and_limits(tmp_path: Path) -> None:
    async def work() -> None:
        engine = open_database(f"sqlite:///{tmp_path}/keys.db")
        keys = KeyStore(engine)
        accounts = Accounts(TIERS, keys)
        assert not accounts.needs_key()
        secret, record = keys.create("ci", principal="team", plan="large", models=["pac*"], requests_per_minute=1)
        other, _ = keys.create("laptop", principal="team", plan="large", models=["none*"])
        assert accounts.needs_key()
        assert await accounts.authenticate("vv_wrong") is None
        team = await accounts.authenticate(secret)
        laptop = await accounts.authenticate(other)
        assert team == Principal("team", record.prefix, "large")
        assert laptop is not None and laptop.id == "team"
        buyer = accounts.buyer(team)
        assert buyer.plan.id == "large" and buyer.key == record.limits

        service = gateway(accounts=accounts, tiers=TIERS)
        response, _ = await answer(service, principal=team, max_output_tokens=1)
        # The limit is the key's, the conversation the principal's.
        for principal, code, status in ((team, "rate_limit_exceeded", 429), (laptop, "model_not_allowed", 400)):
            with pytest.raises(BadRequest) as caught:
                await service.respond(request(), principal)
            assert (caught.value.code, caught.value.status) == (code, status)
            if isinstance(caught.value, Refused) and status == 429:
                assert caught.value.headers["x-ratelimit-meter"] == f"requests/1m/key {record.prefix}"
        assert (await service.retrieve(response.id, laptop)).id == response.id
        await freed(service)
        await service.close()
        engine.dispose()

    asyncio.run(work())


def test_a_revoked_key_ends_on_a_line_that_is_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vivace.service.keys.FRESH", 0.0)

    async def work() -> None:
        keys = KeyStore(open_database(f"sqlite:///{tmp_path}/keys.db"))
        accounts = Accounts(TIERS, keys)
        secret, record = keys.create("ci", principal="team", plan="large")
        team = await accounts.authenticate(secret)
        assert team is not None
        service = gateway(accounts=accounts, tiers=TIERS)
        await answer(service, principal=team, max_output_tokens=1)
        keys.revoke(record.prefix)
        with pytest.raises(Refused) as caught:
            await service.respond(request(), team)
        assert (caught.value.code, caught.value.status) == ("invalid_api_key", 401)
        await service.close()

    asyncio.run(work())

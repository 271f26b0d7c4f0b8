"""What turns cost: prices of the tiers file reach the agent, are counted, and end a turn."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.agent.turns.stage import ActingBackend, Seen, Stage, call, options, play, say
from vivace.agent.sessions.entries import Usage
from vivace.agent.turns.agent import Agent
from vivace.agent.turns.events import Meters, Noted, TurnEnded
from vivace.agent.turns.limits import Limits, Spent
from vivace.backends.base import Watch
from vivace.backends.paced_script import Step
from vivace.client.service import _Entry as Entry
from vivace.composing import compose_gateway
from vivace.protocol.contracts import FREE, ModelCard, Price
from vivace.protocol.usage import InputTokensDetails
from vivace.protocol.usage import Usage as Tokens
from vivace.server.models import entry
from vivace.settings import Settings

PRICES = """
currency = "EUR"
[[tier]]
id = "default"
price = { "*" = 2 }
[[price]]
model = "dear"
input = 500
cached = 50
output = 1000
"""


class Unpriced(ActingBackend):
    """A model of somebody else."""

    async def open(self, watch: Watch) -> ModelCard:
        return msgspec.structs.replace(await super().open(watch), price=None)


def played(base: Path, model: str, limits: Limits, act: Any, prices: str = PRICES) -> tuple[Stage, TurnEnded]:
    (base / "work").mkdir(exist_ok=True)
    (base / "tiers.toml").write_text(prices)

    async def work() -> tuple[Stage, TurnEnded]:
        settings = Settings(state_dir=base / "service", cache_dir=base / "cache", tiers_file=base / "tiers.toml")
        backends = {"dear": ActingBackend(act, name="dear"), "own": ActingBackend(act, name="own")}
        backends["other"] = Unpriced(act, name="other")
        gateway = compose_gateway(settings, backends=backends, catalogue=False, database=False)
        agent = Agent(gateway, base / "work", model=model, mode="deep", options=options(base, limits=limits))
        scene = Stage(agent, backends[model])
        await gateway.begin()
        try:
            await agent.begin()
            return scene, await scene.turn("go")
        finally:
            await agent.close()
            await gateway.close()

    return play(work)


def echo(seen: Seen) -> list[Step]:
    return [call("shell", command=f"echo {len(seen.outputs)}")] if len(seen.outputs) < 12 else [say("done")]


def test_the_limit_on_the_cost_ends_a_turn(tmp_path: Path) -> None:
    scene, ended = played(tmp_path, "dear", Limits(cost=1.5), echo)
    assert ended.status == "limit" and "the limit of 1.5 EUR" in ended.reason
    spent = scene.of(Meters)[-1]
    assert spent.cost is not None and 1.5 <= spent.cost < 3.0
    fresh = spent.input_tokens - spent.cached_tokens
    counted = (fresh * 1000 + spent.cached_tokens * 100 + spent.output_tokens * 2000) / 1e6
    assert spent.cost == pytest.approx(counted)
    assert not [note for note in scene.of(Noted) if "costs" in note.text]


def test_models_that_run_here_cost_nothing_and_of_others_it_is_said(tmp_path: Path) -> None:
    scene, ended = played(tmp_path, "own", Limits(cost=1e-9), echo)
    assert ended.status == "done" and scene.of(Meters)[-1].cost == 0.0
    scene, ended = played(tmp_path, "other", Limits(cost=0.01), echo)
    assert ended.status == "done" and scene.of(Meters)[-1].cost is None
    notes = [note for note in scene.of(Noted) if "Nobody says what other costs" in note.text]
    assert len(notes) == 1 and notes[0].level == "warning"


def test_a_price_is_told_by_the_list_of_models() -> None:
    card = ModelCard("m", 100, "chat", True, price=Price(1.0, 0.1, 4.0, "EUR"))
    read = msgspec.json.decode(msgspec.json.encode(entry(card)))
    assert read["price"] == {"input": 1.0, "cached": 0.1, "output": 4.0, "currency": "EUR"}
    assert msgspec.json.decode(msgspec.json.encode(entry(card)), type=Entry).card("there").price == card.price
    assert entry(msgspec.structs.replace(card, price=None))["price"] is None
    usage = Tokens(1000, InputTokensDetails(cached_tokens=400), 100)
    assert card.price is not None and card.price.of(usage) == pytest.approx((600 + 40 + 400) / 1e6)
    assert FREE.of(usage) == 0


def test_the_books_of_a_turn_count_everything_once() -> None:
    spent = Spent(Limits())
    assert spent.taken() is None
    spent.count(Tokens(10, output_tokens=5), Price(1.0, 0.1, 2.0))
    first = spent.taken()
    assert isinstance(first, Usage) and (first.input_tokens, first.output_tokens) == (10, 5)
    assert first.cost == pytest.approx(20 / 1e6) and spent.taken() is None
    spent.count(Tokens(7, output_tokens=1))
    second = spent.taken()
    assert second is not None and (second.input_tokens, second.output_tokens, second.cost) == (7, 1, 0.0)


def test_the_default_tier_of_a_plan_decides(tmp_path: Path) -> None:
    path = tmp_path / "tiers.toml"
    path.write_text(PRICES + '[[plan]]\nid = "slow"\ntiers = ["*"]\ndefault_tier = "default"\n')

    async def work() -> None:
        settings = Settings(state_dir=tmp_path / "s", cache_dir=tmp_path / "c", tiers_file=path)
        backend = ActingBackend(echo, name="dear")
        gateway = compose_gateway(settings, backends={"dear": backend}, catalogue=False, database=False)
        try:
            assert (await gateway.open("dear")).price == Price(1000.0, 100.0, 2000.0, "EUR")
        finally:
            await gateway.close()

    asyncio.run(work())

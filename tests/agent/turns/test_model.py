"""The whole agent on a real model of half a billion parameters."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.agent.turns.stage import options, play
from vivace.agent.turns.agent import Agent
from vivace.agent.turns.events import Editing, Event, Meters, Mode, Proposed, TurnBegan, TurnEnded
from vivace.composing import compose_gateway
from vivace.settings import Settings

pytestmark = pytest.mark.model
NAME = "coder-0.5b"


@contextlib.asynccontextmanager
async def talking(base: Path, mode: Mode, events: list[Event]) -> AsyncIterator[Agent]:
    gateway = compose_gateway(Settings(), database=False)
    agent = Agent(gateway, base / "work", model=NAME, mode=mode, options=options(base), on_event=events.append)
    try:
        await agent.begin()
        yield agent
    finally:
        await agent.close()
        await gateway.close()


@pytest.fixture
def work(tmp_path: Path, model_file: Callable[[str], Path]) -> Path:
    model_file(NAME)
    root = tmp_path / "work"
    root.mkdir()
    (root / "shapes.py").write_text(
        '"""Shapes."""\n\n\ndef area(width: float, height: float) -> float:\n    """The area.\n\n'
        '    >>> area(2, 3)\n    6\n    """\n    return width + height\n'
    )
    return root


def test_a_small_model_repairs_a_function_and_the_race_proves_it(tmp_path: Path, work: Path) -> None:
    events: list[Event] = []

    async def run() -> None:
        async with talking(tmp_path, "auto", events) as agent:
            agent.say("Fix `area` in shapes.py: it must multiply width and height.")
            await asyncio.wait_for(agent.wait_idle(), 100)
            before = (work / "shapes.py").read_text()
            ended = [event for event in events if isinstance(event, TurnEnded)][-1]
            assert ended.status == "done", ended
            assert "return width * height" in before
            assert (
                next(event for event in events if isinstance(event, Proposed)).verified
                == "checked: 1 example, doctest shapes.py"
            )
            assert next(event for event in events if isinstance(event, TurnBegan)).mode == "fast"
            meters = [event for event in events if isinstance(event, Meters)][-1]
            assert meters.ttft and meters.copied
            await agent.undo()
            assert "return width + height" in (work / "shapes.py").read_text()

    play(run)


def test_stop_ends_a_real_generation_at_once(tmp_path: Path, work: Path) -> None:
    events: list[Event] = []
    (work / "shapes.py").write_text("".join(f"def f{n}(x):\n    return x + {n}\n\n\n" for n in range(60)))

    async def run() -> float:
        async with talking(tmp_path, "fast", events) as agent:
            agent.say("Add a docstring to every function in shapes.py.")
            while not any(isinstance(event, Editing) and event.lines for event in events):
                await asyncio.sleep(0.002)
                assert not any(isinstance(event, TurnEnded) for event in events), events[-1]
            began = time.perf_counter()
            await agent.stop()
            return time.perf_counter() - began

    before = (work / "shapes.py").read_text()
    assert play(run) < 1.0
    assert (work / "shapes.py").read_text() == before

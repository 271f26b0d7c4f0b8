"""Ten thousand turns that are started, steered and stopped: what they leave in the engine."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.engine.asking import opened, read, tiny_config
from vivace.engine.messages import Start
from vivace.engine.process import EngineProcess

pytestmark = pytest.mark.soak

CYCLES = 10_000
AT_ONCE = 8


async def cycle(engine: EngineProcess, number: int) -> list[str]:
    """A turn, steered by aborting it and going on from what it had said, and stopped at some moment."""
    prompt = [number % 300 + i for i in range(3)] * (5 + number % 40)
    stream = engine.start(Start(id=0, tokens=prompt, reference=prompt[: number % 60], max_tokens=200))
    if number % 3:
        await asyncio.sleep(0.0005 * (number % 11))
    stream.abort()
    said, first = await read(stream)
    steered = engine.start(Start(id=0, tokens=[*prompt, *said, 7, 8, 9], max_tokens=30, priority=number % 2))
    if number % 4 != 0:
        await asyncio.sleep(0.0005 * (number % 5))
        steered.abort()
    _, second = await read(steered)
    return [first.reason, second.reason]


def test_ten_thousand_started_steered_and_stopped_turns_leave_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tiny_config(tmp_path)) as engine:
            reasons: list[str] = []
            reports = []
            for begin in range(0, CYCLES, 1000):
                for first in range(begin, begin + 1000, AT_ONCE):
                    done = await asyncio.gather(*(cycle(engine, first + i) for i in range(AT_ONCE)))
                    reasons += [reason for pair in done for reason in pair]
                reports.append(await engine.report())
            assert len(reasons) == 2 * CYCLES and set(reasons) <= {"aborted", "window", "length"}
            assert reasons.count("aborted") > CYCLES / 2
            for report in reports:
                assert (report.running, report.waiting, report.kv_blocks_held) == (0, 0, 0)
            # The first thousand warm the allocator up.
            assert reports[-1].resident_bytes - reports[0].resident_bytes < 8 << 20
            tokens, finish = await read(engine.start(Start(id=0, tokens=[1, 2, 3], max_tokens=5)))
            assert len(tokens) == 5 and finish.reason == "length"

    asyncio.run(run())

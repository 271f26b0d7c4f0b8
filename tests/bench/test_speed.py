"""The whole benchmark, short, on a real model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from vivace.bench.host import Bounds
from vivace.bench.record import Document
from vivace.bench.speed import PARTS, Plan, chosen_parts, run_speed
from vivace.bench.table import markdown
from vivace.bench.tasks import Task, load_tasks
from vivace.errors import UsageError
from vivace.hosting import open_host
from vivace.settings import Settings


def test_parts() -> None:
    assert chosen_parts([]) == list(PARTS)
    assert chosen_parts(["stop", "turns"]) == ["turns", "stop"]
    with pytest.raises(UsageError, match="decoed") as error:
        chosen_parts(["decoed"])
    assert "decode" in error.value.hint


@pytest.mark.model
@pytest.mark.slow
def test_a_short_run(model_file: Callable[[str], Path]) -> None:
    model_file("smollm2-135m")
    shipped = {task.id: task for task in load_tasks(Path("benchmarks/data/speed"))}
    rename, free = (replace(shipped[name], max_output_tokens=16) for name in ("rename", "free"))
    tiny = Task("tiny", "Add a docstring.", "a.py", "def area(w, h):\n    return w * h\n")
    tasks = [tiny, rename, free]
    plan = Plan(["turns", "decode"], rounds=1, samples=1)
    kept: list[int] = []

    async def go() -> Document:
        async with open_host("smollm2-135m", Settings(threads=2, kv_tokens=8192)) as host:
            quick = replace(host, probe=lambda: Bounds(bytes_per_second=1e10, threads=2))
            return await run_speed(
                quick, [], tasks, plan, lambda line: None, lambda document: kept.append(len(document.figures))
            )

    document = asyncio.run(go())
    assert [run.task for run in document.runs] == ["tiny", "rename", "free"]
    prose = document.runs[2]
    assert prose.counts and 0 < prose.output_tokens <= 16 and 0 < prose.ttft < prose.seconds
    assert document.runs[1].prompt_tokens > 900 and document.runs[1].cached_tokens == 0
    assert not document.runs[1].counts and document.runs[1].fault == "ended by length"
    assert {figure.measure for figure in document.figures} == {"decode"}
    assert all(sample > 0 for figure in document.figures if figure.unit == "tok/s" for sample in figure.samples)
    assert kept == sorted(kept) and len(kept) == len(tasks) + len(plan.parts)
    assert "plain decode" in markdown(document)

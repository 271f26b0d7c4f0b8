"""The engine process with real models: how soon it stops and starts, and where stop texts cut."""

from __future__ import annotations

import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.asking import ask, opened, read, real_config
from vivace.dialects.chat import ChatDialect
from vivace.engine.messages import Sampling, Start
from vivace.engine.process import EngineProcess
from vivace.models.tokenizer import Tokenizer
from vivace.protocol.items import Message
from vivace.settings import Settings

pytestmark = pytest.mark.model

ROUNDS = 3
"""Times are taken up to so often and the best round counts: a busy moment says nothing about the engine."""


def skip_if_busy() -> None:
    """Nor does a machine that is busy all the time. Called where a time was too long."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > cores + 2:
        pytest.skip(f"{load:.1f} processes want {cores} cores; times mean nothing here")


def chat(path: Path, text: str) -> tuple[Tokenizer, list[int]]:
    tokenizer = Tokenizer.load(path, Settings())
    return tokenizer, ChatDialect(tokenizer).prompt([Message("user", text)])


@pytest.mark.slow
@pytest.mark.parametrize("inside", ["prefill", "decode"])
def test_an_abort_ends_within_a_tenth_of_a_second(inside: str, model_file: Callable[[str], Path]) -> None:
    """From the call to the finish message, 30 times."""
    path = model_file("coder-0.5b")
    numbers = random.Random(1)

    async def one(engine: EngineProcess) -> float:
        if inside == "prefill":
            # Random tokens, so that nothing of it is in KV memory: seconds of work.
            stream = engine.start(Start(id=0, tokens=[numbers.randrange(100_000) for _ in range(8000)]))
            await asyncio.sleep(numbers.uniform(0.02, 0.3))
        else:
            stream = engine.start(Start(id=0, tokens=[numbers.randrange(100_000) for _ in range(40)]))
            await anext(aiter(stream))
            await asyncio.sleep(numbers.uniform(0.0, 0.1))
        started = time.perf_counter()
        stream.abort()
        tokens, finish = await read(stream)
        assert finish.reason == "aborted"
        assert finish.output_tokens >= len(tokens) and (inside == "decode" or not finish.output_tokens)
        return time.perf_counter() - started

    async def run() -> None:
        async with opened(real_config(path)) as engine:
            for attempt in range(ROUNDS):
                taken = sorted([await one(engine) for _ in range(30)])
                print(f"{inside}: median {1000 * statistics.median(taken):.1f} ms, worst {1000 * taken[-1]:.1f} ms")
                if taken[-1] < 0.1 or attempt == ROUNDS - 1:
                    break
            if taken[-1] >= 0.1:
                skip_if_busy()
            assert taken[-1] < 0.1
            report = await engine.report()
            assert (report.running, report.waiting, report.kv_blocks_held) == (0, 0, 0)

    asyncio.run(run())


@pytest.mark.slow
def test_a_second_start_has_its_first_token_within_three_seconds(
    model_file: Callable[[str], Path], tmp_path: Path
) -> None:
    """The engine alone, and the whole command by its own account."""
    path = model_file("coder-0.5b")
    _, prompt = chat(path, "Say hello.")
    (tmp_path / "a.py").write_text("def add(a, b):\n    return a + b\n")

    async def engine() -> float:
        started = time.perf_counter()
        async with opened(real_config(path)) as process:
            await anext(aiter(process.start(Start(id=0, tokens=prompt, max_tokens=1))))
            return time.perf_counter() - started

    def command() -> float:
        line = [sys.executable, "-m", "vivace", "edit", "--dry-run", "--json", "a.py", "Rename add to plus."]
        done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        told = json.loads(done.stdout)
        assert told["error"] is None or done.returncode == 3, told
        return float(told["wall_seconds"] - told["seconds"] + told["ttft_s"])

    asyncio.run(engine())  # The first start converts the weights.
    for measure in (lambda: asyncio.run(engine()), command):
        taken = []
        while len(taken) < ROUNDS and min(taken, default=9.0) >= 3.0:
            taken.append(measure())
        print([round(seconds, 2) for seconds in taken])
        if min(taken) >= 3.0:
            skip_if_busy()
        assert min(taken) < 3.0


def test_stop_texts_are_found_across_token_borders(model_file: Callable[[str], Path]) -> None:
    path = model_file("smollm2-135m")
    tokenizer, prompt = chat(path, "Write a Python function that adds two numbers, with an example.")

    async def run() -> None:
        async with opened(real_config(path)) as engine:
            tokens, _ = await read(engine.start(Start(id=0, tokens=prompt, max_tokens=80)))
            whole = tokenizer.decode_bytes(tokens)
            ends = [len(tokenizer.decode_bytes(tokens[:n])) for n in range(1, len(tokens))]
            # From two bytes before a border to three behind it, and a whole token with a byte on either side.
            stops = [whole[end - 2 : end + 3] for end in ends[5:60:6]]
            stops += [whole[a - 1 : b + 1] for a, b in zip(ends[10:60:10], ends[11:61:10], strict=True)]
            requests = [
                Start(id=0, tokens=prompt, max_tokens=80, stop=[b"never there", stop], reference=reference)
                for stop in stops
                for reference in ([], tokens)
            ]
            for request, (output, finish) in zip(requests, await ask(engine, requests, 16), strict=True):
                said = tokenizer.decode_bytes(output)
                assert finish.reason == "stop"
                assert said[: len(said) - finish.trim] == whole[: whole.index(request.stop[1])]
                assert output == tokens[: len(output)] and finish.output_tokens == len(output)

    asyncio.run(run())


@pytest.mark.slow
def test_sampled_output_is_the_same_with_and_without_a_draft(model_file: Callable[[str], Path]) -> None:
    path = model_file("smollm2-135m")
    _, prompt = chat(path, "Write a Python class for a stack.")

    async def run() -> None:
        async with opened(real_config(path)) as engine:
            accepted = 0
            for seed in range(6):
                sampling = Sampling(
                    temperature=0.8, top_p=0.95, seed=seed, repetition_penalty=1.05 if seed % 2 else 1.0
                )
                plain = Start(id=0, tokens=prompt, sampling=sampling, max_tokens=60, draft=False)
                wanted, _ = await read(engine.start(plain))
                reference = wanted[:20] + wanted[24:40] + [1, 2, 3] + wanted[40:]
                drafted = Start(id=0, tokens=prompt, sampling=sampling, max_tokens=60, reference=reference)
                got, finish = await read(engine.start(drafted))
                assert got == wanted
                accepted += finish.accepted
            assert accepted > 120

    asyncio.run(run())


def test_time_ends_an_answer(model_file: Callable[[str], Path]) -> None:
    path = model_file("smollm2-135m")

    async def run() -> None:
        async with opened(real_config(path)) as engine:
            started = time.perf_counter()
            tokens, finish = await read(engine.start(Start(id=0, tokens=[1, 2, 3], max_seconds=0.5)))
            assert finish.reason == "time" and len(tokens) == finish.output_tokens > 0
            assert 0.5 <= time.perf_counter() - started < 2

    asyncio.run(run())

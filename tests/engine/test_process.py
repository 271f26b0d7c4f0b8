"""The engine process: answers, aborts, crashes, and what it leaves behind, on a tiny model that computes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from tests.engine.asking import ask, opened, read, tiny_config
from vivace.engine.messages import EngineConfig, Finish, Progress, Sampling, Start
from vivace.engine.process import EngineCrashed, EngineProcess
from vivace.errors import VivaceError

PROMPT = list(range(1, 101))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> EngineConfig:
    return tiny_config(tmp_path_factory.mktemp("tiny"))


def start(tokens: list[int] = PROMPT, **values: object) -> Start:
    return Start(id=0, tokens=tokens, **values)  # type: ignore[arg-type]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def pid_of(engine: EngineProcess) -> int:
    assert engine._process is not None
    return engine._process.pid


def test_it_starts_answers_and_ends(tiny: EngineConfig) -> None:
    async def run() -> None:
        seen: list[tuple[str, float]] = []
        engine = EngineProcess(tiny)
        ready = await engine.open(lambda stage, share: seen.append((stage, share)))
        assert await engine.open() is ready
        assert (ready.window, ready.vocab, ready.kv_tokens) == (512, 320, 4096)
        assert all(0 <= share <= 1 for _, share in seen)
        pid = pid_of(engine)
        tokens, finish = await read(engine.start(start(max_tokens=20)))
        assert len(tokens) == 20 and all(0 <= token < 320 for token in tokens)
        assert finish == Finish("length", 100, 0, 20, finish.drafted, finish.accepted, finish.steps)
        assert finish.accepted <= finish.drafted and 1 <= finish.steps <= 20
        (again, _), (other, _) = await ask(engine, [start(max_tokens=20), start([5, 6, 7], max_tokens=20)])
        assert again == tokens != other
        await engine.close()
        assert not alive(pid)
        await engine.close()
        with pytest.raises(VivaceError, match="not running"):
            engine.start(start())

    asyncio.run(run())


def test_a_model_that_cannot_be_loaded_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + bytes(100))

    async def run() -> None:
        engine = EngineProcess(EngineConfig(model_path=str(tmp_path / "bad.gguf"), cache_dir=str(tmp_path)))
        for _ in range(2):
            with pytest.raises(VivaceError) as caught:
                await engine.open()
            assert caught.value.code.startswith("model_file") and not isinstance(caught.value, EngineCrashed)
        await engine.close()

    asyncio.run(run())


@pytest.mark.parametrize("kv_tokens", [32, 100])
def test_little_kv_memory_makes_a_small_window(tiny: EngineConfig, kv_tokens: int) -> None:
    async def run() -> None:
        async with opened(msgspec.structs.replace(tiny, kv_tokens=kv_tokens)) as engine:
            assert engine.ready is not None and engine.ready.window == -(-kv_tokens // 32) * 32
            tokens, finish = await read(engine.start(start([1, 2, 3])))
            assert finish.reason == "window" and len(tokens) == engine.ready.window - 3
            assert (await read(engine.start(start(list(range(200))))))[1].reason == "error"

    asyncio.run(run())


def test_what_can_never_run_is_refused_and_the_rest_goes_on(tiny: EngineConfig) -> None:
    async def run() -> None:
        async with opened(tiny) as engine:
            answers = await ask(engine, [start([]), start([1] * 512), start(max_tokens=3)])
            assert [finish.reason for _, finish in answers] == ["error", "error", "length"]
            assert "512" in answers[1][1].message and "empty" in answers[0][1].message

    asyncio.run(run())


def test_a_crash_is_an_error_on_what_runs_and_a_fresh_start_after(tiny: EngineConfig) -> None:
    async def run() -> None:
        engine = EngineProcess(tiny)
        await engine.open()
        first = pid_of(engine)
        expected, _ = await read(engine.start(start(max_tokens=10)))
        os.kill(first, signal.SIGSTOP)
        running = [asyncio.create_task(read(engine.start(start()))) for _ in range(3)]
        report = asyncio.create_task(engine.report())
        await asyncio.sleep(0.05)
        os.kill(first, signal.SIGKILL)
        for task in [*running, report]:
            with pytest.raises(EngineCrashed, match="signal 9"):
                await task
        assert engine.ready is None and not alive(first)
        await engine.open()
        assert pid_of(engine) != first
        assert (await read(engine.start(start(max_tokens=10))))[0] == expected
        await engine.close()

    asyncio.run(run())


def test_closing_fails_what_runs(tiny: EngineConfig) -> None:
    async def run() -> None:
        engine = EngineProcess(tiny)
        await engine.open()
        os.kill(pid_of(engine), signal.SIGSTOP)
        running = asyncio.create_task(read(engine.start(start())))
        closing = asyncio.create_task(engine.close())
        await asyncio.sleep(0.05)
        os.kill(pid_of(engine), signal.SIGCONT)
        await closing
        # What the engine had finished before it read the message counts.
        assert isinstance((await asyncio.gather(running, return_exceptions=True))[0], EngineCrashed | tuple)

    asyncio.run(run())


CHILD = """
import asyncio, os, signal, sys, time
import msgspec
from tests.engine.asking import read
from vivace.engine.messages import EngineConfig, Start
from vivace.engine.process import EngineProcess

async def main():
    engine = EngineProcess(msgspec.json.decode(sys.argv[1], type=EngineConfig))
    await engine.open()
    print(engine._process.pid, flush=True)
    {body}

signal.signal(signal.SIGINT, lambda number, frame: None)
asyncio.run(main())
"""


def child(config: EngineConfig, body: str) -> subprocess.Popen[str]:
    """A Python process in a group of its own that opens an engine, prints its id and goes on with ``body``."""
    command = [sys.executable, "-c", CHILD.format(body=body), msgspec.json.encode(config).decode()]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=Path(__file__).parents[2],
    )


@pytest.mark.parametrize("busy", [False, True])
def test_it_ends_when_whoever_started_it_dies(tiny: EngineConfig, busy: bool) -> None:
    work = "engine.start(Start(id=0, tokens=[1, 2, 3])); " if busy else ""
    with child(tiny, f"{work}await asyncio.sleep(60)") as parent:
        assert parent.stdout is not None
        engine = int(parent.stdout.readline())
        assert alive(engine)
        parent.kill()
        until = time.monotonic() + 5
        while alive(engine) and time.monotonic() < until:
            time.sleep(0.01)
        assert not alive(engine)
        assert parent.stderr is not None and parent.stderr.read() == "", "the engine has nobody to show a traceback"


def test_ctrl_c_in_the_terminal_does_not_reach_it(tiny: EngineConfig) -> None:
    body = "os.killpg(0, signal.SIGINT); time.sleep(0.3)\n"
    body += (
        "    print(len((await read(engine.start(Start(id=0, tokens=[1], max_tokens=7))))[0]))\n    await engine.close()"
    )
    with child(tiny, body) as parent:
        out, _ = parent.communicate(timeout=60)
        assert parent.returncode == 0 and out.split()[1] == "7"


def test_many_starts_and_aborts_leave_nothing(tiny: EngineConfig) -> None:
    """Waiting, in prefill, in decode, finished: wherever the abort meets them."""

    async def run() -> None:
        async with opened(tiny) as engine:

            async def cycles(count: int) -> list[str]:
                reasons = []
                for number in range(count):
                    streams = [engine.start(start([number % 300 + i for i in range(3)] * 40)) for _ in range(3)]
                    if number % 3:
                        await asyncio.sleep(0.001 * (number % 7))
                    for stream in streams:
                        stream.abort()
                        stream.abort()
                    reasons += [(await read(stream))[1].reason for stream in streams]
                return reasons

            reasons = await cycles(100)
            before = await engine.report()
            reasons += await cycles(200)
            after = await engine.report()
            assert reasons.count("aborted") > 600 and set(reasons) <= {"aborted", "window"}
            assert (after.running, after.waiting, after.kv_blocks_held) == (0, 0, 0)
            assert after.resident_bytes - before.resident_bytes < 4 << 20
            engine.start(start()).abort()  # Nobody reads this one.
            tokens, _ = await read(engine.start(start(max_tokens=5)))
            assert len(tokens) == 5

    asyncio.run(run())


def test_an_abort_ends_its_own_request_only(tiny: EngineConfig) -> None:
    async def run() -> None:
        async with opened(tiny) as engine:
            whole, _ = await read(engine.start(start(max_tokens=300)))
            kept = engine.start(start(max_tokens=300))
            dropped = [engine.start(start([n] * 90)) for n in range(2, 6)]
            for stream in dropped:
                await asyncio.sleep(0.002)
                stream.abort()
            assert (await read(kept))[0] == whole
            assert {(await read(stream))[1].reason for stream in dropped} <= {"aborted", "window"}

    asyncio.run(run())


def test_equal_prompts_are_computed_once_and_said_to_be(tiny: EngineConfig) -> None:
    async def run() -> None:
        async with opened(tiny) as engine:
            answers = await ask(engine, [start(list(range(1, 301)), max_tokens=5) for _ in range(4)])
            first, *others = sorted(finish.cached_tokens for _, finish in answers)
            assert first == 0 and all(288 <= cached <= 299 for cached in others)
            assert all(tokens == answers[0][0] for tokens, _ in answers)

    asyncio.run(run())


def test_a_seed_gives_the_same_tokens_with_and_without_a_draft(tiny: EngineConfig) -> None:
    async def run() -> None:
        async with opened(tiny) as engine:
            for seed in range(10):
                sampling = Sampling(temperature=0.9, top_p=0.95, repetition_penalty=1.1, seed=seed)
                plain, _ = await read(engine.start(start(sampling=sampling, max_tokens=60, draft=False)))
                reference = [*plain[:20], 1, 2, 3, *plain[25:]]
                drafted, finish = await read(engine.start(start(sampling=sampling, max_tokens=60, reference=reference)))
                assert drafted == plain
                assert finish.accepted > 10

    asyncio.run(run())


def test_time_runs_out_where_it_was_limited(tiny: EngineConfig) -> None:
    async def run() -> None:
        async with opened(tiny) as engine:
            os.kill(pid_of(engine), signal.SIGSTOP)
            stream = engine.start(start(max_seconds=0.05))
            started = time.monotonic()
            os.kill(pid_of(engine), signal.SIGCONT)
            tokens, finish = await read(stream)
            assert finish.reason in ("time", "window")
            if finish.reason == "time":
                assert time.monotonic() - started >= 0.05 and finish.output_tokens == len(tokens)
            assert (await read(engine.start(start(max_seconds=1e-6))))[1].reason == "time"

    asyncio.run(run())


def test_progress_comes_while_it_computes(tiny: EngineConfig) -> None:
    async def run() -> None:
        async with opened(tiny) as engine:
            pieces: list[Progress] = [progress async for progress in engine.start(start(max_tokens=50, draft=False))]
            assert len(pieces) >= 40 and all(piece.tokens for piece in pieces)
            assert [piece.finish is not None for piece in pieces] == [False] * (len(pieces) - 1) + [True]

    asyncio.run(run())


def test_ids_outside_the_vocabulary_are_refused_and_the_engine_lives_on(tiny: EngineConfig) -> None:
    async def run() -> None:
        async with opened(tiny) as engine:
            for bad in (start([1, 320]), start([-1]), start(reference=[1, 2, 999])):
                tokens, finish = await read(engine.start(bad))
                assert not tokens and finish.reason == "error" and "320" in finish.message
            tokens, _ = await read(engine.start(start(max_tokens=3)))
            assert len(tokens) == 3

    asyncio.run(run())

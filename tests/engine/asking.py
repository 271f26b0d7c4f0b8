"""Engine processes for tests: a tiny random model that needs no download, and whole answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from vivace.engine.messages import EngineConfig, Finish, Start
from vivace.engine.process import EngineProcess, EngineStream
from vivace.settings import Settings

Answer = tuple[list[int], Finish]


def tiny_config(folder: Path) -> EngineConfig:
    """A model of 512 positions that takes well under a millisecond a token; file and weights lie in ``folder``."""
    from tests.engine import tinymodels  # PyTorch and transformers, which the child processes of tests do without

    _, path = tinymodels.make("qwen2", folder, tied=True)
    return EngineConfig(model_path=str(path), cache_dir=str(folder), device="cpu", threads=1, kv_tokens=4096)


def real_config(path: Path, kv_tokens: int = 16384) -> EngineConfig:
    return EngineConfig(model_path=str(path), cache_dir=str(Settings().cache_dir), device="cpu", kv_tokens=kv_tokens)


@asynccontextmanager
async def opened(config: EngineConfig) -> AsyncIterator[EngineProcess]:
    engine = EngineProcess(config)
    await engine.open()
    try:
        yield engine
    finally:
        await engine.close()


async def read(stream: EngineStream) -> Answer:
    tokens: list[int] = []
    async for progress in stream:
        tokens += progress.tokens
        if progress.finish is not None:
            return tokens, progress.finish
    raise AssertionError("the answer broke off without a finish")


async def ask(engine: EngineProcess, requests: Iterable[Start], at_once: int = 64) -> list[Answer]:
    """The answers in order, ``at_once`` of them in the engine together."""
    places = asyncio.Semaphore(at_once)

    async def one(request: Start) -> Answer:
        async with places:
            return await read(engine.start(request))

    return await asyncio.gather(*(one(request) for request in requests))

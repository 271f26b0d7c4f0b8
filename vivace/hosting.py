"""What the benchmark wants of the rooms below it, composed for one catalogue model (see :mod:`vivace.bench.host`)."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

import numpy as np

from vivace.backends.local import engine_config
from vivace.bench.host import Bounds, Host, ModelFacts
from vivace.composing import compose_gateway
from vivace.dialects.chat import ChatDialect
from vivace.engine import messages as m
from vivace.engine.kv import BLOCK
from vivace.engine.load import default_threads, load_runner
from vivace.engine.process import EngineProcess, EngineStream
from vivace.engine.runner import AbortFlag, Span
from vivace.engine.scheduler import Limits
from vivace.engine.spec import ModelSpec, spec_from_gguf
from vivace.errors import VivaceError
from vivace.models.catalogue import find_model
from vivace.models.gguf_file import open_gguf
from vivace.models.pull import pull
from vivace.models.tokenizer import Tokenizer
from vivace.plan import calibrate as plan
from vivace.protocol.items import Message
from vivace.settings import Settings


@asynccontextmanager
async def open_host(model: str, settings: Settings) -> AsyncIterator[Host]:
    """Everything for one catalogue model, pulled where it is not there yet."""
    info = find_model(model, settings)
    path = pull(info, settings)
    with open_gguf(path) as file:
        spec = spec_from_gguf(file.metadata, {name: file.tensor_shape(name) for name in file.tensor_names})
    config = engine_config(path, settings)
    service = compose_gateway(settings, database=False)
    try:
        yield Host(
            service=service,
            facts=facts_of(model, spec, info.sha256),
            texts=ModelTexts(ChatDialect(Tokenizer.load(path, settings))),
            token_engine=lambda: Engine(config),
            step_timer=lambda: Passes(config),
            probe=lambda: probe(settings.threads),
            model_file=str(path),
        )
    finally:
        await service.close()


def facts_of(name: str, spec: ModelSpec, sha256: str) -> ModelFacts:
    return ModelFacts(
        name=name,
        weights=spec.linear_parameters,
        kv_values=2 * spec.layers * spec.kv_width,
        layers=spec.layers,
        query_width=spec.q_width,
        window=spec.window,
        file_sha256=sha256,
    )


def probe(threads: int = 0) -> Bounds:
    """What the machine can do; all zero where the native kernels were not built."""
    from vivace.engine import native

    threads = threads or default_threads()
    if not native.available():
        return Bounds(threads=threads)
    return Bounds(
        bytes_per_second=native.probe(0, threads),
        int8_per_second=native.probe(1, threads),
        bf16_per_second=native.probe(2, threads),
        threads=threads,
    )


class ModelTexts:
    """See :class:`vivace.bench.host.Texts`."""

    def __init__(self, dialect: ChatDialect) -> None:
        self._dialect = dialect

    @property
    def end_tokens(self) -> list[int]:
        return self._dialect.end_tokens

    def prompt(self, instructions: str, user: str) -> list[int]:
        system = [Message("system", instructions)] if instructions else []
        return self._dialect.prompt([*system, Message("user", user)])

    def encode(self, text: str) -> list[int]:
        return self._dialect.tokenizer.encode(text)

    def decode(self, tokens: Sequence[int]) -> str:
        return self._dialect.tokenizer.decode(tokens, skip_special=True)

    def reference(self, text: str) -> list[int]:
        return self._dialect.reference(text)


class Engine:
    """See :class:`vivace.bench.host.TokenEngine`."""

    def __init__(self, config: m.EngineConfig) -> None:
        self._process = EngineProcess(config)

    async def open(self) -> None:
        await self._process.open()

    def ask(
        self,
        tokens: list[int],
        *,
        max_tokens: int,
        reference: Sequence[int] = (),
        end: Sequence[int] = (),
        temperature: float = 0.0,
        seed: int = 0,
        priority: int = 0,
        draft: bool = True,
    ) -> EngineStream:
        return self._process.start(
            m.Start(
                id=0,
                tokens=tokens,
                sampling=m.Sampling(temperature=temperature, seed=seed),
                reference=list(reference),
                end=list(end),
                max_tokens=max_tokens,
                priority=priority,
                draft=draft,
            )
        )

    async def resident_bytes(self) -> int:
        return (await self._process.report()).resident_bytes

    async def close(self) -> None:
        await self._process.close()


class Passes:
    """See :class:`vivace.bench.host.StepTimer`: the engine's own runner, loaded into this process."""

    def __init__(self, config: m.EngineConfig, blocks: int = 64) -> None:
        self._runner, self._spec = load_runner(config, Limits(), lambda stage, share: None)
        self._blocks = list(range(min(self._runner.kv_blocks, blocks)))
        self._abort = AbortFlag()
        self._filled = 0

    def seconds(self, rows: int, context: int, outputs: int | None = None) -> float:
        self._fill(context)
        tokens = np.random.default_rng(rows).integers(100, self._spec.vocab // 2, rows).tolist()
        span = Span(tokens, context, self._blocks, rows if outputs is None else outputs)
        began = time.perf_counter()
        if self._runner.forward([span], self._abort) is None:
            raise VivaceError("A timed pass was aborted.", code="engine")
        return time.perf_counter() - began

    def close(self) -> None:
        del self._runner

    def _fill(self, context: int) -> None:
        """Compute the positions before a timed pass, once."""
        if context + 512 > len(self._blocks) * BLOCK:
            raise VivaceError(f"A timed pass behind {context} positions does not fit.", code="engine")
        for start in range(self._filled, context, 128):
            tokens = np.random.default_rng(start).integers(100, self._spec.vocab // 2, min(128, context - start))
            self._runner.forward([Span(tokens.tolist(), start, self._blocks, 0)], self._abort)
        self._filled = max(self._filled, context)


class TimedEngine:
    """See :class:`vivace.plan.calibrate.Machine`."""

    def __init__(self, passes: Passes, threads: int) -> None:
        self._passes = passes
        self._threads = threads

    def seconds(self, rows: int, before: int, outputs: int) -> float:
        return self._passes.seconds(rows, before, outputs)

    def bounds(self) -> plan.Bounds:
        """The best of three probes: other programs only ever take away."""
        found = [probe(self._threads) for _ in range(3)]
        return plan.Bounds(
            bytes_per_second=max(bounds.bytes_per_second for bounds in found),
            int8_per_second=max(bounds.int8_per_second for bounds in found),
            bf16_per_second=max(bounds.bf16_per_second for bounds in found),
            threads=found[0].threads,
            memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        )


@contextmanager
def open_machine(model: str, settings: Settings) -> Iterator[TimedEngine]:
    """This machine with a catalogue model, for the planner to time."""
    passes = Passes(engine_config(pull(find_model(model, settings), settings), settings), blocks=256)
    try:
        yield TimedEngine(passes, settings.threads)
    finally:
        passes.close()

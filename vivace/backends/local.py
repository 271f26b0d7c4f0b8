"""The embedded engine as a backend: messages to tokens, tokens to text, and the token ids behind each answer."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

from msgspec import Struct

from vivace.backends.base import End, EndReason, Text, Watch
from vivace.dialects.chat import ChatDialect
from vivace.engine.messages import EngineConfig, Finish, Sampling, Start
from vivace.engine.process import EngineProcess, EngineStream
from vivace.errors import UsageError, VivaceError
from vivace.models.catalogue import ModelInfo
from vivace.models.tokenizer import IncrementalDecoder, Tokenizer
from vivace.protocol.contracts import ModelCard
from vivace.protocol.items import InputTokensDetails, Message, OutputTokensDetails, Usage
from vivace.protocol.requests import ResponseRequest
from vivace.settings import Settings


class TokenTrail(Struct, frozen=True):
    """The continuation of a local answer: the exact token ids of prompt and output."""

    tokens: list[int]


class LocalBackend:
    """One catalogue model on this machine's engine process."""

    def __init__(self, info: ModelInfo, path: Path, settings: Settings) -> None:
        self.info = info
        self.path = path
        self.settings = settings
        self.engine = EngineProcess(engine_config(path, settings))
        self._dialect: ChatDialect | None = None

    async def open(self, watch: Watch) -> ModelCard:
        # The tokenizer is built while the engine process starts.
        ready, self._dialect = await asyncio.gather(self.engine.open(watch), asyncio.to_thread(self._load_dialect))
        return ModelCard(
            name=self.info.name,
            context_window=ready.window,
            dialect=self.info.dialect,
            takes_reference=True,
            detail=ready.detail,
        )

    async def count(self, messages: list[Message]) -> int:
        return len(self._opened.prompt(messages))

    def start(self, messages: list[Message], request: ResponseRequest) -> LocalRun:
        start = self.frame(messages, request)
        return LocalRun(self.engine.start(start), start, self._opened.tokenizer, request.stop)

    def frame(self, messages: list[Message], request: ResponseRequest) -> Start:
        """What the engine is told of a request. Raises :class:`UsageError` for options out of their range."""
        dialect = self._opened
        if any(not stop for stop in request.stop):
            raise UsageError("A stop text is empty.", param="stop")
        return Start(
            id=0,
            tokens=dialect.prompt(messages),
            sampling=_sampling(request),
            reference=dialect.reference(request.prediction.content) if request.prediction else [],
            end=dialect.end_tokens,
            max_tokens=request.max_output_tokens or 0,
            max_seconds=request.max_seconds or 0.0,
            stop=[stop.encode() for stop in request.stop],
            priority=request.priority,
        )

    async def close(self) -> None:
        await self.engine.close()

    @property
    def _opened(self) -> ChatDialect:
        if self._dialect is None:
            raise VivaceError("The model is not open.", code="engine")
        return self._dialect

    def _load_dialect(self) -> ChatDialect:
        return self._dialect or ChatDialect(Tokenizer.load(self.path, self.settings))


class LocalRun:
    """One answer of the engine, as text."""

    def __init__(self, stream: EngineStream, start: Start, tokenizer: Tokenizer, stops: list[str]) -> None:
        self._stream = stream
        self._start = start
        self._decoder = IncrementalDecoder(tokenizer, skip_special=True)
        self._stops = stops
        self._held = ""
        self._pieces: asyncio.Queue[Text | End] = asyncio.Queue()
        self._output: list[int] = []
        # Read to the end whether or not somebody listens, so that stop() can wait for it.
        self._ended: asyncio.Task[End] = asyncio.create_task(self._pump())

    async def __aiter__(self) -> AsyncIterator[Text | End]:
        while True:
            piece = await self._pieces.get()
            yield piece
            if isinstance(piece, End):
                return

    async def stop(self) -> End:
        if not self._ended.done():
            self._stream.abort()
        return await asyncio.shield(self._ended)

    async def _pump(self) -> End:
        try:
            end = await self._read()
        except VivaceError as error:
            end = End("error", Usage(), str(error))
        self._pieces.put_nowait(end)
        return end

    async def _read(self) -> End:
        async for progress in self._stream:
            self._output += progress.tokens
            text = self._held + self._decoder.feed(*progress.tokens)
            finish = progress.finish
            if finish is None:
                keep = _could_be_a_stop(text, self._stops)
                self._held, text = text[len(text) - keep :], text[: len(text) - keep]
            else:
                text += self._decoder.finish()
                places = [place for stop in self._stops if (place := text.find(stop)) >= 0]
                text = text[: min(places)] if finish.trim and places else text
            if text:
                self._pieces.put_nowait(Text(text))
            if finish is not None:
                return self._end(finish)
        raise VivaceError("The engine's answer broke off.", code="engine")

    def _end(self, finish: Finish) -> End:
        reason: EndReason = "length" if finish.reason == "window" else finish.reason
        usage = Usage(
            input_tokens=finish.prompt_tokens,
            input_tokens_details=InputTokensDetails(finish.cached_tokens),
            output_tokens=finish.output_tokens,
            output_tokens_details=OutputTokensDetails(
                accepted_prediction_tokens=finish.accepted,
                rejected_prediction_tokens=finish.drafted - finish.accepted,
            ),
            total_tokens=finish.prompt_tokens + finish.output_tokens,
        )
        return End(reason, usage, finish.message, TokenTrail(self._start.tokens + self._output))


def engine_config(path: Path, settings: Settings) -> EngineConfig:
    """The engine's configuration for a model file under the user's settings."""
    return EngineConfig(
        model_path=str(path),
        cache_dir=str(settings.cache_dir),
        device=settings.device,
        precision=settings.precision,
        kernels=settings.kernels,
        threads=settings.threads,
        kv_tokens=settings.kv_tokens,
        kv_type=settings.kv_type,
    )


def _sampling(request: ResponseRequest) -> Sampling:
    """Greedy unless a temperature is asked for; a request without a seed gets a random one."""
    values = {
        "temperature": (request.temperature, 0.0, 0.0, 10.0),
        "top_p": (request.top_p, 1.0, 0.0, 1.0),
        "min_p": (request.min_p, 0.0, 0.0, 1.0),
        "repetition_penalty": (request.repetition_penalty, 1.0, 0.01, 100.0),
    }
    chosen: dict[str, float] = {}
    for name, (value, default, low, high) in values.items():
        chosen[name] = default if value is None else value
        if not low <= chosen[name] <= high:
            raise UsageError(f"{name} is {value}; it goes from {low:g} to {high:g}.", param=name)
    seed = request.seed if request.seed is not None else random.getrandbits(63)
    return Sampling(**chosen, top_k=max(0, request.top_k or 0), seed=seed % (1 << 63))


def _could_be_a_stop(text: str, stops: list[str]) -> int:
    """How many characters at the end of ``text`` may be the beginning of a stop text."""
    longest = max(map(len, stops), default=1) - 1
    return next((n for n in range(min(longest, len(text)), 0, -1) if any(s.startswith(text[-n:]) for s in stops)), 0)

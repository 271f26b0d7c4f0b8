"""The embedded engine as a backend: jobs to what the engine is told."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

import msgspec

from vivace.backends.base import Job, Run, Watch
from vivace.backends.local_run import Answering, EmptyRun
from vivace.backends.local_run import LocalRun as LocalRun
from vivace.backends.local_run import TokenTrail as TokenTrail
from vivace.backends.memory import AnswerMemory
from vivace.backends.pieces import PieceSink
from vivace.dialects.chat import ChatDialect, Prompt, Trail
from vivace.dialects.completion import completion_ends, completion_prompt, completion_stops
from vivace.dialects.constrain import Constraint, constrain
from vivace.dialects.harmony import HARMONY_TOKENS
from vivace.engine.messages import EngineConfig, Grammar, Ready, Sampling, Start
from vivace.engine.process import EngineProcess
from vivace.errors import UsageError, VivaceError
from vivace.models.catalogue import ModelInfo
from vivace.models.tokenizer import Tokenizer
from vivace.protocol.contracts import FREE, ModelCard
from vivace.protocol.items import Item, Message
from vivace.protocol.options import GrammarFormat, JsonObjectFormat, JsonSchemaFormat, TextFormat
from vivace.protocol.requests import ResponseRequest
from vivace.settings import Settings

_CONSTRAINTS = 64
"""Grammars that a backend keeps ready; a conversation uses the same one turn after turn."""


class LocalBackend:
    """One catalogue model on this machine's engine process."""

    def __init__(self, info: ModelInfo, path: Path, settings: Settings) -> None:
        self.info = info
        self.path = path
        self.settings = settings
        self.engine = EngineProcess(engine_config(path, settings))
        self._dialect: ChatDialect | None = None
        self._memory = AnswerMemory()
        self._constraints: dict[bytes, Constraint] = {}

    @property
    def ready(self) -> bool:
        return self._dialect is not None and self.engine.ready is not None

    async def open(self, watch: Watch) -> ModelCard:
        if self._dialect is not None and self.engine.ready is not None:
            return self._card(self.engine.ready, self._dialect)
        # The tokenizer is built while the engine process starts.
        ready, dialect = await asyncio.gather(self.engine.open(watch), asyncio.to_thread(self._load_dialect))
        self._dialect = dialect
        return self._card(ready, dialect)

    def _card(self, ready: Ready, dialect: ChatDialect) -> ModelCard:
        return ModelCard(
            name=self.info.name,
            context_window=ready.window,
            dialect=self.info.dialect,
            takes_reference=True,
            detail=ready.detail,
            tools=True,
            grammars=not dialect.family.channels,
            price=FREE,
            reasoning=dialect.family.thinks or dialect.family.channels,
        )

    async def count(self, job: Job) -> int:
        return len(self.prompt(job).tokens)

    def start(self, job: Job) -> Run:
        if job.prefill_only:
            try:
                prompt = self.prompt(job)
            except VivaceError as error:
                if error.code != "template":
                    raise
                return EmptyRun()  # Some templates take no conversation without a question: nothing to make ready yet.
        else:
            prompt = self.prompt(job)
        start = self.frame(job, prompt)
        return LocalRun(
            self.engine.start(start), start, self._opened.tokenizer, _stops(job.request), self._answering(job, prompt)
        )

    def prompt(self, job: Job) -> Prompt:
        """The token ids that a job's answer begins behind."""
        if job.request.prompt is not None:
            return Prompt(completion_prompt(self._opened.tokenizer, job.request.prompt), b"completion")
        options = job.request.reasoning
        all_reasoning = options is None or options.context != "current_turn"
        trail = job.continuation if isinstance(job.continuation, TokenTrail) else None
        if trail is not None and (
            not trail.whole
            or trail.tools != job.tools.digest
            or (trail.reasoned and not all_reasoning and _asks(job.items[job.known :]))
        ):
            trail = None
        return self._opened.compose(
            job.items,
            job.tools,
            trail=Trail(trail.tokens, trail.place) if trail is not None else None,
            known=job.known if trail is not None else 0,
            recall=self._memory.recall,
            all_reasoning=all_reasoning,
            effort=(options.effort if options is not None else None) or "",
            answer=not job.prefill_only,
        )

    def frame(self, job: Job, prompt: Prompt | None = None) -> Start:
        """What the engine is told of a job. Raises :class:`UsageError` for options out of their range."""
        dialect = self._opened
        request = job.request
        if any(not stop for stop in request.stop):
            raise UsageError("A stop text is empty.", param="stop")
        sampling = _sampling(request)
        prompt = prompt or self.prompt(job)
        end = dialect.end_tokens
        if request.prompt is not None:
            end = sorted({*end, *completion_ends(dialect.tokenizer)})
        grammar = "" if job.prefill_only else self.constraint(job, prompt.thinking).text
        return Start(
            id=0,
            tokens=prompt.tokens,
            sampling=sampling,
            reference=dialect.reference(request.prediction.content) if request.prediction else [],
            end=end,
            max_tokens=request.max_output_tokens or 0,
            max_seconds=request.max_seconds or 0.0,
            stop=[stop.encode() for stop in _stops(request)],
            priority=job.priority or request.priority,
            grammar=Grammar(text=grammar) if grammar else None,
            prefill_only=job.prefill_only,
        )

    def constraint(self, job: Job, thinking: bool = False) -> Constraint:
        """What the answer is forced to be. Raises :class:`UsageError` for a grammar that cannot be used."""
        form = _form(job.request)
        if form is None and not job.tools.tools:
            return Constraint()
        tools = job.tools
        key = msgspec.json.encode([tools.digest, tools.mode, tools.allowed, tools.parallel, form, thinking])
        if key not in self._constraints:
            if len(self._constraints) >= _CONSTRAINTS:
                self._constraints.pop(next(iter(self._constraints)))
            dialect = self._opened
            found = constrain(dialect.family, dialect.tokenizer.special_id, tools, form, thinking)
            self._constraints[key] = found
        return self._constraints[key]

    async def close(self) -> None:
        await self.engine.close()

    def _answering(self, job: Job, prompt: Prompt) -> Answering:
        dialect = self._opened
        sink = PieceSink()
        family = dialect.family
        marks = HARMONY_TOKENS if family.channels else family.syntax.tokens
        parser = family.parser(job.tools, sink, opened=prompt.thinking, printed=_form(job.request) is None)
        ids = (dialect.tokenizer.special_id(mark) for mark in (*marks, "<think>", "</think>"))
        shown = {id for id in ids if id is not None}
        window = self.engine.ready.window if self.engine.ready else 0
        return Answering(
            dialect=dialect,
            prompt=prompt,
            memory=self._memory,
            tools=job.tools.digest,
            sink=sink,
            parser=parser,
            shown=frozenset(shown if parser else ()),
            window=window,
            reasoned=isinstance(job.continuation, TokenTrail) and job.continuation.reasoned,
        )

    @property
    def _opened(self) -> ChatDialect:
        if self._dialect is None:
            raise VivaceError("The model is not open.", code="engine")
        return self._dialect

    def _load_dialect(self) -> ChatDialect:
        return self._dialect or ChatDialect(Tokenizer.load(self.path, self.settings), self.info.dialect)


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


def _stops(request: ResponseRequest) -> list[str]:
    return [*request.stop, *(completion_stops(request.prompt) if request.prompt is not None else ())]


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


def _form(request: ResponseRequest) -> TextFormat | None:
    """The form that an answer must have, where one is asked for."""
    form = request.text.format if request.text is not None else None
    return form if isinstance(form, JsonObjectFormat | JsonSchemaFormat | GrammarFormat) else None


def _asks(items: Sequence[Item]) -> bool:
    """Whether a turn of the user begins in these items."""
    return any(isinstance(item, Message) and item.role == "user" for item in items)

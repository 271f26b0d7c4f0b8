"""A backend without a model, that says what a script says, token by token on a clock.

Token ``i`` of an answer is due at ``start + prefill + ttft + i / tok_s``. Tokens that became due while nobody looked
come together in one piece, so a second holds exactly ``tok_s`` tokens however busy the machine is.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from bisect import bisect_right
from collections.abc import AsyncIterator
from itertools import accumulate

from msgspec import Struct

from vivace.backends.base import CallEnd, CallStart, CallText, End, EndReason, Job, Piece, Reasoning, Text, Watch
from vivace.backends.clock import Clock
from vivace.backends.paced_script import Chooser, Rule, Script, Step
from vivace.backends.paced_tokens import PrefixMemory, Prompt, Trail, cut, extend, filler, said_call, said_message
from vivace.dialects.tools import FlatTool, ToolTable
from vivace.errors import UsageError
from vivace.protocol.contracts import FREE, ModelCard
from vivace.protocol.items import InputTokensDetails, Message, OutputTokensDetails, Usage, new_id


class Pace(Struct, frozen=True, kw_only=True):
    """How fast a paced backend is. Times are seconds; ``prefill_tok_s`` None reads prompts in no time."""

    tok_s: float = 1000.0
    ttft: float = 0.05
    prefill_tok_s: float | None = None
    reference_speed: float = 1.0
    """How many times faster tokens come that occur in the reference."""
    stamp: bool = False
    """The text of each token is its due time: nanoseconds of ``time.monotonic_ns()`` and a space."""
    tick: float = 0.001
    """Streams wake together, at most this often."""

    def __post_init__(self) -> None:
        for name in ("tok_s", "reference_speed", "prefill_tok_s", "tick"):
            if (value := getattr(self, name)) is not None and not 0 < value < math.inf:
                raise UsageError(f"{name} is {value}; it takes a number above 0.", param=name)
        if not 0 <= self.ttft < math.inf:
            raise UsageError(f"ttft is {self.ttft}; it takes 0 or more.", param="ttft")


class PacedBackend:
    """Answers by a script; see :mod:`vivace.backends.paced_script`."""

    ready: bool = True
    """There is nothing to open."""

    def __init__(
        self, name: str = "paced", script: Script | None = None, pace: Pace | None = None, window: int = 131_072
    ) -> None:
        if window < 1:
            raise UsageError(f"window is {window}; it takes 1 or more.", param="window")
        self.name = name
        self.pace = pace or Pace()
        self.window = window
        self.memory = PrefixMemory()
        self.clock = Clock(self.pace.tick)
        self.runs: set[PacedRun] = set()
        """Those that have not ended."""
        self._chooser = Chooser(script or Script())

    async def open(self, watch: Watch) -> ModelCard:
        return ModelCard(
            name=self.name,
            context_window=self.window,
            dialect="paced",
            takes_reference=True,
            tools=True,
            price=FREE,
            detail=f"no model: a script at {self.pace.tok_s:g} tok/s, {self.pace.ttft * 1000:g} ms to the first token",
        )

    async def count(self, job: Job) -> int:
        return self.read(job).tokens

    def start(self, job: Job) -> PacedRun:
        prompt = self.read(job)
        if prompt.tokens >= self.window:
            raise UsageError(
                f"The prompt has {prompt.tokens} tokens; the window of {self.name} is {self.window}.",
                code="context_length_exceeded",
                param="input",
            )
        rule, steps = self._chooser.choose(job)
        return PacedRun(self, job, prompt, rule, steps)

    def read(self, job: Job) -> Prompt:
        """The prompt of a job as the prefix memory sees it now."""
        behind = job.continuation if isinstance(job.continuation, Trail) else None
        if job.request.prompt is not None:
            return self.memory.read(job.tools, [Message("user", job.request.completed_text)])
        return self.memory.read(job.tools, job.items[job.known :] if behind else job.items, behind)

    async def close(self) -> None:
        for run in list(self.runs):
            await run.stop()
        self.clock.close()


class Speech:
    """Tokens with their due times: ``begin`` seconds of the loop, then ``gap`` seconds each, or at ``offsets``."""

    def __init__(self, kind: type[Text] | type[Reasoning] | type[CallText], tokens: list[str], begin: float) -> None:
        self.kind = kind
        self.tokens = tokens
        self.begin = begin
        self.gap = 0.0
        self.offsets: list[float] | None = None
        self.call: FlatTool | None = None
        self.whole = True
        self.known: list[bool] = []
        self.sent = 0
        self.texts: list[str] = []

    def due(self, now: float) -> int:
        """How many tokens are due."""
        if now < self.begin:
            return 0
        if self.offsets is not None:
            return bisect_right(self.offsets, now - self.begin, hi=len(self.tokens))
        # A hair is added, so that the very moment at which a token is due is never rounded to before it.
        return min(len(self.tokens), int((now - self.begin) / self.gap + 1e-6) + 1 if self.gap else len(self.tokens))

    def at(self, token: int) -> float:
        """When a token is due; one past the last is when the next thing may begin."""
        return self.begin + (self.gap * token if self.offsets is None else self.offsets[token])

    @property
    def parts(self) -> tuple[str, ...] | None:
        """What was sent, as it counts in a later prompt; a call that is not whole counts nothing."""
        if self.kind is Text:
            return said_message("".join(self.texts)) if self.sent else None
        if self.call is None or not self.whole or self.sent < len(self.tokens):
            return None
        return said_call(self.call.namespace, self.call.public_name or self.call.name, "".join(self.texts))


class PacedRun:
    """One answer on the clock. It is made while it is read: who does not read finds the late tokens in one piece."""

    def __init__(self, backend: PacedBackend, job: Job, prompt: Prompt, rule: Rule, steps: list[Step]) -> None:
        self._backend = backend
        self._job = job
        self._prompt = prompt
        self._rule = rule
        self._steps = steps
        self._loop = asyncio.get_running_loop()
        self._began = time.monotonic()
        request = job.request
        self._deadline = self._began + request.max_seconds if request.max_seconds else math.inf
        left = backend.window - prompt.tokens
        self._budget = min(left, request.max_output_tokens or left)
        self._reference = reference_of(job)
        self._sent = self._thought = 0
        self._speeches: list[Speech] = []
        self._waiter: asyncio.Future[None] | None = None
        self._end: End | None = None
        backend.runs.add(self)

    @property
    def made(self) -> int:
        """Tokens made so far."""
        return self._sent

    async def __aiter__(self) -> AsyncIterator[Piece]:
        due = self._began + self._prefill()
        await self._until(due)
        if self._end is None:
            for place in self._prompt.places:
                self._backend.memory.add(place)
        due += 0.0 if self._job.prefill_only else self._backend.pace.ttft
        for step in self._steps:
            due += step.delay or 0.0
            await self._until(due)
            if self._end is not None:
                break
            if step.hang:
                await self._until(math.inf)
            elif step.error is not None or step.drop:
                self._finish("error", step.message or step.error or "connection lost", step.error, step.retry_after)
            elif step.delay is None:
                speech, last = self._speech(step, due)
                if speech.call is not None:
                    call_id = step.call_id or new_id("call")
                    yield CallStart(speech.call.name, call_id, speech.call.kind == "custom")
                while text := await self._more(speech):
                    yield speech.kind(text)
                if self._end is None and speech.call is not None and speech.whole:
                    yield CallEnd()
                if last is not None:
                    self._finish(last)
                due = speech.at(len(speech.tokens))
        if self._end is None:
            self._finish(self._rule.end)
        assert self._end is not None
        yield self._end

    async def stop(self) -> End:
        if self._end is None:
            self._finish("aborted")
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_result(None)
        assert self._end is not None
        return self._end

    def _prefill(self) -> float:
        if self._rule.prefill is not None:
            return self._rule.prefill
        speed = self._backend.pace.prefill_tok_s
        return (self._prompt.tokens - self._prompt.cached) / speed if speed else 0.0

    async def _until(self, due: float) -> None:
        """Wait; ends early when the run ends."""
        limit = min(due, self._deadline)
        if self._end is None and limit > time.monotonic():
            self._waiter = self._backend.clock.until(limit) if limit < math.inf else self._loop.create_future()
            await self._waiter
        if self._end is None and time.monotonic() >= self._deadline:
            self._finish("time")

    async def _more(self, speech: Speech) -> str:
        """The text of the tokens that are due; empty when there are no more or the run has ended."""
        while self._end is None and speech.sent < len(speech.tokens):
            first, count = speech.sent, speech.due(time.monotonic())
            if count <= first:
                await self._until(speech.at(first))
                continue
            speech.sent = count
            self._sent += count - first
            if speech.kind is Reasoning:
                self._thought += count - first
            text = self._stamped(speech, first) if speech.kind is Text and self._backend.pace.stamp else ""
            text = text or "".join(speech.tokens[first:count])
            speech.texts.append(text)
            return text
        return ""

    def _stamped(self, speech: Speech, first: int) -> str:
        return "".join(f"{round(speech.at(token) * 1e9)} " for token in range(first, speech.sent))

    def _speech(self, step: Step, begin: float) -> tuple[Speech, EndReason | None]:
        """The tokens of a step, and how the run ends with them where it does."""
        kind: type[Text] | type[Reasoning] | type[CallText] = Text
        call: FlatTool | None = None
        last: EndReason | None = None
        if step.call is not None:
            kind, call = CallText, _tool(self._job.tools, step)
            tokens = cut(_argument_text(step, call))
        elif step.reasoning is not None:
            kind, tokens = Reasoning, cut(step.reasoning)
        elif step.tokens is not None:
            tokens = filler(step.tokens)
        else:
            tokens = cut(step.text or "")
        if kind is Text and (places := _stops("".join(tokens), self._job.request.stop)):
            tokens, last = cut("".join(tokens)[: min(places)]), "stop"
        if len(tokens) > self._budget - self._sent:
            tokens, last = tokens[: self._budget - self._sent], "length"
        speech = Speech(kind, tokens, begin)
        speech.call = call
        speech.whole = last != "length"
        speech.gap = 1.0 / self._backend.pace.tok_s if step.pause is None else step.pause
        if kind is Text and self._reference:
            self._follow(speech)
        self._speeches.append(speech)
        return speech, last

    def _follow(self, speech: Speech) -> None:
        """Count the tokens that the reference has, four at a time, and let them come faster."""
        tokens, faster = speech.tokens, speech.gap / self._backend.pace.reference_speed
        gaps: list[float] = []
        for first in range(0, len(tokens), 4):
            some = tokens[first : first + 4]
            text = "".join(some).strip()
            known = bool(text) and text in self._reference
            speech.known += [known] * len(some)
            gaps += [faster if known else speech.gap] * len(some)
        if faster != speech.gap:
            speech.offsets = list(accumulate(gaps, initial=0.0))

    def _finish(self, reason: EndReason, message: str = "", code: str | None = None, retry_after: float = 0.0) -> None:
        trail = self._prompt.places[-1]
        said: list[tuple[str, ...]] = []
        before: Speech | None = None
        for speech in self._speeches:
            if before is not None and before.kind is Text and speech.kind is Text and said and speech.sent:
                said[-1] = said_message(said[-1][-1] + "".join(speech.texts))
            elif (parts := speech.parts) is not None:
                said.append(parts)
            before = speech
        for parts in said:
            trail = extend(trail, parts)
            self._backend.memory.add(trail)
        accepted = sum(sum(speech.known[: speech.sent]) for speech in self._speeches)
        usage = Usage(
            input_tokens=self._prompt.tokens,
            input_tokens_details=InputTokensDetails(self._prompt.cached),
            output_tokens=self._sent,
            output_tokens_details=OutputTokensDetails(
                reasoning_tokens=self._thought,
                accepted_prediction_tokens=accepted,
                rejected_prediction_tokens=max(0, len(cut(self._reference)) - accepted),
            ),
            total_tokens=self._prompt.tokens + self._sent,
        )
        self._end = End(reason, usage, message, trail, code or "server_error", retry_after)
        self._backend.runs.discard(self)


def reference_of(job: Job) -> str:
    """The text that the answer will mostly be, as the client said it."""
    return job.request.prediction.content if job.request.prediction is not None else ""


def _tool(table: ToolTable, step: Step) -> FlatTool:
    """The offered tool that a step calls; a tool that is not offered is called all the same, as a model might."""
    name = step.call or ""
    flat = table.flat_name(name, step.namespace)
    for tool in table.tools:
        if tool.name in (name, flat):
            return tool
    return FlatTool(flat, "", {}, "function" if step.input is None else "custom", name, step.namespace)


def _argument_text(step: Step, tool: FlatTool) -> str:
    if tool.kind == "custom" and step.input is not None:
        return step.input
    if isinstance(step.arguments, str):
        return step.arguments
    arguments = {"input": step.input} if step.input is not None else step.arguments or {}
    return json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))


def _stops(text: str, stops: list[str]) -> list[int]:
    return [place for stop in stops if (place := text.find(stop)) >= 0]

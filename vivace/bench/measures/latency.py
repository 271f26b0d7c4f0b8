"""What a person waits for: the first token, a follow-up turn, and the end after a stop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from dataclasses import dataclass, field

from vivace.bench.contenders import BENCH, Answer, Question, question_of
from vivace.bench.measures.lab import Lab
from vivace.bench.peers import PeerPlayer
from vivace.bench.record import Figure
from vivace.protocol import events as ev
from vivace.protocol.contracts import Generation
from vivace.protocol.requests import Prediction, ResponseRequest

CACHED, NEW = 8000, 200
STOPS = 40
PREFILL_STOPS = 20
LONG_PROMPT = 6000


async def ttft(lab: Lab) -> list[Figure]:
    """Time to the first token of an edit: prompt unknown, then again; every contender in turns.

    llama.cpp's workers keep no prompt unless asked to, OpenVINO's has its prefix cache off: no second figure there.
    """
    task = next((task for task in lab.tasks if task.edits), None)
    if task is None:
        return []
    cold: dict[str, list[float]] = {player.card.name: [] for player in lab.players}
    warm: dict[str, list[float]] = {player.card.name: [] for player in lab.players}
    for sample in range(min(3, lab.samples)):
        question = question_of(lab.host, task.instructions(f"ttft {sample}"), task.user, 1, task.block)
        for player in lab.players:
            cold[player.card.name].append(await _first(player.answer(question)))
            if not isinstance(player, PeerPlayer) or player.worker.ready.get("prefix_cache", True):
                warm[player.card.name].append(await _first(player.answer(question)))
    figures = []
    for player in lab.players:
        who, count = player.card.name, len(question.tokens)
        figures.append(lab.figure("ttft", "TTFT, new prompt", "s", cold[who], who, tokens=count))
        if warm[who]:
            figures.append(lab.figure("ttft", "TTFT, prompt known", "s", warm[who], who, tokens=count))
        figures.append(lab.figure("ttft", "process start to ready", "s", [player.card.start_seconds], who))
    return figures


async def followup(lab: Lab) -> list[Figure]:
    """Time to the first token of a turn that adds 200 tokens to 8,000 that are in KV memory."""
    if lab.host.facts.window < CACHED + NEW + 8:
        return []
    past = lab.fresh(CACHED)
    first = await lab.ask(past, 1)
    times, cached = [], []
    for _ in range(lab.samples):
        trace = await lab.ask(past + lab.fresh(NEW), 1)
        times.append(trace.ttft)
        cached.append(float(trace.finish.cached_tokens if trace.finish else 0))
    return [
        lab.figure("followup", "TTFT, follow-up turn", "s", times, cached=CACHED, new=NEW),
        lab.figure("followup", "tokens found in KV memory", "tokens", cached, cached=CACHED, new=NEW),
        lab.figure("followup", "TTFT, the same context from nothing", "s", [first.ttft], tokens=CACHED),
    ]


async def stop(lab: Lab) -> list[Figure]:
    """From the call of ``stop`` to the last event, at random moments: in free text, in an edit, in a prefill."""
    host = lab.host
    free = next((task for task in lab.tasks if not task.edits), None)
    edit = next((task for task in lab.tasks if task.edits), None)
    figures = []
    if free is not None:
        question = question_of(host, "", free.instruction, 4000)
        samples = [await _stop_one(lab, question, after=lab.moment(0.05, 1.0)) for _ in range(STOPS)]
        figures.append(_stops(lab, samples, "free text"))
    if edit is not None:
        samples = []
        for n in range(STOPS):
            question = question_of(host, edit.instructions(f"stop {n}"), edit.user, 4000, edit.block)
            samples.append(await _stop_one(lab, question, after=lab.moment(0.0, 0.3)))
        figures.append(_stops(lab, samples, "edit"))
    if host.facts.window > LONG_PROMPT + 64:
        samples = []
        for _ in range(PREFILL_STOPS):
            question = question_of(host, "", host.texts.decode(lab.fresh(LONG_PROMPT - 500)), 64)
            samples.append(await _stop_one(lab, question, after=lab.moment(0.05, 1.5), in_prefill=True))
        figures.append(_stops(lab, samples, "prefill"))
    return figures


def _stops(lab: Lab, samples: list[float | None], moment: str) -> Figure:
    return lab.figure("stop", "stop", "ms", [s for s in samples if s is not None], moment=moment)


@dataclass
class _Listener:
    """Reads a generation's events and remembers when output began and when the last event came."""

    began: asyncio.Event = field(default_factory=asyncio.Event)
    last: float = 0.0

    async def read(self, generation: Generation) -> None:
        async for event in generation:
            self.last = time.perf_counter()
            if isinstance(event, ev.TextDelta):
                self.began.set()
        self.began.set()


async def _stop_one(lab: Lab, question: Question, after: float, in_prefill: bool = False) -> float | None:
    """Milliseconds from the call to the later of its return and the last event; None where the answer was over before.

    The call comes ``after`` seconds: counted from the first output, or from the start where it shall fall in a prefill.
    """
    generation = lab.host.service.start(
        ResponseRequest(
            model=lab.host.facts.name,
            input=question.user,
            instructions=question.instructions or None,
            max_output_tokens=question.max_tokens,
            temperature=0.0,
            prediction=Prediction(question.draft) if question.draft else None,
        ),
        BENCH,
    )
    listener = _Listener()
    reading = asyncio.create_task(listener.read(generation))
    if not in_prefill:
        await listener.began.wait()
    await asyncio.sleep(after)
    called = time.perf_counter()
    final = await generation.stop("cancelled")
    returned = time.perf_counter()
    await reading
    return (max(returned, listener.last) - called) * 1e3 if final.status == "cancelled" else None


async def _first(answer: Awaitable[Answer]) -> float:
    arrivals = (await answer).arrivals
    return float(arrivals[0]) if arrivals else 0.0

"""Several streams on one engine: candidates of one task, a stranger's long prompt, a stream of higher priority."""

from __future__ import annotations

import asyncio
import itertools
import time

from vivace.bench.contenders import question_of
from vivace.bench.host import TokenEngine
from vivace.bench.measures.lab import Lab, Trace, follow
from vivace.bench.record import Figure
from vivace.bench.stats import median, quantile

CANDIDATES = 4
SAMPLED = 0.6
"""Temperature of the candidates after the first, as in ``vivace edit --candidates``."""
CONTEXT = 512
TOKENS = 96
STRANGER_PROMPT = 6000
LOAD_STREAMS = 8
LOAD_PROMPT = 1000


async def candidates(lab: Lab) -> list[Figure]:
    """Time until all of four candidates have ended, against one: plain decoding, and an edit with its draft."""
    engine = await lab.engine()
    plain: list[float] = []
    edits: list[float] = []
    task = next((task for task in lab.tasks if task.edits), None)
    for sample in range(lab.samples):
        times = []
        for count in (1, CANDIDATES):
            prompt = lab.fresh(CONTEXT)
            began = time.perf_counter()
            streams = [
                engine.ask(prompt, max_tokens=TOKENS, draft=False, temperature=SAMPLED if n else 0.0, seed=n)
                for n in range(count)
            ]
            await asyncio.gather(*(follow(stream, began) for stream in streams))
            times.append(time.perf_counter() - began)
        plain.append(times[1] / times[0])
        if task is None:
            continue
        times = []
        reference = lab.host.texts.reference(task.block)
        for count in (1, CANDIDATES):
            instructions = task.instructions(f"candidates {sample} {count}")
            tokens = question_of(lab.host, instructions, task.user, 0).tokens
            began = time.perf_counter()
            streams = [
                engine.ask(
                    tokens,
                    max_tokens=len(reference) * 5 // 4 + 128,
                    reference=reference,
                    end=lab.host.texts.end_tokens,
                    temperature=SAMPLED if n else 0.0,
                    seed=n,
                )
                for n in range(count)
            ]
            await asyncio.gather(*(follow(stream, began) for stream in streams))
            times.append(time.perf_counter() - began)
        edits.append(times[1] / times[0])
    figures = [lab.figure("candidates", "4 candidates against one, plain decode", "times", plain, tokens=TOKENS)]
    if edits and task is not None:
        figures.append(lab.figure("candidates", "4 candidates against one, edit turn", "times", edits, task=task.id))
    return figures


async def stranger(lab: Lab) -> list[Figure]:
    """The largest gap between the tokens of a decoding user while a stranger's 6,000 tokens are prefilled."""
    if lab.host.facts.window < STRANGER_PROMPT + 8:
        return []
    engine = await lab.engine()
    alone: list[float] = []
    largest: list[float] = []
    for _ in range(lab.samples):
        trace = await lab.ask(lab.fresh(CONTEXT), TOKENS)
        alone.append(max(trace.gaps) * 1e3)
        largest.append(1e3 * await _beside_a_prefill(engine, lab))
    return [
        lab.figure("stranger", "largest gap, alone", "ms", alone),
        lab.figure("stranger", "largest gap, beside a prefill", "ms", largest, prompt=STRANGER_PROMPT),
    ]


async def _beside_a_prefill(engine: TokenEngine, lab: Lab) -> float:
    """Seconds of the user's largest gap between the stranger's arrival and the stranger's first token."""
    under_way = asyncio.Event()
    began = time.perf_counter()

    def heard(trace: Trace) -> None:
        if len(trace.arrivals) >= 8:
            under_way.set()

    stream = engine.ask(lab.fresh(CONTEXT), max_tokens=4096, draft=False)
    user = asyncio.create_task(follow(stream, began, heard))
    await under_way.wait()
    asked = time.perf_counter() - began
    await follow(engine.ask(lab.fresh(STRANGER_PROMPT), max_tokens=1, draft=False), began)
    served = time.perf_counter() - began
    stream.abort()
    times = [at for at, _ in (await user).arrivals]
    return max(b - a for a, b in itertools.pairwise(times) if b >= asked and a <= served)


async def priority(lab: Lab) -> list[Figure]:
    """Time between tokens of a high-priority stream, alone and beside eight streams that never pause.

    Each of the eight asks again with a new prompt of 1,000 tokens as soon as its 64 tokens have come.
    """
    engine = await lab.engine()
    alone: list[float] = []
    beside: list[float] = []
    for _ in range(min(3, lab.samples)):
        alone += [gap * 1e3 for gap in (await lab.ask(lab.fresh(CONTEXT), TOKENS)).gaps]
        over = asyncio.Event()
        load = [asyncio.create_task(_keep_asking(engine, lab, over)) for _ in range(LOAD_STREAMS)]
        await asyncio.sleep(1.0)
        began = time.perf_counter()
        stream = engine.ask(lab.fresh(CONTEXT), max_tokens=TOKENS, draft=False, priority=10)
        beside += [gap * 1e3 for gap in (await follow(stream, began)).gaps]
        over.set()
        await asyncio.gather(*load)
    return [
        lab.figure("priority", "between tokens, alone", "ms", alone),
        lab.figure("priority", "between tokens, beside 8 streams", "ms", beside, prompt=LOAD_PROMPT),
        lab.figure("priority", "beside 8 streams against alone, median", "times", [median(beside) / median(alone)]),
        lab.figure("priority", "p99 between tokens, beside 8 streams", "ms", [quantile(beside, 0.99)]),
    ]


async def _keep_asking(engine: TokenEngine, lab: Lab, over: asyncio.Event) -> None:
    while not over.is_set():
        stream = engine.ask(lab.fresh(LOAD_PROMPT), max_tokens=64, draft=False)
        ended = asyncio.create_task(follow(stream, time.perf_counter()))
        stopping = asyncio.create_task(over.wait())
        await asyncio.wait({ended, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not ended.done():
            stream.abort()
        await ended
        stopping.cancel()

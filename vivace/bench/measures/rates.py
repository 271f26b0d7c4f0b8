"""How fast one stream is: plain decoding, prefill, what drafts gain, and one pass by its width."""

from __future__ import annotations

import time
from collections import defaultdict

from vivace.bench.contenders import question_of
from vivace.bench.measures.lab import VIVACE, Lab, follow
from vivace.bench.peers import PeerWorker
from vivace.bench.record import Figure
from vivace.errors import VivaceError

DECODE_CONTEXT = 512
DECODE_TOKENS = 96
FREE_TOKENS = 192
PREFILL_TOKENS = (1500, 6000)
WIDTHS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
WIDTH_CONTEXT = 1000
"""Positions before the rows of a timed pass."""
PEER_PASSES = 3


async def decode(lab: Lab) -> list[Figure]:
    """Tokens per second behind 512 tokens of which nothing can be copied; vivace and plain peers in turns."""
    rates: dict[str, list[float]] = defaultdict(list)
    for _ in range(lab.samples):
        prompt = lab.fresh(DECODE_CONTEXT)
        rates[VIVACE].append((await lab.ask(prompt, DECODE_TOKENS)).rate)
        for peer in lab.plain_peers:
            answer = await peer.generate(prompt, DECODE_TOKENS)
            span = answer.arrivals[-1] - answer.arrivals[0]
            rates[peer.card.name].append((answer.output_tokens - answer.first_tokens) / span)
    about = {"context": DECODE_CONTEXT, "tokens": DECODE_TOKENS}
    return [lab.figure("decode", "plain decode", "tok/s", rate, who, **about) for who, rate in rates.items()]


async def prefill(lab: Lab) -> list[Figure]:
    """Prompt tokens per second up to the first token, nothing cached. Peers do it once or twice."""
    figures = []
    for length in PREFILL_TOKENS:
        if length + 8 > lab.host.facts.window:
            continue
        rates: dict[str, list[float]] = defaultdict(list)
        for sample in range(lab.samples):
            prompt = lab.fresh(length)
            rates[VIVACE].append(length / (await lab.ask(prompt, 1)).ttft)
            for peer in lab.plain_peers:
                if sample < (2 if length < 2000 else 1):
                    rates[peer.card.name].append(length / (await peer.generate(prompt, 1)).arrivals[0])
        figures += [lab.figure("prefill", "prefill", "tok/s", r, who, tokens=length) for who, r in rates.items()]
    return figures


async def draft(lab: Lab) -> list[Figure]:
    """Tokens per step and milliseconds per step of each edit task, counted by the engine."""
    engine = await lab.engine()
    texts = lab.host.texts
    figures = []
    for task in (task for task in lab.tasks if task.edits):
        per_step: list[float] = []
        shares: list[float] = []
        times: list[float] = []
        for sample in range(lab.samples):
            nonce = f"draft {sample}"
            question = question_of(lab.host, task.instructions(nonce), task.user, 0)
            reference = texts.reference(task.block)
            limit = len(reference) * 5 // 4 + 128
            began = time.perf_counter()
            stream = engine.ask(question.tokens, max_tokens=limit, reference=reference, end=texts.end_tokens)
            trace = await follow(stream, began)
            finish = trace.finish
            if finish is None or not finish.steps:
                continue
            per_step.append(finish.output_tokens / finish.steps)
            shares.append(finish.accepted / max(1, finish.drafted))
            times += [gap * 1e3 for gap in trace.gaps]
        figures += [
            lab.figure("draft", "tokens a step", "tokens", per_step, task=task.id),
            lab.figure("draft", "accepted share", "of the draft", shares, task=task.id),
            lab.figure("draft", "step", "ms", times, task=task.id),
        ]
    return figures + await _nothing_to_copy(lab)


async def _nothing_to_copy(lab: Lab) -> list[Figure]:
    """Free text with the drafter at work against without it, in turns: seconds of the one over the other's."""
    figures = []
    for task in (task for task in lab.tasks if not task.edits):
        question = question_of(lab.host, "", task.instruction, FREE_TOKENS)
        ratios: list[float] = []
        for sample in range(lab.samples + 1):
            seconds = {}
            for drafts in (True, False) if sample % 2 else (False, True):
                seconds[drafts] = (await lab.ask(question.tokens, FREE_TOKENS, draft=drafts)).seconds
            if sample:  # the first reads the prompt, which then lies in KV memory
                ratios.append(seconds[True] / seconds[False])
        figures.append(lab.figure("draft", "drafting against not", "times", ratios, task=task.id, tokens=FREE_TOKENS))
    return figures


async def widths(lab: Lab) -> list[Figure]:
    """Milliseconds of one pass by its rows, with the best token of each row, behind 1,000 positions."""
    times: dict[tuple[str, int], list[float]] = defaultdict(list)
    timer = lab.host.step_timer()
    try:
        for sample in range(2 * lab.samples + 1):
            for rows in WIDTHS:
                seconds = timer.seconds(rows, WIDTH_CONTEXT)
                if sample:  # the first pass of a shape also warms it
                    times[VIVACE, rows].append(seconds * 1e3)
    finally:
        timer.close()
    for peer in lab.plain_peers:
        if "step" not in peer.worker.ready.get("ops", []):
            continue
        for rows in WIDTHS:
            for _ in range(PEER_PASSES):
                times[peer.card.engine, rows].append(1e3 * await _peer_step(peer.worker, rows))
    return [
        lab.figure("widths", "pass", "ms", sample, who, rows=rows, context=WIDTH_CONTEXT)
        for (who, rows), sample in times.items()
    ]


async def _peer_step(worker: PeerWorker, rows: int) -> float:
    async for event in worker.ask({"op": "step", "rows": rows, "context": WIDTH_CONTEXT}):
        if event.get("event") == "step":
            return float(event["seconds"])
    raise VivaceError(f"The peer {worker.name} did not time a pass.", code="peer")

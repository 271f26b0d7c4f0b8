"""What context costs: memory, and time per token."""

from __future__ import annotations

import time

from vivace.bench.conditions import resident_bytes
from vivace.bench.measures.lab import Lab, follow
from vivace.bench.record import Figure

MEMORY_CONTEXT = 8000
CONTEXTS = (1024, 8192, 32640)
TOKENS = 32


async def memory(lab: Lab) -> list[Figure]:
    """Resident memory of an engine process: loaded and warm, and with a context of 8,000 tokens."""
    context = min(MEMORY_CONTEXT, lab.host.facts.window - 64)
    async with lab.own_engine() as engine:
        await follow(engine.ask(lab.fresh(64), max_tokens=8, draft=False), time.perf_counter())
        loaded = await engine.resident_bytes()
        await follow(engine.ask(lab.fresh(context), max_tokens=8, draft=False), time.perf_counter())
        full = await engine.resident_bytes()
    figures = [
        lab.figure("memory", "resident, loaded", "MiB", [loaded / 2**20]),
        lab.figure("memory", "resident, with context", "MiB", [full / 2**20], context=context),
    ]
    for peer in lab.plain_peers:
        if peer.worker.pid:
            await peer.generate(lab.fresh(context), 8)
            held = resident_bytes(peer.worker.pid) / 2**20
            figures.append(
                lab.figure("memory", "resident, with context", "MiB", [held], peer.card.name, context=context)
            )
    return figures


async def context(lab: Lab) -> list[Figure]:
    """Milliseconds per token of plain decoding behind contexts of 1k, 8k and 32k tokens."""
    figures = []
    for length in CONTEXTS:
        if length + TOKENS > lab.host.facts.window:
            continue
        prompt = lab.fresh(length)
        times: list[float] = []
        for _ in range(min(3, lab.samples)):  # the prompt is in KV memory after the first time
            trace = await lab.ask(prompt, TOKENS)
            times.append(1e3 / trace.rate if trace.rate else 0.0)
        figures.append(lab.figure("context", "token", "ms", times, context=length))
    return figures

"""One speed benchmark from the machine's bounds to the saved document."""

from __future__ import annotations

import platform
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from vivace import __version__
from vivace.bench import conditions
from vivace.bench.contenders import Player, ServicePlayer, open_all
from vivace.bench.host import Bounds, Host
from vivace.bench.measures import latency, rates, sharing, size
from vivace.bench.measures.lab import Lab
from vivace.bench.record import Document, Figure, Run
from vivace.bench.tasks import Task
from vivace.bench.turns import run_turns
from vivace.errors import UsageError, VivaceError, did_you_mean

Measure = Callable[[Lab], Awaitable[list[Figure]]]

MEASURES: dict[str, Measure] = {
    "widths": rates.widths,
    "decode": rates.decode,
    "prefill": rates.prefill,
    "draft": rates.draft,
    "ttft": latency.ttft,
    "followup": latency.followup,
    "stop": latency.stop,
    "candidates": sharing.candidates,
    "stranger": sharing.stranger,
    "priority": sharing.priority,
    "context": size.context,
    "memory": size.memory,
}
"""In the order in which they run; memory last, since it asks slow peers for long prompts."""
TURNS = "turns"
PROBES = 3
"""The machine is probed so often before the measurements and again after them."""
PARTS = (TURNS, *MEASURES)


@dataclass(frozen=True)
class Plan:
    """What to measure. ``samples`` is the number of repetitions of single measurements."""

    parts: Sequence[str] = PARTS
    rounds: int = 5
    samples: int = 5
    slow_seconds: float = 30.0


def chosen_parts(only: Sequence[str]) -> list[str]:
    """The parts that ``--only`` names, in running order. Raises :class:`UsageError` for an unknown one."""
    for name in only:
        if name not in PARTS:
            raise UsageError(f"There is no measurement {name!r}.", hint=did_you_mean(name, list(PARTS)), param="only")
    return [name for name in PARTS if not only or name in only]


async def run_speed(
    host: Host,
    peers: Sequence[Player],
    tasks: Sequence[Task],
    plan: Plan,
    say: Callable[[str], None],
    keep: Callable[[Document], None] = lambda document: None,
) -> Document:
    """Measure and return the document. ``keep`` is called with it after each part, so that nothing is lost on the way.

    A measurement that fails is told and left out; the others go on.
    """
    bounds = _best([host.probe() for _ in range(PROBES)])
    say(
        f"bounds: {bounds.bytes_per_second / 1e9:.1f} GB/s, {bounds.int8_per_second / 1e12:.2f} int8 TOPS, "
        f"{bounds.bf16_per_second / 1e12:.2f} bf16 TFLOPS with {bounds.threads} threads"
    )
    players, refused = await open_all([ServicePlayer(host), *peers])
    for line in refused:
        say(f"left out: {line}")
    document = Document(
        date=datetime.now(UTC).date().isoformat(),
        options={"rounds": plan.rounds, "samples": plan.samples, "version": __version__, "parts": " ".join(plan.parts)},
        machine=conditions.machine(),
        model=host.facts,
        bounds=bounds,
        contenders=[player.card for player in players],
    )
    document.options["kernel"] = platform.release().split("-")[0]
    lab = Lab(host, players, tasks, plan.samples, say)
    try:
        if TURNS in plan.parts:

            def keep_runs(runs: list[Run]) -> None:
                document.runs = runs
                keep(document)

            await run_turns(host, players, tasks, plan.rounds, plan.slow_seconds, say, keep_runs)
        for name in (name for name in plan.parts if name in MEASURES):
            try:
                document.figures += await MEASURES[name](lab)
            except VivaceError as error:
                say(f"{name} failed: {error}")
            keep(document)
        document.bounds = _best([document.bounds, *(host.probe() for _ in range(PROBES))])
        keep(document)
    finally:
        await lab.close()
        for player in players:
            await player.close()
    return document


def _best(bounds: Sequence[Bounds]) -> Bounds:
    """The best of several probes: a bound is what the machine can do when nobody disturbs it."""
    return Bounds(
        bytes_per_second=max(bound.bytes_per_second for bound in bounds),
        int8_per_second=max(bound.int8_per_second for bound in bounds),
        bf16_per_second=max(bound.bf16_per_second for bound in bounds),
        threads=bounds[0].threads,
    )

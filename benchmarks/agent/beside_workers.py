"""The foreground's time to the first token, alone and beside two background workers of the same conversation.

    python -m benchmarks.agent.beside_workers --model coder-0.5b

The workers are real ones: each edits long files in a copy of the workspace, one task after another. The foreground asks
fast edits of short files that nothing has read before. Rounds alone and beside take turns, so that both see the same
machine; a round beside counts only when both workers worked from its beginning to its end.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import random
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.machine import describe
from vivace import __version__
from vivace.agent.turns.agent import Agent, AgentOptions
from vivace.agent.turns.events import Event, Meters, TurnEnded
from vivace.bench.stats import quantile
from vivace.composing import compose_gateway
from vivace.settings import Settings

WORKERS = 2
SETTLE = 3.0
"""Seconds until workers that were just started are at their model."""
NAMES = ("load", "store", "merge", "split", "count", "find", "trim", "join", "rank", "pack", "scan", "fold")


def module(chance: random.Random, functions: int) -> str:
    """A module that no cache has seen."""
    parts = [f'"""Module {chance.randrange(10**9)}."""\n']
    for number in range(functions):
        name, a, b = f"{chance.choice(NAMES)}_{number}", chance.randrange(100), chance.randrange(100)
        parts.append(
            f"def {name}(items, limit={a}):\n"
            f"    found = [item for item in items if item != {b}]\n"
            f"    total = sum(found[:limit]) + {chance.randrange(1000)}\n"
            f"    return total, found\n"
        )
    return "\n\n".join(parts)


class Foreground:
    """The agent, and the seconds to the first token of each of its turns."""

    def __init__(self, root: Path, base: Path, model: str, gateway: Any) -> None:
        options = AgentOptions(
            candidates=1, sandbox=False, mcp=False, keep_edits=False, state_dir=base / "state", cache_dir=base / "cache"
        )
        self.root = root
        self.agent = Agent(gateway, root, model=model, mode="fast", options=options, on_event=self._heard)
        self._ttft: float | None = None
        self._ended: str = ""

    def _heard(self, event: Event) -> None:
        if getattr(event, "worker", ""):
            return
        if isinstance(event, Meters) and event.ttft is not None:
            self._ttft = event.ttft
        elif isinstance(event, TurnEnded):
            self._ended = event.status

    async def turn(self, chance: random.Random, number: int) -> float:
        name = f"small_{number}.py"
        (self.root / name).write_text(module(chance, 6), "utf-8")
        self._ttft = None
        self.agent.say("Rename the parameter `limit` of the first function to `most`.", files=[name])
        await self.agent.wait_idle()
        if self._ttft is None:
            raise RuntimeError(f"the turn ended without a token: {self._ended}")
        return self._ttft

    def working(self) -> int:
        return sum(worker.state == "running" for worker in self.agent.workers())

    async def employ(self, chance: random.Random, number: int) -> None:
        """Have so many workers at work that :data:`WORKERS` are."""
        for extra in range(WORKERS - self.working()):
            name = f"long_{number}_{extra}.py"
            (self.root / name).write_text(module(chance, 60), "utf-8")
            await self.agent.background("Add a docstring to every function of the file.", [name])
        await asyncio.sleep(SETTLE)

    async def dismiss(self) -> None:
        for worker in self.agent.workers():
            if worker.state in ("waiting", "running"):
                await self.agent.stop_worker(worker.id)


async def measure(model: str, rounds: int, turns: int) -> dict[str, Any]:
    """Seconds to the first token, by round; see the module."""
    chance = random.Random(7)
    alone: list[float] = []
    beside: list[float] = []
    dropped = number = 0
    with tempfile.TemporaryDirectory(prefix="vivace-workers-") as made:
        base = Path(made).resolve()
        root = base / "work"
        root.mkdir()
        gateway = compose_gateway(Settings(), database=False)
        front = Foreground(root, base, model, gateway)
        try:
            await front.agent.begin()
            await front.turn(chance, number)  # loads the model
            for _ in range(rounds):
                for _ in range(turns):
                    number += 1
                    alone.append(await front.turn(chance, number))
                for _ in range(turns):
                    number += 1
                    await front.employ(chance, number)
                    seconds = await front.turn(chance, number)
                    if front.working() == WORKERS:
                        beside.append(seconds)
                    else:
                        dropped += 1
                await front.dismiss()
        finally:
            await front.agent.close()
            await gateway.close()
    ratio = quantile(beside, 0.5) / quantile(alone, 0.5)
    return {
        "workers": WORKERS,
        "alone_s": {"median": quantile(alone, 0.5), "p90": quantile(alone, 0.9), "turns": len(alone)},
        "beside_s": {"median": quantile(beside, 0.5), "p90": quantile(beside, 0.9), "turns": len(beside)},
        "ratio_of_medians": round(ratio, 3),
        "turns_in_which_a_worker_ended": dropped,
        "samples_alone": [round(each, 4) for each in alone],
        "samples_beside": [round(each, 4) for each in beside],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="coder-0.5b")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--turns", type=int, default=5, help="turns of each way in a round")
    parser.add_argument("--out", type=Path, help="where the JSON goes; benchmarks/results by default")
    options = parser.parse_args()
    began = time.perf_counter()
    found = asyncio.run(measure(options.model, options.rounds, options.turns))
    document = {
        "command": f"python -m benchmarks.agent.beside_workers --model {options.model} "
        f"--rounds {options.rounds} --turns {options.turns}",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "vivace": __version__,
        "machine": describe(),
        "model": options.model,
        **found,
        "seconds": round(time.perf_counter() - began, 1),
    }
    out = options.out or Path(__file__).parents[1] / "results" / f"beside-workers-{options.model}.json"
    text = msgspec.json.format(msgspec.json.encode(document), indent=1)
    out.write_bytes(text + b"\n")
    print({key: found[key] for key in ("alone_s", "beside_s", "ratio_of_medians")})


if __name__ == "__main__":
    main()

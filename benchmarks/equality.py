"""Drafting on and off over whole task sets: is every answer the same, token for token?

    python -m benchmarks.equality --tasks ../shared/data/tasks --model coder-0.5b

Each task is asked exactly as ``vivace edit`` asks it. ``--random N`` adds N cases made from the tasks: a stretch of
tokens as the prompt, a mutilated copy of another as the reference, greedy or sampled. Drafted answers are made four at
a time, undrafted ones eight at a time, so that batches of different shapes are compared as well. Writes one JSON file;
exit code 1 when an answer differs.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.machine import describe
from vivace import __version__
from vivace.agent.plan import make_plan
from vivace.agent.workspace import Workspace
from vivace.backends.base import Job
from vivace.backends.local import LocalBackend
from vivace.bench.tasksets.task import Task, load
from vivace.composing import compose_gateway
from vivace.engine.messages import Finish, Sampling, Start
from vivace.models.catalogue import find_model
from vivace.models.store import model_path
from vivace.protocol.contracts import Service
from vivace.protocol.items import Item, Message, items_of
from vivace.protocol.requests import ResponseRequest
from vivace.settings import Settings

SETS = ("edit", "repair", "long_edit")
LONGEST = 1500
"""Output tokens after which an answer is cut, the same for both."""


async def answers(backend: LocalBackend, starts: Sequence[Start], at_once: int) -> list[tuple[list[int], Finish]]:
    """Tokens and end of every request, ``at_once`` of them in the engine together."""
    gate = asyncio.Semaphore(at_once)

    async def one(start: Start) -> tuple[list[int], Finish]:
        async with gate:
            tokens: list[int] = []
            async for progress in backend.engine.start(start):
                tokens += progress.tokens
                finish = progress.finish
            assert finish is not None
            return tokens, finish

    return list(await asyncio.gather(*(one(start) for start in starts)))


def items_in(request: ResponseRequest) -> list[Item]:
    """What a model reads of a request: its instructions, then its input."""
    head: list[Item] = [Message("system", request.instructions)] if request.instructions else []
    return [*head, *(items_of(request.input) if isinstance(request.input, str) else request.input)]


async def requests_of(service: Service, backend: LocalBackend, model: str, tasks: Sequence[Task]) -> list[Start]:
    """The engine's requests for the tasks, as an edit turn makes them."""
    card = await service.open(model)
    made = []
    with tempfile.TemporaryDirectory() as folder:
        for task in tasks:
            Path(folder, task.path).write_text(task.before, encoding="utf-8", newline="")
            plan = await make_plan(service, card, Workspace(Path(folder)).read(task.path), task.instruction)
            request = plan.ask.request(model)
            request.max_output_tokens = min(plan.max_output_tokens, LONGEST)
            made.append(backend.frame(Job(request=request, items=items_in(request))))
    return made


def random_cases(starts: Sequence[Start], count: int, seed: int = 0) -> list[Start]:
    """Requests over stretches of the tasks' own tokens, with references that agree with the output by chance only."""
    chance = random.Random(seed)
    cases = []
    for number in range(count):
        source = chance.choice([start.tokens for start in starts])
        begin = chance.randrange(max(1, len(source) - 30))
        prompt = source[begin : begin + chance.randint(10, 250)]
        other = source if chance.random() < 0.7 else chance.choice(starts).tokens
        place = begin if chance.random() < 0.5 else chance.randrange(max(1, len(other) - 30))
        reference = list(other[place : place + chance.randint(0, 300)])
        for _ in range(chance.choice((0, 1, 5, 20))):
            at = chance.randrange(len(reference) + 1)
            reference[at : at + chance.randint(0, 4)] = chance.choices(source, k=chance.randint(0, 4))
        sampling = Sampling(
            temperature=chance.choice((0.0, 0.0, 0.6, 1.0)), top_p=chance.choice((1.0, 0.9)), seed=number
        )
        cases.append(
            Start(
                id=0,
                tokens=prompt,
                reference=reference,
                sampling=sampling,
                end=starts[0].end,
                max_tokens=chance.randint(1, 48),
            )
        )
    return cases


async def compare(model: str, tasks: Sequence[Task], extra: int) -> dict[str, object]:
    """Ask everything twice and count what differs."""
    settings = Settings()
    service = compose_gateway(settings, database=False)
    info = find_model(model, settings)
    backend = LocalBackend(info, model_path(info, settings), settings)
    card = await backend.open(lambda stage, share: None)
    starts = await requests_of(service, backend, model, tasks)
    await service.close()
    names = [task.id for task in tasks] + [f"random/{number}" for number in range(extra)]
    starts += random_cases(starts, extra)
    began = time.perf_counter()
    drafted = await answers(backend, starts, 4)
    middle = time.perf_counter()
    plain = await answers(backend, [msgspec.structs.replace(start, draft=False) for start in starts], 8)
    ended = time.perf_counter()
    await backend.close()
    different = [name for name, a, b in zip(names, drafted, plain, strict=True) if a[0] != b[0]]
    return {
        "engine": card.detail,
        "tasks": len(tasks),
        "random_cases": extra,
        "tokens": sum(len(tokens) for tokens, _ in plain),
        "different": different,
        "accepted_from_draft": sum(finish.accepted for _, finish in drafted),
        "passes_with_draft": sum(finish.steps for _, finish in drafted),
        "seconds_with_draft_4_at_once": round(middle - began, 2),
        "seconds_without_draft_8_at_once": round(ended - middle, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=Path, required=True, help="folder of the task sets")
    parser.add_argument("--model", default="coder-0.5b")
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--random", type=int, default=0, help="so many random cases besides")
    parser.add_argument("--out", type=Path, help="where the JSON goes; benchmarks/results by default")
    options = parser.parse_args()
    tasks = [task for file in load([options.tasks / f"{name}.jsonl" for name in options.sets]) for task in file.tasks]
    sets = " ".join(options.sets)
    report = {
        "command": f"python -m benchmarks.equality --tasks TASKS --model {options.model} --sets {sets}"
        f" --random {options.random}",
        "date": datetime.date.today().isoformat(),
        "vivace": __version__,
        "machine": describe(),
        "model": options.model,
        **asyncio.run(compare(options.model, tasks, options.random)),
    }
    out = options.out or Path(__file__).parent / "results" / f"equality-{options.model}.json"
    out.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
    print(msgspec.json.format(msgspec.json.encode(report), indent=1).decode())
    sys.exit(bool(report["different"]))


if __name__ == "__main__":
    main()

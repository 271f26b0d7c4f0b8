"""Whole turns, interleaved: every contender does the same task next to the others, round after round.

A slow spell of the machine then falls on all of them, and ratios are taken within rounds.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence

from vivace.bench.conditions import busy
from vivace.bench.contenders import Answer, Player, question_of
from vivace.bench.host import Host
from vivace.bench.record import Run
from vivace.bench.stats import median, number
from vivace.bench.tasks import Task, judge
from vivace.errors import VivaceError

SLOW_ROUNDS = 2
"""Contenders slower than the limit for slow ones do a task only so often."""


async def run_turns(
    host: Host,
    players: Sequence[Player],
    tasks: Sequence[Task],
    rounds: int,
    slow_seconds: float,
    say: Callable[[str], None],
    keep: Callable[[list[Run]], None] = lambda runs: None,
) -> list[Run]:
    """Round-robin over tasks and contenders; the order of the contenders turns by one each round.

    A contender that took longer than ``slow_seconds`` for a task, at the median, does it in the first two rounds only.
    ``keep`` is given all runs so far after each task.
    """
    runs: list[Run] = []
    for turn in range(rounds):
        for number_of_task, task in enumerate(tasks):
            shift = (turn + number_of_task) % max(1, len(players))
            for player in [*players[shift:], *players[:shift]]:
                done = [r.seconds for r in runs if r.contender == player.card.name and r.task == task.id]
                if len(done) >= SLOW_ROUNDS and median(done) > slow_seconds:
                    continue
                run = await one_turn(host, player, task, turn)
                runs.append(run)
                verdict = "" if run.counts else f"  does not count: {run.fault}"
                say(
                    f"round {turn + 1} {task.id:12} {run.contender:28} {number(run.seconds):>7} s"
                    f" {number(run.decode_rate):>7} tok/s{verdict}"
                )
            keep(runs)
    return runs


async def one_turn(host: Host, player: Player, task: Task, turn: int) -> Run:
    """One task by one contender, from the prompt to the checked text. A failing peer is a run that does not count."""
    limit = task.max_output_tokens or len(host.texts.encode(task.block)) * 5 // 4 + 128
    nonce = hashlib.sha256(f"{turn} {task.id}".encode()).hexdigest()[:8]
    draft = task.block if task.edits else ""
    question = question_of(host, task.instructions(nonce), task.user, limit, draft)
    load = busy()
    began = time.perf_counter()
    try:
        answer = await player.answer(question)
    except VivaceError as error:
        answer = Answer(ending=error.message)
    verdict = judge(task, answer.text, answer.ending)
    seconds = time.perf_counter() - began
    return Run(
        contender=player.card.name,
        task=task.id,
        round=turn,
        seconds=seconds,
        ttft=answer.arrivals[0] if answer.arrivals else seconds,
        prompt_tokens=answer.prompt_tokens or len(question.tokens),
        output_tokens=answer.output_tokens,
        first_tokens=answer.first_tokens,
        pieces=len(answer.arrivals),
        cached_tokens=answer.cached_tokens,
        drafted=answer.drafted,
        accepted=answer.accepted,
        counts=not verdict.fault,
        fault=verdict.fault,
        changed=verdict.changed,
        text_sha256=hashlib.sha256(answer.text.encode()).hexdigest(),
        busy_before=load,
    )

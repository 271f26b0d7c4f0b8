"""The edit turn: read, plan, ask, judge, choose. It never writes; :func:`apply` does, when the person agrees."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from vivace.agent.attempt import Attempt, ask
from vivace.agent.dialect import Ask
from vivace.agent.edit_dialects.question import HunkAsk
from vivace.agent.plan import Plan, check_dialect, following, freely, make_plan
from vivace.agent.result import Began, EditEvent, EditRequest, EditResult, FileOutcome, Lines, Opened, Settled
from vivace.agent.verdict import Verdict, judge, without_model
from vivace.agent.workspace import SourceFile, Workspace, write_all
from vivace.errors import UsageError, VivaceError
from vivace.protocol.contracts import ModelCard, Service
from vivace.protocol.requests import ResponseRequest

SAMPLED = 0.6
"""Temperature of candidates beyond the first."""
FREELY = 1.0
"""The same in the free manner. A model that is asked so handed its first answers back unchanged, and at 0.6 most of
these are alike: of 13 repair tasks four answers of coder-0.5b at 1.0 hold a right one for 10, at 0.6 for 8."""
RUNS_ON = 2
"""So many times as long as the valid answers of half of the others, and an answer is given up. In 229 races of
coder-0.5b no right one was lost by that, and the slowest race took 13 s in place of 19."""
LEEWAY = 400
"""Characters beyond that."""
RESAMPLED = 0.7
"""Least temperature of the second round after a refusal."""
SEED_STEP = 64
"""Seeds that a turn may use: turns with neighbouring seeds share no answer."""
RESAMPLE_SEED = 1_000_003
"""Seeds of the second round start this far from those of the first."""

Listener = Callable[[EditEvent], None]


@dataclass(frozen=True)
class Candidate:
    """An answer and what it is worth."""

    index: int
    attempt: Attempt
    verdict: Verdict


class Referee(Protocol):
    """Decides a round of several candidates, in place of the smallest valid diff."""

    async def wins(self, plan: Plan, candidate: Candidate) -> bool:
        """Whether a valid candidate wins at once; the others are cancelled then."""
        ...

    async def choose(self, plan: Plan, candidates: list[Candidate]) -> Candidate | None:
        """The best of all when none has won at once; all of them have ended."""
        ...


def read_sources(request: EditRequest) -> list[SourceFile]:
    """Everything that can be refused without a model; raises :class:`UsageError`."""
    if request.candidates < 1:
        raise UsageError("--candidates takes 1 or more", param="candidates")
    if request.temperature is not None and not 0 <= request.temperature <= 2:
        raise UsageError("--temperature takes 0 to 2", param="temperature")
    if request.dialect:
        check_dialect(request.dialect)
    if not request.paths:
        raise UsageError("no file was named", param="path")
    return Workspace(request.root).read_all(request.paths)


async def edit(
    service: Service,
    request: EditRequest,
    sources: list[SourceFile],
    on_event: Listener,
    referee: Referee | None = None,
) -> EditResult:
    """Run one turn. Raises :class:`VivaceError` for a file that cannot be planned and for a service that fails."""
    card = await service.open(request.model)
    on_event(Opened(card))
    ready = time.perf_counter()
    told, form = request.instruction, request.dialect
    plans = [await make_plan(service, card, one, told, form, request.rules(card, one)) for one in sources]
    if request.free:
        plans = [freely(plan) for plan in plans]
    result = EditResult(card, [])
    for first in plans:
        outcome = FileOutcome(first.ask.source)
        result.files.append(outcome)
        plan: Plan | None = first
        while plan is not None:
            outcome.asked.append(_asked(plan))
            outcome.free = isinstance(plan.ask, Ask) and plan.ask.manner == "free"
            on_event(_began(plan, outcome))
            answers = await _round(service, plan, _requests(plan, card, request), outcome, on_event, referee)
            if outcome.status == "changed" or outcome.attempts[-1].lost:
                break
            if (done := without_model(first.ask.source, request.instruction)) is not None:
                outcome.status, outcome.patch, outcome.reason = "changed", done.patch, done.note
                break
            told, answer = answers[0].verdict.told, answers[0].attempt.reply.code
            plan = await following(service, card, plan, outcome.status, told, answer)
        on_event(Settled(outcome))
        if outcome.status == "refused":  # all or none: the rest would be for nothing
            break
    result.seconds = time.perf_counter() - ready
    return result


def apply(result: EditResult, interrupted: threading.Event | None = None) -> None:
    """Write what the turn came to: every file or none. Arguments and errors as for ``workspace.write_all``."""
    write_all([(patch.source, patch.data) for patch in result.patches], interrupted)


def _requests(plan: Plan, card: ModelCard, request: EditRequest) -> list[ResponseRequest]:
    """One request per candidate: the first greedy, the others sampled.

    The second round asks in the free manner what came back unchanged, and samples all anew what was refused.
    Resampling, not reflection: small models do not mend an answer that they are told is wrong.
    """
    ask, again = plan.ask, plan.again
    if isinstance(ask, HunkAsk):
        base = ask.request(card)
    else:
        base = ask.request(card.name, takes_reference=card.takes_reference)
    base.max_output_tokens = plan.max_output_tokens
    made = []
    for n in range(request.candidates):
        sampled = FREELY if isinstance(ask, Ask) and ask.manner == "free" else SAMPLED
        anew = n > 0 or not request.greedy
        temperature = request.temperature if request.temperature is not None else sampled if anew else 0.0
        if anew and not temperature:
            temperature = SAMPLED  # the same greedy answer twice is no second candidate
        if again and isinstance(ask, Ask) and ask.manner == "careful":
            temperature = max(temperature, RESAMPLED)
        seed = request.seed * SEED_STEP + n + (RESAMPLE_SEED if again else 0)
        top_p = 0.95 if temperature else None
        made.append(msgspec.structs.replace(base, temperature=temperature, seed=seed, top_p=top_p))
    return made


async def _round(
    service: Service,
    plan: Plan,
    requests: list[ResponseRequest],
    outcome: FileOutcome,
    on_event: Listener,
    referee: Referee | None,
) -> list[Candidate]:
    """Ask all candidates at once; settle ``outcome`` on the smallest valid diff, the lowest index in a tie.

    A referee may let one win before the others have ended, and chooses when they have. Returns those that have ended.
    """
    attempts = [Attempt() for _ in requests]
    outcome.attempts += attempts
    tasks = [
        asyncio.create_task(_candidate(service, plan, request, n, attempts[n], on_event))
        for n, request in enumerate(requests)
    ]
    done: dict[int, Candidate] = {}
    winner: Candidate | None = None
    try:
        for finished in asyncio.as_completed(tasks):
            candidate = await finished
            done[candidate.index] = candidate
            _bound(attempts, done)
            if referee is not None:
                if candidate.verdict.patch and await referee.wins(plan, candidate):
                    winner = candidate
                    break
                continue
            best = _best(done)
            # No diff is smaller than one line, and only a lower index wins a tie.
            if best and _size(best) == 1 and all(n in done for n in range(best.index)):
                break
    finally:
        for task in tasks:
            task.cancel("lost_race" if _best(done) else None)
        await asyncio.gather(*tasks, return_exceptions=True)
    candidates = [done[n] for n in sorted(done)]
    if referee is not None and winner is None:
        winner = await referee.choose(plan, candidates)
    _settle(outcome, candidates, winner if referee is not None else _best(done))
    return candidates


def _bound(attempts: list[Attempt], done: dict[int, Candidate]) -> None:
    """No race waits for an answer that runs on."""
    valid = [candidate.attempt.length for candidate in done.values() if candidate.verdict.patch]
    if 2 * len(valid) >= len(attempts):
        for attempt in attempts:
            attempt.most = RUNS_ON * max(valid) + LEEWAY


def _settle(outcome: FileOutcome, candidates: list[Candidate], best: Candidate | None) -> None:
    if best:
        outcome.status, outcome.patch = "changed", best.verdict.patch
        outcome.winner, outcome.reason = best.attempt, best.verdict.note
        outcome.rungs = best.verdict.rungs
        return
    if all(candidate.attempt.lost for candidate in candidates):
        raise VivaceError(candidates[0].attempt.failure, hint="Nothing was written.", code="generation_failed")
    unchanged = [candidate.attempt for candidate in candidates if candidate.verdict.unchanged]
    outcome.winner = unchanged[0] if unchanged else outcome.winner
    outcome.status = "unchanged" if outcome.winner else "refused"
    reasons = [outcome.reason] if outcome.reason else []
    reasons += [candidate.verdict.reason for candidate in candidates if candidate.verdict.reason]
    outcome.reason = "; then ".join(dict.fromkeys(reasons))


async def _candidate(
    service: Service, plan: Plan, request: ResponseRequest, index: int, attempt: Attempt, on_event: Listener
) -> Candidate:
    def on_lines(lines: list[str]) -> None:
        if index == 0:
            on_event(Lines(lines))

    await ask(service, request, attempt, plan.ask.parser(), on_lines)
    return Candidate(index, attempt, judge(plan.ask, attempt))


def _asked(plan: Plan) -> str:
    if isinstance(plan.ask, HunkAsk):
        return f"{plan.ask.dialect}, told" if plan.ask.told else plan.ask.dialect
    return "whole function" if plan.ask.region else "whole file"


def _began(plan: Plan, outcome: FileOutcome) -> Began:
    region = plan.ask.region
    return Began(plan.ask.source, plan.ask.shown.split("\n")[:-1], region.start if region else 0, outcome.reason)


def _size(candidate: Candidate) -> int:
    return candidate.verdict.patch.lines_changed if candidate.verdict.patch else 0


def _best(done: dict[int, Candidate]) -> Candidate | None:
    valid = [candidate for candidate in done.values() if candidate.verdict.patch]
    return min(valid, key=lambda candidate: (_size(candidate), candidate.index), default=None)

"""What answers a task: an agent in one of its modes, on a workspace that is laid out for it."""

from __future__ import annotations

import importlib.util
from collections.abc import Awaitable
from pathlib import Path
from typing import Literal, Protocol, get_args

from msgspec import Struct

from vivace.agent.edit import apply, read_sources
from vivace.agent.result import Began, EditEvent, EditRequest, EditResult
from vivace.agent.turns.race import edit_in_race
from vivace.bench.tasksets.task import Problem
from vivace.errors import UsageError, VivaceError, did_you_mean
from vivace.protocol.contracts import Service

Mode = Literal["fast", "deep", "auto"]
AGENT = "vivace.agent.turns.agent"
"""Where the modes beyond fast are."""

Status = Literal["changed", "unchanged", "refused", "error"]


class Outcome(Struct, kw_only=True):
    """How a turn says that it went; what it changed is read from the disk, and not from here."""

    status: Status
    reason: str = ""
    """Why nothing was changed; of a change, what could not be checked."""
    ttft: float | None = None
    tok_s: float | None = None
    prompt_tokens: int = 0
    output_tokens: int = 0
    draft_accepted: float | None = None
    second_round: bool = False
    """The first round of answers was not taken."""
    steps: int = 1
    """Rounds of the model."""
    mode: str = ""
    """The mode that was worked in, where the agent chose it."""


class Solver(Protocol):
    """One turn on a workspace. What a turn cannot do is told in the outcome; only defects raise."""

    def __call__(self, task: Problem, workspace: Path, seed: int) -> Awaitable[Outcome]: ...


def check_mode(mode: str) -> None:
    """Raises :class:`UsageError` for an unknown mode, and for one whose solver this version does not have."""
    if mode not in get_args(Mode):
        raise UsageError(f"There is no mode {mode!r}.", hint=did_you_mean(mode, list(get_args(Mode))), param="mode")
    if mode != "fast" and importlib.util.find_spec(AGENT) is None:
        raise UsageError(
            f"This version has no agent for the mode {mode!r}.",
            hint="--mode fast is there.",
            code="no_agent",
            param="mode",
        )


def solver_for(mode: str, service: Service, model: str, candidates: int | None) -> Solver:
    """The solver of a mode; errors as for :func:`check_mode`."""
    check_mode(mode)
    if mode == "fast":
        return Fast(service, model, candidates or 1)
    from vivace.bench.tasksets.whole import Whole

    return Whole(service, model, "deep" if mode == "deep" else "auto", candidates)


class Fast:
    """The edit turn: one call, one minimal diff, exactly as ``vivace edit --yes`` runs it.

    Several candidates race as in the fast mode of the agent: what the workspace and the instruction show is checked in
    the sandbox, in a copy of the workspace.
    """

    def __init__(self, service: Service, model: str, candidates: int = 1) -> None:
        self.service, self.model, self.candidates = service, model, candidates

    async def __call__(self, task: Problem, workspace: Path, seed: int) -> Outcome:
        rounds: list[str] = []

        def listen(event: EditEvent) -> None:
            if isinstance(event, Began):
                rounds.append(event.source.name)

        request = EditRequest(
            list(task.paths), task.instruction, self.model, seed, candidates=self.candidates, root=workspace
        )
        try:
            result = await edit_in_race(self.service, request, read_sources(request), listen)
            if result.status == "changed":
                apply(result)
        except VivaceError as error:
            return Outcome(status="error", reason=str(error).replace(str(workspace), ""))
        return _outcome(result, rounds)


def _outcome(result: EditResult, rounds: list[str]) -> Outcome:
    return Outcome(
        status=result.status,
        reason="; ".join(file.reason for file in result.files if file.reason),
        ttft=result.ttft,
        tok_s=result.decode_rate,
        prompt_tokens=result.prompt_tokens,
        output_tokens=result.output_tokens,
        draft_accepted=result.draft_accepted,
        second_round=len(rounds) > len(set(rounds)),
        steps=len(rounds),
        mode="fast",
    )

"""The whole agent as a solver: one message in a new conversation, in the mode deep or auto."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Literal

from vivace.agent.turns.agent import Agent
from vivace.agent.turns.events import Asked, Event, MessageChanged, Meters, Mode, TurnBegan, TurnEnded
from vivace.agent.turns.limits import Limits
from vivace.agent.turns.options import AgentOptions
from vivace.bench.tasksets.solver import Outcome
from vivace.bench.tasksets.task import Problem
from vivace.errors import UsageError, VivaceError
from vivace.protocol.contracts import Service

TURN_SECONDS = 600.0
"""Limit of one turn's wall time; what it has changed by then counts."""
GRACE = 60.0
"""Seconds beyond it after which a turn that does not heed its limit is stopped."""
_NO = {"approval": "no", "question": "Nobody is here to answer. Decide yourself.", "proposal": "yes"}


class Whole:
    """Runs unattended: edits and sandboxed commands pass, what would destroy is declined, questions are not answered.

    A conversation's state and caches lie in a folder that goes with the turn, so no task learns of another.
    """

    def __init__(self, service: Service, model: str, mode: Mode, candidates: int | None = None) -> None:
        self.service, self.model, self.candidates = service, model, candidates
        self.mode: Mode = mode

    async def __call__(self, task: Problem, workspace: Path, seed: int) -> Outcome:
        with tempfile.TemporaryDirectory(prefix="vivace-state-") as folder:
            options = AgentOptions(
                candidates=self.candidates,
                approvals="auto",
                limits=Limits(seconds=TURN_SECONDS),
                state_dir=Path(folder, "state"),
                cache_dir=Path(folder, "cache"),
                keep_edits=False,
                seed=seed,
                mcp=False,
            )
            watch = _Watch()
            agent = Agent(
                self.service, workspace, model=self.model, mode=self.mode, options=options, on_event=watch.hear
            )
            watch.agent = agent
            try:
                await agent.begin()
                try:
                    agent.say(task.instruction, files=task.paths)
                    await asyncio.wait_for(agent.wait_idle(), TURN_SECONDS + GRACE)
                except TimeoutError:
                    await agent.stop()
                finally:
                    await agent.close()
            except VivaceError as error:
                return Outcome(status="error", reason=str(error).replace(str(workspace), ""))
            return watch.outcome()


class _Watch:
    """What the conversation told."""

    agent: Agent

    def __init__(self) -> None:
        self._ended: TurnEnded | None = None
        self._began: TurnBegan | None = None
        self._meters: Meters | None = None
        self._ttft: float | None = None
        self._failed = ""

    def hear(self, event: Event) -> None:
        if isinstance(event, Asked):
            # Not from here: whoever asks is not waiting yet.
            asyncio.get_running_loop().call_soon(self._answer, event)
        elif event.worker:
            return
        elif isinstance(event, TurnBegan):
            self._began = event
        elif isinstance(event, TurnEnded):
            self._ended = event
        elif isinstance(event, Meters):
            self._meters = event
            self._ttft = event.ttft if self._ttft is None else self._ttft
        elif isinstance(event, MessageChanged) and event.state == "failed":
            self._failed = event.reason

    def _answer(self, event: Asked) -> None:
        try:
            self.agent.answer(event.ask, _NO[event.kind])
        except UsageError:  # the turn has ended meanwhile, and took the question with it
            return

    def outcome(self) -> Outcome:
        meters = self._meters or Meters()
        return Outcome(
            status=self._status(),
            reason=self._reason(),
            ttft=self._ttft,
            tok_s=meters.tokens_per_second,
            prompt_tokens=meters.input_tokens,
            output_tokens=meters.output_tokens,
            draft_accepted=meters.copied,
            second_round=meters.steps > 1,
            steps=meters.steps,
            mode=self._began.mode if self._began is not None else "",
        )

    def _reason(self) -> str:
        ended = self._ended
        if ended is None:
            return self._failed or "the turn did not end"
        return ended.reason or ("" if ended.changed else "the turn ended without a change")

    def _status(self) -> Literal["changed", "unchanged", "refused", "error"]:
        ended = self._ended
        if ended is None or ended.status == "stopped":
            return "error"
        if ended.changed:
            return "changed"
        return "unchanged" if ended.status in ("done", "unchanged") else "refused"

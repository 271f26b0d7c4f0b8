"""Deep for models that cannot be trusted with tools: edit, run the checks, show what failed, sample anew.

Small models do not mend what they are told is wrong (a second try adds nothing at 0.5B and three points at 1.5B on
aider's edit board), so each round samples from the original again; the failure is context, not a conversation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from vivace.agent.sessions.entries import User
from vivace.agent.turns.desk import Desk, Outcome
from vivace.agent.turns.events import Applied, Noted
from vivace.agent.turns.fast import Fast
from vivace.agent.turns.limits import Spent
from vivace.agent.turns.race import THOROUGH, WIDE
from vivace.agent.workspace import write_all
from vivace.model_size import SMALL, billions
from vivace.protocol.contracts import ModelCard

ROUNDS = 6
"""Of a deep turn."""
QUICK = 3
"""Behind a quick answer, and fewer where one brings nothing."""


def is_weak(desk: Desk, card: ModelCard) -> bool:
    """Whether tools are not for this model: it has none, its name says it is small, or it failed with them here."""
    if desk.options.weak is not None:
        return desk.options.weak
    size = billions(card.name)
    return not card.tools or (size is not None and size < SMALL) or desk.measured.fails_with_tools(card.name)


class Repair:
    """``extra`` is what the model is told in each round besides the user's words.

    A deep turn takes all its rounds. What goes on from a quick answer ends after one that brought nothing.
    """

    def __init__(self, desk: Desk, spent: Spent, extra: str = "") -> None:
        self.desk = desk
        self.spent = spent
        self.extra = extra

    async def run(self, said: Sequence[User], paths: list[str]) -> Outcome:
        """Rounds of fast edits until the checks pass."""
        with self.desk.models.all_by(self.desk.models.of("deep")):
            fast = Fast(self.desk, self.spent, verify=True, width=THOROUGH)
            fast.extra = self.extra
            outcome = await fast.run(said, paths)
            return await self._go_on(outcome, fast, patient=True)

    async def go_on(self, outcome: Outcome, fast: Fast) -> Outcome:
        """From an answer that was found wanting."""
        with self.desk.models.all_by(self.desk.models.of("deep")):
            return await self._go_on(outcome, fast, patient=False)

    async def _go_on(self, outcome: Outcome, fast: Fast, *, patient: bool) -> Outcome:
        said = [User(fast.instruction)]
        best, least = (fast, outcome), _faults(fast, outcome)
        rounds, width = (ROUNDS, THOROUGH) if patient else (QUICK, WIDE)
        for number in range(1, rounds):
            failing = fast.report is not None and not fast.report.holds
            if outcome.status == "done" and not failing:
                return outcome
            if over := self.spent.exceeded():
                return Outcome("limit", f"{over} is used up", outcome.changed, outcome.details)
            if fast.declined:
                return outcome
            self.desk.emit(Noted(text=f"Round {number + 1} of {rounds}: {fast.doubts or outcome.reason}"))
            extra = self.extra
            if failing and fast.report is not None and fast.report.output:
                extra = f"{extra}\n\nAn earlier attempt failed:\n{fast.report.output}".strip()
            before = fast
            await self._take_back(before, outcome)
            fast = Fast(self.desk, self.spent, verify=True, width=width, before=before)
            fast.extra = extra
            fast.replaces = outcome.status == "done"
            outcome = await fast.run(said, before.paths)
            faults = _faults(fast, outcome)
            if faults < least:
                best, least = (fast, outcome), faults
            elif not patient:
                break
        if best[0] is not fast:
            await self._take_back(fast, outcome)
            fast, outcome = best
            await self._put_back(fast, outcome)
        if fast.report is not None and not fast.report.holds:
            outcome.details["doubts"] = fast.report.failure
            outcome.reason = f"{fast.report.failure}; more rounds did not mend it"
            self.desk.emit(Noted(text=f"It is not right yet: {outcome.reason}.", level="warning"))
        return outcome

    async def _take_back(self, fast: Fast, outcome: Outcome) -> None:
        """The files as they were before the answer that failed: the next one starts from them."""
        if outcome.status != "done" or not fast.applied:
            return
        desk = self.desk
        await desk.files.take("take back an edit that failed its checks", "call")
        write_all([(after, before.raw) for before, after in fast.applied])
        desk.disown_edits("replaced", fast.kept)

    async def _put_back(self, fast: Fast, outcome: Outcome) -> None:
        """The answer of an earlier round, which is better than those that followed."""
        if outcome.status != "done" or not fast.applied:
            return
        desk = self.desk
        desk.emit(Noted(text="An earlier round's answer is better, and is kept."))
        names = [after.name for _, after in fast.applied]
        taken = await desk.files.take(f"put back an edit of {', '.join(names)}", "call", touching=names)
        write_all([(before, after.raw) for before, after in fast.applied])
        desk.touch(names)
        desk.own_edits(fast.kept)
        desk.emit(Applied(paths=tuple(names), checkpoint=taken.id))


def _faults(fast: Fast, outcome: Outcome) -> float:
    """How far from right it is; infinite where no edit came."""
    if outcome.status != "done":
        return math.inf
    return 0 if fast.report is None or fast.report.holds else max(1, fast.report.faults)

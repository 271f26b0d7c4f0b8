"""A deep turn of several models: one plans, another builds, a third reviews what was built.

What they say is kept in the conversation, so that a turn that was cut off goes on where it was: the plan is not made
twice, and findings that nobody worked off are worked off. A new message of the user comes before either: a plan is made
anew with it, and a review makes way for the builder.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec
from msgspec import Struct, field

from vivace.agent.sessions.entries import CheckpointRef, Entry, Mode, Note, User
from vivace.agent.sessions.together import TURN
from vivace.agent.tools.base import schema_of
from vivace.agent.tools.clip import head_and_tail
from vivace.agent.turns import prompts
from vivace.agent.turns.answer import Answer, listen
from vivace.agent.turns.compaction import compact, size
from vivace.agent.turns.deep import show_map
from vivace.agent.turns.desk import Desk, Outcome
from vivace.agent.turns.events import Noted, PlanChanged
from vivace.agent.turns.fast import preemptible
from vivace.agent.turns.history import FOUND, PASSED, REVIEWS, history
from vivace.agent.turns.limits import Spent
from vivace.agent.turns.threeway import Merge, preview
from vivace.errors import VivaceError
from vivace.protocol.items import Item, Message
from vivace.protocol.options import JsonSchemaFormat, TextOptions
from vivace.protocol.requests import ResponseRequest

ROUNDS = 2
"""How often the builder gets findings of the reviewer."""
PLANNED = "The plan"
"""How the note begins that holds it."""
SHOWN = 0.6
"""Share of the reviewer's window for the diff."""
MOST_STEPS = 12
TOKENS = 2048
"""Of a plan or a verdict, thoughts included."""

_ITEM = re.compile(r"^\s*(?:\d+[.)]|[-*])\s+(.+)$", re.MULTILINE)
S = TypeVar("S", bound=Struct)

Build = Callable[[str], Awaitable[Outcome]]
"""Does the work; it is told the plan and the findings, for those who do not read the conversation."""


class Steps(Struct):
    """What the planner answers."""

    steps: list[str]


class Verdict(Struct):
    """What the reviewer answers."""

    ok: bool
    findings: list[str] = field(default_factory=list)


class _SoFar(Struct):
    """How far the turn had come; ``built``: it is the reviewer's turn."""

    plan: str = ""
    findings: str = ""
    rounds: int = 0
    built: bool = False


class Roles:
    """One turn. ``checkpoint`` is the one from before it, None where the turn goes on with one that was cut off."""

    def __init__(self, desk: Desk, spent: Spent, checkpoint: int | None) -> None:
        self.desk = desk
        self.spent = spent
        self.checkpoint = checkpoint
        self.planner = desk.options.roles.get("planner", "")
        self.reviewer = desk.options.roles.get("reviewer", "")

    async def run(self, build: Build, *, plan: bool = True) -> Outcome:
        """To the end. Raises what a model that fails raises; a reviewer that gives no verdict is told, no more."""
        if not self.planner and not self.reviewer:
            return await build("")
        so_far = await self._so_far()
        if plan and self.planner and not so_far.plan:
            so_far.plan = await self._plan()
        outcome = Outcome("done") if so_far.built else await build(_joined(so_far.plan, so_far.findings))
        while self.reviewer and outcome.status == "done":
            if over := self.spent.exceeded():
                return Outcome("limit", f"{over} is used up before the review", outcome.changed, outcome.details)
            diff = await self._diff()
            if not diff:
                break
            verdict = await preemptible(self.desk, self._review(diff, so_far.plan))
            if verdict is None:
                self.desk.inbox.take_steers()
                outcome = await build(so_far.plan)
                continue
            told = "; ".join(verdict.findings)
            outcome.details["review"] = "ok" if verdict.ok else told or "no verdict"
            if verdict.ok or not verdict.findings:
                break
            if so_far.rounds == ROUNDS:
                outcome.reason = f"{self.reviewer} still finds: {told}"
                break
            so_far.rounds += 1
            outcome = await build(_joined(so_far.plan, told))
        return outcome

    async def _plan(self) -> str:
        """The steps, as they are kept in the conversation; empty when the planner gave none."""
        desk = self.desk
        card = await desk.card(self.planner)
        self._tell(f"{self.planner} plans.")
        await show_map(desk, card)
        while True:
            items = history(desk.conversation).items
            if size(items) > desk.options.compact_at * card.context_window:
                await compact(desk, self.planner, desk.metered(self.spent, card))
                items = history(desk.conversation).items
            asked = self._ask(self.planner, prompts.PLAN, items, Steps, "plan")
            if (text := await preemptible(desk, asked)) is not None:
                break
            desk.inbox.take_steers()
        steps = _steps(text)
        if not steps:
            self._tell(f"{self.planner} gave no plan; going on without.", warning=True)
            return ""
        desk.emit(PlanChanged(steps=tuple((step, "pending") for step in steps)))
        lines = "\n".join(f"{n}. {step}" for n, step in enumerate(steps, 1))
        note = f"{PLANNED} of {self.planner}; work it off:\n{lines}"
        desk.conversation.append(Note(note))
        return note

    async def _review(self, diff: str, plan: str) -> Verdict:
        """What the reviewer says of the change; not ``ok``, and without findings, where it gives no verdict."""
        desk = self.desk
        desk.conversation.append(Mode("deep", self.reviewer, REVIEWS))
        self._tell(f"{self.reviewer} reviews the change.")
        said = [entry.data.text.strip() for entry in await self._entries() if isinstance(entry.data, User)]
        task = "\n\n".join(said)
        why = "its answer is none"
        try:
            card = await desk.card(self.reviewer)
            shown = head_and_tail(diff, int(card.context_window * SHOWN), desk.context.count)
            text = _joined(f"The task:\n{task}", plan, f"The change:\n```diff\n{shown}\n```")
            answer = await self._ask(self.reviewer, prompts.REVIEW, [Message("user", text)], Verdict, "verdict")
            verdict = _verdict(answer)
        except VivaceError as error:  # what was built stands without it
            verdict, why = None, str(error)
        if verdict is None:
            self._tell(f"{self.reviewer} gave no verdict: {why}.", warning=True)
            desk.conversation.append(Note(f"{PASSED} {self.reviewer}: no verdict"))
            return Verdict(False)
        if verdict.ok:
            self._tell(f"{self.reviewer}: ok.")
            desk.conversation.append(Note(f"{PASSED} {self.reviewer}: ok"))
            return verdict
        lines = "\n".join(f"- {finding}" for finding in verdict.findings)
        self._tell(f"{self.reviewer} found:\n{lines}", warning=True)
        desk.conversation.append(Note(f"{FOUND} ({self.reviewer}). Put it right, or say why it is none:\n{lines}"))
        return verdict

    async def _ask(self, model: str, told: str, items: Sequence[Item], form: type[Struct], name: str) -> str:
        """One answer in that form. Raises :class:`VivaceError` when the model fails."""
        desk = self.desk
        card = await desk.card(model)
        service = desk.metered(self.spent, card)
        request = ResponseRequest(
            model=model,
            input=list(items),
            instructions=prompts.instructions(told, desk.root),
            text=TextOptions(format=JsonSchemaFormat(name, schema_of(form), strict=True)),
            max_output_tokens=min(TOKENS, max(256, card.context_window // 8)),
            store=False,
        )
        answer = Answer()
        try:
            await listen(service, request, answer, lambda text: None, lambda text: None)
        finally:
            desk.record_usage(service)
        if answer.status == "failed":
            raise VivaceError(f"{model} does not answer: {answer.message}", code="generation_failed")
        return answer.text or answer.partial

    async def _diff(self) -> str:
        """What the turn changed so far, whoever changed it."""
        number = await self._base()
        if number is None:
            return ""
        store, root = self.desk.files.store, self.desk.root

        def work() -> str:
            merges = []
            for change in store.diff(number):
                kinds = {node.kind for node in (change.before, change.after) if node is not None}
                if kinds != {"file"}:
                    continue
                now = (root / change.path).read_bytes() if change.after is not None else None
                before = store.read(number, change.path) if change.before is not None else None
                merges.append(Merge(change.path, before, now, 0))
            return preview(merges)

        return await self.desk.files.do(work)

    async def _base(self) -> int | None:
        """The checkpoint from before the turn."""
        if self.checkpoint is None:
            path = self.desk.conversation.path()
            refs = [entry.data.number for entry in path if isinstance(entry.data, CheckpointRef)]
            store = self.desk.files.store

            def work() -> int | None:
                known = {point.id for point in store.checkpoints() if point.kind == TURN}
                return next((number for number in reversed(refs) if number in known), None)

            self.checkpoint = await self.desk.files.do(work)
        return self.checkpoint

    async def _entries(self) -> list[Entry]:
        """Those of this turn."""
        number = await self._base()
        path = self.desk.conversation.path()
        for n, entry in enumerate(path):
            if isinstance(entry.data, CheckpointRef) and entry.data.number == number:
                return path[n:]
        return path

    async def _so_far(self) -> _SoFar:
        so_far = _SoFar()
        for entry in await self._entries():
            match entry.data:
                case User():
                    so_far.built = False
                case Note(text=text) if text.startswith(PLANNED):
                    so_far.plan = text
                case Note(text=text) if text.startswith(FOUND):
                    so_far.findings, so_far.built = text, False
                    so_far.rounds += 1
                case Mode(reason=reason) if reason == REVIEWS:
                    so_far.built = True
        return so_far

    def _tell(self, text: str, *, warning: bool = False) -> None:
        self.desk.emit(Noted(text=text, level="warning" if warning else "info"))


def _joined(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)


def _steps(text: str) -> list[str]:
    """The steps, from the form that was asked for or from a list; a server may know no forms."""
    read = _read(text, Steps)
    found = read.steps if read is not None else [match[1] for match in _ITEM.finditer(text)]
    return [" ".join(step.split()) for step in found if step.strip()][:MOST_STEPS]


def _verdict(text: str) -> Verdict | None:
    """None for what is none: neither the form nor a single word, or an objection without a finding."""
    read = _read(text, Verdict)
    if read is None:
        return Verdict(True) if text.strip().strip(".!").lower() in ("ok", "okay") else None
    read.findings = [" ".join(finding.split()) for finding in read.findings if finding.strip()]
    return read if read.ok or read.findings else None


def _read(text: str, form: type[S]) -> S | None:
    """The object in ``text``, with or without a fence around it."""
    first, last = text.find("{"), text.rfind("}")
    try:
        return msgspec.json.decode(text[first : last + 1], type=form)
    except msgspec.DecodeError:
        return None

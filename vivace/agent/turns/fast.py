"""The fast mode: one call, one minimal diff, no exploration. Or, to a question, one answer.

A steer pre-empts at the next token: the generation is stopped, and asked again with what was added.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from vivace.agent.applier import Patch
from vivace.agent.approvals.actions import WriteFile
from vivace.agent.edit import apply, edit
from vivace.agent.languages import language_of
from vivace.agent.livediff import LiveDiff
from vivace.agent.result import Began, EditEvent, EditRequest, EditResult, Lines
from vivace.agent.sessions.entries import Items, User
from vivace.agent.turns import prompts
from vivace.agent.turns.answer import Answer, listen
from vivace.agent.turns.asks import SAID_ELSE
from vivace.agent.turns.desk import Desk, Outcome
from vivace.agent.turns.events import Applied, Editing, Noted, Proposed, Said, Thought
from vivace.agent.turns.history import history
from vivace.agent.turns.inbox import Letter
from vivace.agent.turns.kept_edits import KeptEdit
from vivace.agent.turns.limits import Spent
from vivace.agent.turns.named import named_files
from vivace.agent.turns.race import CANDIDATES, Race, candidates_for, racing
from vivace.agent.turns.spread import Spread
from vivace.agent.turns.verify import Ground, Report
from vivace.agent.workspace import SourceFile
from vivace.errors import UsageError, VivaceError
from vivace.protocol.contracts import ModelCard
from vivace.protocol.items import Message, OutputText, encode
from vivace.protocol.requests import ResponseRequest

T = TypeVar("T")
AGREED = 0.5
"""Share of the candidates that came to the same text below which an answer is in doubt."""
SEEDS = 1000
"""Seeds of two rounds are so far apart."""
DIFF_KEPT = 6000
"""Characters of a diff that later turns see."""
UNANSWERED = "the last process ended before it was answered, and the edit that came next is not about it"


class Fast:
    """One fast turn. After :meth:`run`: ``diff`` of what was applied, ``doubts`` about it in words, empty for none.

    ``before`` is one on the same task whose answer did not hold: this one samples all its answers, and others.
    """

    def __init__(
        self, desk: Desk, spent: Spent, *, verify: bool = False, width: int = CANDIDATES, before: Fast | None = None
    ) -> None:
        self.desk = desk
        self.spent = spent
        self.verify = verify
        self.width = width
        """Answers of a small model that race, where nobody says how many."""
        self.extra = ""
        """What the model is told besides the user's words."""
        self.round: int = before.round + 1 if before is not None else 0
        self.free: bool = before is not None and before.free
        """The model answers in the free manner only, as was seen."""
        self.diff = ""
        self.doubts = ""
        self.paths: list[str] = []
        self.instruction = ""
        self.replaces = False
        self.check_behind = False
        """Verify what was applied, once it is shown, where the race has not."""
        self.applied: list[tuple[SourceFile, SourceFile]] = []
        """Each file before and after."""
        self.kept: list[KeptEdit] = []
        """The same, as it is kept."""
        self.declined = False
        """There is an edit, and it may not be applied: the user refused it, or only reading is allowed."""
        self.report: Report | None = None
        self.race: Race | None = None
        self.card: ModelCard | None = None

    async def run(self, said: Sequence[User], paths: list[str], *, question: bool = False) -> Outcome:
        """To the end. Raises :class:`VivaceError` for what cannot be edited and for a service that fails."""
        desk = self.desk
        self.instruction = "\n\n".join(user.text.strip() for user in said)
        self.paths = list(paths)
        self._add([letter for letter in desk.inbox.sent if not letter.adopted])
        if not (self.paths or question):  # before a model is loaded for nothing
            raise UsageError(
                "no file was named, and none is obvious from the message",
                hint="Name the file, or take the deep mode, which looks for it.",
                code="no_file",
                param="files",
            )
        card = self.card = await desk.card(desk.models.of("fast"))
        service = desk.metered(self.spent, card)
        try:
            while True:
                work = self._answer(service, card) if question else self._edit(service, card)
                outcome = await preemptible(desk, work)
                if outcome is not None and self.check_behind and self.applied and self.report is None:
                    if await preemptible(desk, self._check()) is None:
                        self._note("Not checked: you go on.")
                    return outcome
                if outcome is not None and not (outcome.status == "unchanged" and desk.inbox.steered):
                    return outcome
                self._add(desk.inbox.take_steers())
        finally:
            desk.record_usage(service)

    def _add(self, letters: Sequence[Letter]) -> None:
        """What the user said besides, in this turn."""
        for letter in letters:
            if (text := letter.text.strip()) not in self.instruction:
                self.instruction = f"{self.instruction}\n\n{text}"
            self.paths += [path for path in letter.files if path not in self.paths]
            self.paths += [path for path in named_files(self.desk.root, letter.text) if path not in self.paths]

    async def _edit(self, service: Any, card: ModelCard) -> Outcome | None:
        """One edit turn; None when the user said something else instead of yes or no."""
        desk = self.desk
        desk.inbox.leave_out(self.instruction, UNANSWERED)
        sources = await desk.read(self.paths)
        names = [source.name for source in sources]
        team = await self._team(card)
        count = await self._count(card, len(team))
        bigger = desk.models.builder or desk.models.deep
        judge = (service, bigger) if bigger and bigger != card.name else None
        instruction = f"{self.instruction}\n\n{self.extra}".strip()
        seed = desk.options.seed + self.round * SEEDS
        again = self.round > 0
        request = EditRequest(
            names,
            instruction,
            card.name,
            seed,
            candidates=count,
            root=desk.root,
            greedy=not again,
            free=self.free,
            rules=desk.rules_of,
        )
        asked = self.instruction
        race_of = racing(self._ground, names, asked, count, self.verify, judge, self._note, seed)
        async with race_of as race:
            self.race = race
            refereed = count > 1 or race.verifier is not None
            racers = Spread(service, team, seed, greedy=not again) if len(team) > 1 else service
            result = await edit(racers, request, sources, _Live(desk, race), race if refereed else None)
        self.free = self.free or all(file.free for file in result.files)
        return await self._settle(result, race)

    async def _team(self, card: ModelCard) -> list[ModelCard]:
        """The models whose answers race; one that cannot be opened is told and left out."""
        team = [card]
        for model in self.desk.options.race_models:
            try:
                team.append(await self.desk.card(model))
            except VivaceError as error:
                self.desk.emit(Noted(text=f"{model} does not race: {error}", level="warning"))
        return team

    async def _count(self, card: ModelCard, models: int) -> int:
        """How many answers race: at least one of each model, and no more than there is room for."""
        options = self.desk.options
        wanted = candidates_for(card, options.candidates, small=self.width)
        if options.candidates is None:
            wanted = max(wanted, models)
        if wanted == 1:
            return 1
        count = candidates_for(card, wanted, (await self.desk.service.open(card.name)).free_slots)
        if count < wanted:
            self._note(f"{count} of {wanted} candidates: others use {card.name} too")
        return count

    async def _settle(self, result: EditResult, race: Race) -> Outcome | None:
        desk = self.desk
        if result.status != "changed":
            reasons = "; ".join(dict.fromkeys(file.reason for file in result.files if file.reason))
            self.doubts = reasons or "no edit came"
            self._record(f"No change: {self.doubts}.")
            return Outcome("unchanged" if result.status == "unchanged" else "failed", self.doubts)
        patches = result.patches
        self.report = race.report_of(patches[-1].source.name, patches[-1].data)
        self.doubts = self._doubts(race)
        self.diff = "".join(patch.diff for patch in patches)
        kept = self._kept(patches, result)
        reply = await self._propose(patches)
        if reply == "read-only":
            self.doubts, self.declined = "", True
            self._record(
                f"Proposed, and not applied, since only reading is allowed:\n```diff\n{self.diff[:DIFF_KEPT]}```"
            )
            return Outcome("unchanged", "only reading is allowed here: the edit is shown and was not applied")
        if reply == SAID_ELSE:
            return None
        if reply != "apply":
            for one in kept:
                one.accepted, one.reason = False, "user"
                desk.kept_edits.keep(one)
            self.doubts, self.declined = "", True
            self._record(f"Proposed, and refused by the user:\n```diff\n{self.diff[:DIFF_KEPT]}```")
            note = "" if reply in ("no", "") else f": {reply}"
            return Outcome("unchanged", f"the proposal was refused{note}")
        await self._apply(result)
        self.kept = kept
        desk.own_edits(kept)
        self._record(f"Done:\n```diff\n{self.diff[:DIFF_KEPT]}```")
        details: dict[str, object] = {
            "lines_changed": result.lines_changed,
            "candidates": race.count,
            "agreement": race.agreement,
            "verified": self.report.words if self.report is not None else "",
        }
        return Outcome("done", "", [patch.source.name for patch in patches], details)

    async def _propose(self, patches: list[Patch]) -> str:
        """Show it; ``apply``, ``read-only``, or what the user said instead."""
        desk = self.desk
        blocks = [block for patch in patches for block in patch.blocks]
        desk.emit(
            Proposed(
                diff=self.diff,
                paths=tuple(patch.source.name for patch in patches),
                added=sum(block.j2 - block.j1 for block in blocks),
                removed=sum(block.i2 - block.i1 for block in blocks),
                verified=self.report.words if self.report is not None else "",
                replaces=self.replaces,
            )
        )
        if desk.only_reads:
            return "read-only"
        ask = desk.options.propose or desk.options.approvals == "ask"
        for patch in patches:
            action = WriteFile(patch.source.name)
            if not ask or desk.context.approvals.decide(action).verdict == "deny":
                await desk.context.approvals.admit(action, desk.consult)
        if not ask or desk.options.worker:
            return "apply"
        reply = await desk.asks.ask("proposal", self.diff, [("apply", "Apply"), ("no", "Leave it")])
        return "apply" if reply.strip().lower() in ("apply", "y", "yes") else reply

    async def _apply(self, result: EditResult) -> None:
        names = [patch.source.name for patch in result.patches]
        taken = await self.desk.files.take(f"edit {', '.join(names)}", "call", touching=names)
        apply(result)
        self.applied = [(patch.source, replace(patch.source, raw=patch.data)) for patch in result.patches]
        self.desk.touch(names)
        self.desk.emit(Applied(paths=tuple(names), checkpoint=taken.id))

    async def _check(self) -> bool:
        """What was applied, in a copy: the user may go on meanwhile, which ends it."""
        contents = {after.name: after.raw for _, after in self.applied}
        async with racing(self._ground, list(contents), self.instruction, 1, True) as race:
            if race.verifier is None:
                return True
            self.report = await race.verifier.verify(contents)
        self.doubts = self.doubts if self.report.holds else self.report.failure
        self.desk.emit(Noted(text=self.report.words, level="info" if self.report.holds else "warning"))
        return True

    @property
    def _ground(self) -> Ground:
        desk, options = self.desk, self.desk.options
        return Ground(desk.root, desk.context, desk.measured, options.cache_dir, options.quick)

    def _note(self, text: str) -> None:
        self.desk.emit(Noted(text=text))

    def _doubts(self, race: Race) -> str:
        if self.report is not None and not self.report.holds:
            return self.report.failure
        if self.report is not None and (self.report.tested or self.report.as_before):
            return ""
        if race.count > 1 and race.agreement is not None and race.agreement < AGREED:
            return f"the candidates do not agree ({race.agreement:.0%} came to the same)"
        return ""

    async def _answer(self, service: Any, card: ModelCard) -> Outcome:
        """A question: one answer in words, from the conversation and the files that it names."""
        desk = self.desk
        sources = await desk.read(self.paths) if self.paths else []
        shown = prompts.shown_files([(source.name, source.text) for source in sources])
        told = history(desk.conversation).items
        request = ResponseRequest(
            model=card.name,
            input=[*([Message("user", shown)] if shown else []), *told],
            instructions=prompts.instructions(prompts.TALK, desk.root),
            store=False,
        )
        tokens = await desk.service.input_tokens(request)
        if tokens + 256 > card.context_window:
            raise UsageError(
                f"{', '.join(self.paths)}: too long for {card.name} to be asked about at once ({tokens:,} tokens)",
                hint="Take the deep mode, which reads in parts.",
                code="too_large",
            )
        answer = Answer()
        try:
            await listen(
                service,
                request,
                answer,
                lambda text: desk.emit(Said(text=text)),
                lambda text: desk.emit(Thought(text=text)),
            )
        finally:
            if kept := answer.kept():
                desk.conversation.append(Items(kept))
        if answer.status == "failed":
            raise VivaceError(f"The model does not answer: {answer.message}", code="generation_failed")
        return Outcome("done", "" if answer.status == "completed" else f"the answer was cut ({answer.message})")

    def _record(self, text: str) -> None:
        """What later turns see of this one."""
        message = Message("assistant", [OutputText(text)])
        self.desk.conversation.append(Items((msgspec.Raw(encode(message)),)))

    def _kept(self, patches: list[Patch], result: EditResult) -> list[KeptEdit]:
        desk = self.desk
        return [
            KeptEdit(
                time=time.time(),
                workspace=desk.measured.path.parent.name,
                conversation=desk.conversation.id,
                model=result.card.name,
                path=patch.source.name,
                language=language_of(patch.source.name, patch.source.text),
                instruction=self.instruction,
                before=patch.source.text,
                after=patch.text,
                diff=patch.diff,
                accepted=True,
            )
            for patch in patches
        ]


class _Live:
    """Turns the events of an edit into a live diff. A background worker's nobody looks at."""

    def __init__(self, desk: Desk, race: Race) -> None:
        self.desk = desk
        self.race = race
        self._path = ""
        self._diff: LiveDiff | None = None

    def __call__(self, event: EditEvent) -> None:
        if isinstance(event, Began):
            if self.race.count > 1 and not self._path:
                self.desk.emit(Noted(text=f"{self.race.count} candidates race; the first is shown"))
            self._path, self._diff = event.source.name, LiveDiff(event.old)
            if event.retry:
                self.desk.emit(Noted(text=f"asked again: {event.retry}"))
            self.desk.emit(Editing(path=self._path, lines=()))
        elif isinstance(event, Lines) and self._diff is not None and not self.desk.options.worker:
            lines = tuple(mark + line for mark, line in self._diff.feed(event.lines))
            if lines:
                self.desk.emit(Editing(path=self._path, lines=lines))


async def preemptible(desk: Desk, work: Coroutine[Any, Any, T]) -> T | None:
    """The result of ``work``, or None when a steer came first: it is stopped then, to its last token."""
    task = asyncio.create_task(work)
    steered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def steer() -> None:
        if not steered.done():
            steered.set_result(None)

    desk.on_steer = steer
    if desk.inbox.steered:
        steer()
    either: list[asyncio.Future[Any]] = [task, steered]
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        desk.on_steer = lambda: None
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

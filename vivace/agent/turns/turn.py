"""One turn: what the user said is taken up, worked on in a mode, and comes to an end that is told."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time

from vivace.agent.sessions.entries import CheckpointRef, Note, ToolResult, User
from vivace.agent.sessions.entries import Mode as ModeEntry
from vivace.agent.sessions.together import TURN
from vivace.agent.turns.auto import Decision, decide
from vivace.agent.turns.deep import Deep, show_map
from vivace.agent.turns.desk import Desk, Outcome, failed
from vivace.agent.turns.events import Mode, Noted, TurnBegan, TurnEnded
from vivace.agent.turns.fast import Fast
from vivace.agent.turns.history import CUT_OFF, ENDED, open_calls
from vivace.agent.turns.inbox import Letter
from vivace.agent.turns.limits import Spent
from vivace.agent.turns.repair import Repair, is_weak
from vivace.agent.turns.roles import Roles
from vivace.agent.workspace import SourceFile
from vivace.errors import VivaceError

log = logging.getLogger(__name__)

FOUND = 3
"""Files that are looked up for a question that names none; for an edit it is one."""
MOST_SHOWN = 6000
"""Tokens of them, and at most a quarter of the window."""


class Turn:
    """Runs once. ``going_on``: it finishes the turn that the end of a process cut off, without a new message."""

    def __init__(self, desk: Desk, number: int, mode: Mode, *, going_on: bool = False) -> None:
        self.desk = desk
        self.number = number
        self.mode: Mode = mode
        self.going_on = going_on
        self.checkpoint: int | None = None
        self.abandoned = False
        """The conversation is being closed, not the turn ended: it can be gone on with."""
        self._began = False

    async def run(self) -> None:
        """Never raises; a cancellation ends the turn as ``stopped``."""
        desk, started = self.desk, time.perf_counter()
        outcome: Outcome | None = None
        try:
            outcome = await self._run()
        except asyncio.CancelledError:
            outcome = Outcome("stopped", "stopped by the user")
        except VivaceError as error:
            outcome = failed(error)
        except Exception as error:
            log.exception("a turn broke")
            outcome = Outcome("failed", f"internal error ({type(error).__name__}: {error}); please report it")
        try:
            self._end(outcome)
        except VivaceError as error:  # the disk is full: what was said cannot be kept, and that has to be said
            desk.emit(Noted(text=str(error), level="error"))
        if outcome is not None and (self._began or outcome.status == "failed"):
            seconds = time.perf_counter() - started
            changed = tuple(outcome.changed)
            desk.emit(
                TurnEnded(
                    status=outcome.status,
                    reason=outcome.reason,
                    seconds=seconds,
                    changed=changed,
                    details=outcome.details,
                )
            )

    async def _run(self) -> Outcome | None:
        desk = self.desk
        letters: list[Letter] = []
        if self.going_on:
            said, mode = await self._set_back()
        else:
            waiting = desk.inbox.waiting
            if not waiting:
                return None
            self.checkpoint = (await desk.files.take(waiting[0].text, TURN)).id
            desk.edits = []
            desk.touched = {}
            letters = desk.inbox.take_next()
            if not letters:  # given back meanwhile
                return None
            said, mode = [User(letter.text, "sent", letter.files) for letter in letters], self.mode
        desk.asked = "\n\n".join(user.text.strip() for user in said)
        spent = Spent(desk.options.limits)
        decision = await decide(desk, said, mode)
        model = desk.models.of(decision.mode)
        desk.conversation.append(ModeEntry(decision.mode, model, decision.reason))
        self._began = True
        desk.emit(TurnBegan(mode=decision.mode, model=model, reason=decision.reason))
        limit = desk.options.limits.seconds
        try:
            async with asyncio.timeout(limit):
                outcome = await self._work(decision, said, spent)
        except TimeoutError:
            outcome = Outcome("limit", f"the limit of {limit:g} seconds is used up")
        if self.checkpoint is not None and outcome.status != "unchanged":
            outcome.changed = await self._changed() or outcome.changed
        return outcome

    async def _work(self, decision: Decision, said: list[User], spent: Spent) -> Outcome:
        desk = self.desk
        roles = Roles(desk, spent, self.checkpoint)
        if decision.mode == "deep":
            weak = is_weak(desk, await desk.card(desk.models.of("deep")))
            if weak and decision.question:
                return await self._question(decision, said, spent)

            paths = decision.paths or (await self._looked_up(said, 1) if weak else [])

            async def build(extra: str) -> Outcome:
                if weak and paths:
                    return await Repair(desk, spent, extra).run(said, paths)
                deep = Deep(desk, spent)
                outcome = await deep.run()
                if weak and outcome.status == "done" and not deep.called:
                    # What it says in words that look like a call was not done.
                    return Outcome("unchanged", f"{deep.model} used no tool; name the file, or take a bigger model")
                return outcome

            return await roles.run(build, plan=not decision.question)
        if decision.question and self.mode == "auto":
            return await self._question(decision, said, spent)
        fast = Fast(desk, spent)
        fast.check_behind = decision.check
        outcome = await fast.run(said, decision.paths, question=decision.question)
        doubts = fast.doubts
        if not decision.check or outcome.status not in ("done", "failed", "unchanged") or not doubts:
            return outcome
        if outcome.status == "done" and desk.inbox.steered:  # what the user says now comes first
            return outcome
        desk.emit(Noted(text=f"Looking deeper: {doubts}."))
        weak = is_weak(desk, await desk.card(desk.models.of("deep")))
        begun = False

        async def mend(extra: str) -> Outcome:
            nonlocal begun
            first, begun = not begun, True
            if weak and first:
                return await Repair(desk, spent, extra).go_on(outcome, fast)
            if weak:
                return await Repair(desk, spent, extra).run(said, fast.paths)
            return await Deep(desk, spent).run(check=fast.diff if first else "")

        try:
            return await roles.run(mend, plan=False)
        finally:
            self._disown_replaced(fast)

    def _disown_replaced(self, fast: Fast) -> None:
        """Of what the quick answer wrote, the files that are not so any more."""
        wrote = {after.name: after for _, after in fast.applied}
        lost = [edit for edit in fast.kept if not _stands(wrote[edit.path])]
        self.desk.disown_edits("replaced", lost)

    async def _question(self, decision: Decision, said: list[User], spent: Spent) -> Outcome:
        """Words for words: from the files that are named, or that hold what is named."""
        desk = self.desk
        paths = decision.paths or await self._looked_up(said, FOUND)
        if not paths and decision.mode == "deep":
            await show_map(desk, await desk.card(desk.models.of("deep")))
        return await Fast(desk, spent).run(said, paths, question=True)

    async def _looked_up(self, said: list[User], most: int) -> list[str]:
        """Files that hold what is named, as many as there is room for in a request."""
        desk = self.desk
        paths: list[str] = []
        room = min(MOST_SHOWN, (await desk.card(desk.models.of("fast"))).context_window // 4)
        for path in await desk.whereabouts.files("\n\n".join(user.text for user in said), most):
            with contextlib.suppress(VivaceError):
                room -= desk.context.count((await desk.read([path]))[0].text)
                if room < 0:
                    break
                paths.append(path)
        if paths:
            desk.emit(Noted(text=f"Looked up: {', '.join(paths)}."))
        return paths

    async def _set_back(self) -> tuple[list[User], Mode]:
        """The files as they were before the call that was cut off; what was said, and the mode that it ran in."""
        desk = self.desk
        calls = open_calls(desk.conversation)
        path = desk.conversation.upwards(desk.conversation.leaf)
        last = next((entry.id for entry in path if not isinstance(entry.data, CheckpointRef)), "")
        await desk.files.do(lambda: self._restore({last, *calls.values()}))
        desk.conversation.append_all([ToolResult(call, CUT_OFF, ok=False) for call in calls])
        mode: Mode = self.mode
        said: list[User] = []
        for entry in desk.conversation.upwards(desk.conversation.leaf):
            if isinstance(entry.data, User) and desk.conversation.state(entry.id).state != "failed":
                said.insert(0, entry.data)
            elif said:
                break
            elif isinstance(entry.data, ModeEntry):
                mode = entry.data.mode  # type: ignore[assignment]
        return said, mode

    def _restore(self, begun: set[str]) -> None:
        """To the checkpoint that was taken for a call that had begun; one of an earlier call is none of it."""
        store = self.desk.files.store
        head = store.head
        if head is None or head.kind != "call" or head.position is None:
            return
        if head.position.entry not in begun or not store.diff(head.id):
            return
        restored = store.restore(head.id)
        store.settle()
        saved = restored.saved.id if restored.saved is not None else None
        text = f"An unfinished command's changes were set back to checkpoint {head.id}"
        self.desk.emit(Noted(text=text + (f"; checkpoint {saved} has them." if saved else ".")))

    async def _changed(self) -> list[str]:
        """Every file that is not as it was before the turn, and that the turn has changed itself."""
        store, number, own = self.desk.files.store, self.checkpoint, self.desk.touched
        assert number is not None
        found = [change.path for change in await self.desk.files.do(lambda: store.diff(number))]
        return found if own is None else [path for path in found if path in own]

    def _end(self, outcome: Outcome | None) -> None:
        inbox = self.desk.inbox
        if outcome is None or self.abandoned:
            return
        if outcome.status in ("stopped", "failed", "limit"):
            if not self._began and inbox.waiting and outcome.status == "failed":
                inbox.give_back()  # they could not even be taken: trying again for ever is no help
            self.desk.conversation.append(Note(f"{ENDED}: {outcome.reason}"))
        if inbox.sent:
            inbox.failed(outcome.reason or "no answer was made")


def _stands(file: SourceFile) -> bool:
    try:
        return file.path.read_bytes() == file.raw
    except OSError:
        return False

"""One conversation in one workspace: everything that a face needs. What happens comes out as events.

Accepting a message is a promise: it is on disk, and :mod:`vivace.agent.turns.loop` comes round to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from vivace.agent.checkpoints import Checkpoint, CheckpointStore, Restored
from vivace.agent.checkpoints.place import real_root
from vivace.agent.sessions import (
    Conversation,
    conversations_folder,
    find,
    go_to,
    reconcile,
    step_back,
    step_forth,
)
from vivace.agent.sessions.entries import Mode as ModeEntry
from vivace.agent.tools.processes import Job
from vivace.agent.tools.workers import Workers
from vivace.agent.turns.compaction import compact
from vivace.agent.turns.crew import Crew, Worker
from vivace.agent.turns.desk import Desk, Models
from vivace.agent.turns.events import Event, MessageChanged, Mode, ModeChanged, Noted
from vivace.agent.turns.files import Files
from vivace.agent.turns.history import unfinished
from vivace.agent.turns.inbox import Inbox, Letter
from vivace.agent.turns.jobs import JobWatch
from vivace.agent.turns.loop import Loop
from vivace.agent.turns.options import AgentOptions, Approving, checked_role
from vivace.agent.turns.prefill import Prefills
from vivace.agent.turns.turn import Turn
from vivace.errors import UsageError, VivaceError, did_you_mean
from vivace.protocol.contracts import Service

Listener = Callable[[Event], None]


class Agent:
    """See the module. Made for a new conversation, or by :meth:`open` for one that is there; :meth:`begin` starts it.

    All methods are called from the loop that :meth:`begin` was called in. ``on_event`` is called from there, too, and
    must not wait.
    """

    def __init__(
        self,
        service: Service,
        root: Path,
        *,
        model: str,
        deep_model: str = "",
        mode: Mode = "auto",
        options: AgentOptions | None = None,
        on_event: Listener = lambda event: None,
        conversation: Conversation | None = None,
    ) -> None:
        self.service = service
        self.root = real_root(root)
        self.options = options or AgentOptions()
        self.mode: Mode = mode
        self.models = Models(model, deep_model, self.options.roles.get("builder", ""))
        self.desk: Desk | None = None
        self.crew: Crew | None = None
        self._listener = on_event
        self._conversation = conversation or Conversation.create(
            conversations_folder(self.root, self.options.state_dir), self.root
        )
        self._loop: Loop | None = None
        self._prefills: Prefills | None = None
        self._jobs: JobWatch | None = None

    @classmethod
    def open(
        cls,
        name: str,
        service: Service,
        root: Path,
        *,
        model: str,
        deep_model: str = "",
        mode: Mode = "auto",
        options: AgentOptions | None = None,
        on_event: Listener = lambda event: None,
    ) -> Agent:
        """Go on with a conversation: by the beginning or end of its id, or the last one for an empty name.

        Raises :class:`UsageError` (``conversation_not_found``, ``read_only``) and what ``Conversation.open`` raises.
        """
        options = options or AgentOptions()
        conversation = Conversation.open(find(conversations_folder(real_root(root), options.state_dir), name))
        if conversation.read_only:
            raise UsageError(conversation.read_only, hint="Close it there, or fork it.", code="read_only")
        return cls(
            service,
            root,
            model=model,
            deep_model=deep_model,
            mode=mode,
            options=options,
            on_event=on_event,
            conversation=conversation,
        )

    async def begin(self) -> None:
        """Open the workspace and be ready. Messages that waited when the last process ended are taken up.

        Raises :class:`VivaceError` when the workspace's checkpoints are busy or broken.
        """
        store = await asyncio.to_thread(CheckpointStore, self.root, self.options.state_dir)
        try:
            if reconcile(self._conversation, store):
                self._emit(Noted(text="The last step back had been cut off; it is finished now."))
            if store.recovered is not None:
                self._emit(Noted(text="A restore had been cut off; it is finished now."))
            self._set_up(store)
            assert self.desk is not None
            if not self.options.worker and self.options.max_workers:
                self.crew = Crew(self.desk)
                self.desk.workers = Workers(self.crew)
            await self.desk.begin()
        except BaseException:
            store.close()
            raise
        if self.crew is not None:
            self.desk.set_delegate(self.crew.delegated)
        self._jobs = JobWatch(self.desk)
        self._prefills = Prefills(self.desk)
        self._loop = Loop(self.inbox, self._next, self._settle)
        if self.inbox.waiting:
            self._loop.wake()

    async def close(self) -> None:
        """End everything that the conversation started, its background workers included.

        It can be opened again; a turn that ran is unfinished then, and messages that waited wait still.
        """
        if self._loop is not None:
            await self._loop.close()
        if self._prefills is not None:
            await self._prefills.close()
        if self.crew is not None:
            await self.crew.close()
        if self._jobs is not None:
            self._jobs.close()
        if self.desk is not None:
            await self.desk.close()
            self.desk.files.store.close()
        self._conversation.close()

    @property
    def idle(self) -> bool:
        """No turn runs, and no message waits for one."""
        return self._turns.idle

    @property
    def turn(self) -> int:
        """The number of the turn that runs, or ran last."""
        return self._loop.number if self._loop is not None else 0

    @property
    def conversation(self) -> Conversation:
        return self._conversation

    @property
    def inbox(self) -> Inbox:
        return self._ready.inbox

    @property
    def asks(self) -> list[str]:
        """The ids of what waits for :meth:`answer`."""
        return self._ready.asks.open

    @property
    def unfinished(self) -> bool:
        """The last turn was cut off by the end of the process; :meth:`go_on` finishes it."""
        return self._turns.resting and unfinished(self._conversation)

    def say(self, text: str, verb: Literal["send", "steer", "queue"] = "send", files: Sequence[str] = ()) -> Letter:
        """Take a message in; its states come as ``MessageChanged``. It is on disk when this returns.

        ``send`` begins a turn, or holds for the next when one runs. ``steer`` adds to the running turn, or begins one.
        ``queue`` holds for the next turn. Raises :class:`UsageError` for an empty message.
        """
        if not text.strip():
            raise UsageError("The message is empty.", code="empty_message", param="text")
        letter = self.inbox.put(text, "steer" if verb == "steer" else "queue", tuple(files))
        self._turns.wake()
        return letter

    async def stop(self) -> list[str]:
        """End the turn in the foreground, its commands and its generation; background workers go on.

        Gives the texts of the messages that nobody had begun to answer, in order: they wait no more. Returns when the
        turn is over.
        """
        back = [letter.text for letter in self.inbox.give_back()]
        unanswered = []
        if self._turns.working:
            unanswered = [letter.text for letter in self.inbox.sent]
            self.inbox.failed("stopped before it was answered")
        await self._turns.stop()
        return [*unanswered, *back]

    async def interrupt(self) -> bool:
        """End the command in front and let the turn go on with what it printed; whether there was one."""
        return bool(await self._ready.context.processes.interrupt())

    def answer(self, ask: str, reply: str) -> None:
        """Answer what was ``Asked``. Raises :class:`UsageError` (``unknown_ask``)."""
        self._ready.asks.answer(ask, reply)

    def set_mode(self, mode: Mode) -> None:
        """From the next turn on."""
        self.mode = mode
        self._changed()

    def set_model(self, model: str, deep_model: str | None = None) -> None:
        """From the next turn on; ``deep_model`` None leaves that one as it is."""
        self.models.fast = model
        self.models.deep = self.models.deep if deep_model is None else deep_model
        self._changed()

    def set_candidates(self, number: int | None) -> None:
        """How many answers race for an edit, from the next turn on; None leaves it to the model's size.

        Raises :class:`UsageError` for less than 1.
        """
        if number is not None and number < 1:
            raise UsageError("There is at least one candidate.", code="bad_value", param="candidates")
        self._set(candidates=number)

    def set_approvals(self, approvals: Approving) -> None:
        """What may be done without asking, from the next action on; what was asked before waits for its answer still.

        Raises :class:`UsageError` (``unknown_approvals``).
        """
        known = get_args(Approving)
        if approvals not in known:
            hint = did_you_mean(approvals, list(known))
            raise UsageError(f"there are no approvals {approvals!r}", hint=hint, code="unknown_approvals")
        self._set(approvals=approvals)
        if self.desk is not None:
            self.desk.context.approvals.mode = approvals

    def set_role(self, role: str, model: str) -> None:
        """Which model is the planner, the builder or the reviewer of deep turns, from the next on; "" is none.

        Raises :class:`UsageError` (``unknown_role``).
        """
        roles = {**self.options.roles, checked_role(role): model.strip()}
        self._set(roles={role: model for role, model in roles.items() if model})
        self.models.builder = self.options.roles.get("builder", "")
        self._changed()

    async def wait_idle(self) -> None:
        """Return when no turn runs and nothing waits."""
        await self._turns.rested()

    async def go_on(self) -> None:
        """Finish the turn that the end of the last process cut off.

        What a call had half done to the files is set back to the checkpoint before it; ``redo`` brings it again. Raises
        :class:`UsageError` (``nothing_to_go_on``).
        """
        if not self.unfinished:
            raise UsageError("There is no turn to go on with.", code="nothing_to_go_on")
        self._turns.go_on()

    async def undo(self) -> Restored:
        """Take the last turn out of the files and the context. Raises :class:`UsageError` (``nothing_to_undo``)."""
        restored = await self._travel(lambda: step_back(self._conversation, self._store))
        self._ready.disown_edits("undone")
        return restored

    async def redo(self) -> Restored:
        """Bring back what the last :meth:`undo` took. Raises :class:`UsageError` (``nothing_to_redo``)."""
        return await self._travel(lambda: step_forth(self._conversation, self._store))

    async def go_to(self, number: int) -> Restored:
        """Files and conversation to a checkpoint. Raises :class:`UsageError` (``checkpoint_not_found``)."""
        return await self._travel(lambda: go_to(self._conversation, self._store, number))

    def checkpoints(self, limit: int | None = None) -> list[Checkpoint]:
        """The newest first."""
        return self._store.checkpoints(limit)

    async def fork(self, at: str | None = None) -> str:
        """Go on in a copy of the conversation that ends at the entry ``at``, or here; its id. Files stay as they are.

        The old one stays as it is. Messages that wait go along.
        """
        async with self._turns.alone():
            desk, before, left = self._ready, self._conversation, self.inbox
            waiting = left.waiting
            for letter in waiting:
                letter.state, letter.reason = "failed", "given back"
                self._message_changed(letter)
            self._conversation = before.fork(at)
            self._adopt(desk, desk.files.store)
            for letter in waiting:
                self.inbox.put(letter.text, letter.verb, letter.files)
            # Only now: a process that ends in between leaves a message in both, and loses none.
            left.changed = lambda letter: None
            left.give_back()
            before.close()
            fork = self._conversation
        return fork.id

    async def compact(self) -> bool:
        """Shorten the context now, whatever its size; False when there is nothing to shorten."""
        async with self._turns.alone():
            return await compact(self._ready, self.models.of("deep"))

    def prefill(self, paths: Sequence[str]) -> None:
        """Have the model read these files ahead, so that an edit of them begins at once. Never fails, never waits."""
        assert self._prefills is not None
        self._prefills.want(list(paths), self.models.of("fast"))

    def typing(self, text: str) -> None:
        """What the user has typed so far: files that it names are prefilled."""
        assert self._prefills is not None
        self._prefills.typing(text, self.models.of("fast"))

    async def background(self, task: str, paths: Sequence[str] = (), role: str = "") -> str:
        """Start a background worker on a copy of the workspace; its id.

        Raises :class:`UsageError` (``too_many_workers``, ``empty_task``).
        """
        return await self._crew.start(task, tuple(paths), role)

    def workers(self) -> list[Worker]:
        """The background workers of this conversation, the oldest first."""
        return self._crew.workers()

    def jobs(self) -> list[Job]:
        """The background commands of this conversation, the oldest first; those that have ended, too."""
        return list(self._ready.context.processes.jobs.values())

    async def stop_job(self, job: str) -> None:
        """End one. Raises :class:`UsageError` (``unknown_job``)."""
        assert self._jobs is not None
        await self._jobs.stop(job)

    async def stop_worker(self, worker: str) -> None:
        """End one; what it did so far is kept as its result. Raises :class:`UsageError` (``unknown_worker``)."""
        await self._crew.stop(worker)

    async def preview_worker(self, worker: str) -> str:
        """The diff that accepting would make to the files as they are now, conflicts named in front."""
        return await self._crew.preview(worker)

    async def accept_worker(self, worker: str) -> tuple[str, ...]:
        """Merge its result into the files, all of it or nothing; the paths that changed.

        Raises :class:`VivaceError` (``conflict``) that names the files where both sides changed the same lines.
        """
        async with self._turns.alone():
            return await self._crew.accept(worker)

    def _set(self, **changes: Any) -> None:
        self.options = msgspec.structs.replace(self.options, **changes)
        if self.desk is not None:
            self.desk.options = self.options

    def _next(self, number: int, going_on: bool) -> Turn:
        return Turn(self._ready, number, self.mode, going_on=going_on)

    async def _settle(self) -> None:
        await self._ready.files.settled()

    async def _travel(self, journey: Callable[[], Restored]) -> Restored:
        async with self._turns.alone():
            restored = await self._ready.files.do(journey)
            self._ready.moved()
        for refused in restored.refused:
            self._emit(Noted(text=f"{refused.path} was left as it is: {refused.reason}", level="warning"))
        return restored

    def _set_up(self, store: CheckpointStore) -> None:
        inbox = self._make_inbox()
        files = Files(store, self._conversation, self._emit)
        self.desk = Desk(
            self.service, self.root, self.options, self.models, self._conversation, files, inbox, self._emit
        )
        self._listen(inbox)

    def _adopt(self, desk: Desk, store: CheckpointStore) -> None:
        desk.conversation = self._conversation
        desk.files = Files(store, self._conversation, self._emit)
        desk.inbox = self._turns.inbox = self._make_inbox()
        self._listen(desk.inbox)
        desk.moved()

    def _make_inbox(self) -> Inbox:
        inbox = Inbox(self._conversation, self._message_changed)
        inbox.adopt(self._conversation.undelivered())
        return inbox

    def _listen(self, inbox: Inbox) -> None:
        def steered(letter: Letter) -> None:
            desk = self._ready
            if self._turns.working:
                desk.asks.give_way()
                desk.on_steer()

        inbox.interrupt = steered

    @property
    def _ready(self) -> Desk:
        if self.desk is None:
            raise VivaceError("The conversation has not begun.", code="not_begun")
        return self.desk

    @property
    def _turns(self) -> Loop:
        if self._loop is None:
            raise VivaceError("The conversation has not begun.", code="not_begun")
        return self._loop

    @property
    def _crew(self) -> Crew:
        if self.crew is None:
            raise VivaceError("There are no background workers here.", code="no_workers")
        return self.crew

    @property
    def _store(self) -> CheckpointStore:
        return self._ready.files.store

    def _message_changed(self, letter: Letter) -> None:
        self._emit(
            MessageChanged(
                number=letter.number, text=letter.text, verb=letter.verb, state=letter.state, reason=letter.reason
            )
        )

    def _changed(self) -> None:
        self._emit(ModeChanged(mode=self.mode, model=self.models.of(self.mode), roles=self.options.roles))
        if self.desk is not None:
            self._conversation.append(ModeEntry(self.mode, self.models.of(self.mode)))

    def _emit(self, event: Event) -> None:
        event.turn = event.turn or self.turn
        self._listener(event)


__all__ = ["Agent", "AgentOptions"]

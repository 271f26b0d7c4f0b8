"""What the slash commands, the palette and the keys do to the conversation."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from vivace.agent.sessions import to_json, to_markdown
from vivace.agent.sessions.entries import User
from vivace.agent.turns.events import Asked, Mode
from vivace.agent.turns.options import ROLES, checked_role
from vivace.errors import UsageError, VivaceError, did_you_mean
from vivace.ui.app.blocks.answer import Answer
from vivace.ui.app.blocks.diff import Proposal
from vivace.ui.app.commands import parse
from vivace.ui.app.widgets.help import HelpScreen
from vivace.ui.app.widgets.picker import Picker
from vivace.ui.contract import MODES, Approving, Talk
from vivace.ui.mentioned import mentioned
from vivace.ui.replay import replayed

if TYPE_CHECKING:
    from vivace.ui.app.app import VivaceApp

Then = Callable[[str], Coroutine[Any, Any, None]]
NOBODY = "nobody"
APPROVALS: dict[Approving, str] = {
    "read-only": "nothing is changed; edits are only shown",
    "ask": "edits and commands wait for your word",
    "auto": "edits in the workspace and commands in the sandbox pass",
    "full": "everything passes but what destroys",
}
ACCEPT = "accept "
"""How the face's own questions begin, and the worker that they are about."""


class Deeds:
    """One method per command. Raises :class:`vivace.errors.VivaceError`."""

    def __init__(self, app: VivaceApp) -> None:
        self.app = app
        self._offered: dict[str, Proposal] = {}

    @property
    def talk(self) -> Talk:
        if self.app.talk is None:
            raise UsageError("The conversation is not open yet.", code="not_begun")
        return self.app.talk

    async def run(self, line: str) -> None:
        command, argument = parse(line)
        match command.name:
            case "help":
                self.app.push_screen(HelpScreen())
            case "mode":
                await self.mode(argument)
            case "model":
                await self.model(argument)
            case "role":
                await self.role(argument)
            case "approvals":
                await self.approvals(argument)
            case "candidates":
                await self.candidates(argument)
            case "undo":
                await self.talk.undo()
                self._say("undone: files and conversation are as before the last turn; /redo brings it back")
            case "redo":
                await self.talk.redo()
                self._say("done again")
            case "checkpoints":
                await self.checkpoints(argument)
            case "background":
                name = await self.talk.background(argument, mentioned(argument, self.app.choice.root))
                self._say(f"worker {name} works on: {argument}")
            case "workers":
                self._say("\n".join(self.app.crew.table()) or "there are no background workers")
            case "accept":
                await self.accept(argument)
            case "jobs":
                self._say("\n".join(self.app.crew.jobs_table()) or "there are no background jobs")
            case "stop":
                await self.end(argument)
            case "interrupt":
                if not await self.talk.interrupt():
                    self._say("no command runs")
            case "continue":
                await self.talk.go_on()
            case "compact":
                self._say("shortened" if await self.talk.compact() else "there is nothing to shorten")
            case "fork":
                self._say(f"this is {await self.talk.fork()} now; the old conversation stays as it is")
            case "new":
                await self.change("")
            case "resume":
                await self.resume(argument)
            case "export":
                await self.export(argument)
            case "copy":
                self.copy()
            case "theme":
                self.theme(argument)
            case "quit":
                self.app.action_leave()

    def arguments(self, command: str, before: list[str], typed: str) -> list[tuple[str, str]]:
        """What may follow a command and the arguments ``before``, for completion."""
        known: Sequence[str] = ()
        if command == "role" and len(before) == 1:
            known = (*self.app.house.models(), NOBODY)
        elif before:
            known = ()
        elif command == "mode":
            known = MODES
        elif command == "role":
            known = ROLES
        elif command == "model":
            known = self.app.house.models()
        elif command == "approvals":
            known = tuple(APPROVALS)
        elif command == "accept":
            known = list(self.app.crew.known)
        elif command == "stop":
            known = self.app.crew.running
        elif command == "theme":
            known = ("dark", "light")
        return [(name, "") for name in known if name.startswith(typed) and name != typed]

    async def end(self, name: str) -> None:
        """A worker, a job, or without a name the foreground."""
        if not name:
            await self.stop()
        elif name in self.app.crew.jobs:
            await self.talk.stop_job(name)
        elif name in self.app.crew.known or not self.app.crew.jobs:
            await self.talk.stop_worker(name)
        else:
            hint = did_you_mean(name, [*self.app.crew.known, *self.app.crew.jobs])
            raise UsageError(f"there is no worker or job {name!r}", hint=hint, code="unknown_job")

    async def stop(self) -> None:
        """End the foreground; what nobody took comes back into the input."""
        back = await self.talk.stop()
        if back:
            self.app.prompt.put("\n".join(back))
            self.app.prompt.focus()

    async def step_back(self) -> None:
        """Undo the last turn in a copy of the conversation, and give its text back to be said differently."""
        before = self._said()
        if not before:
            raise UsageError("There is no turn to step back over.", code="nothing_to_undo")
        old = self.talk.conversation.id
        await self.talk.fork()
        await self.talk.undo()
        # The turn may have had several: what was steered belongs to it.
        self.app.prompt.put("\n".join(before[len(self._said()) :] or before[-1:]))
        self.app.prompt.focus()
        self._say(f"stepped back: files and conversation are as before the last turn; /resume {old} has what was")

    def _said(self) -> list[str]:
        """The user's messages that are in the context, the oldest first."""
        conversation = self.talk.conversation
        path = (entry.data for entry in conversation.upwards(conversation.leaf))
        return [data.text for data in path if isinstance(data, User)][::-1]

    async def mode(self, name: str) -> None:
        if not name:
            self._pick("mode", [(mode, mode) for mode in MODES], self.mode)
            return
        chosen = next((mode for mode in MODES if mode == name), None)
        if chosen is None:
            raise UsageError(f"there is no mode {name}", hint=did_you_mean(name, list(MODES)), code="unknown_mode")
        self.talk.set_mode(chosen)
        self._remember(mode=chosen)

    async def model(self, name: str) -> None:
        if not name:
            names = self.app.house.models()
            if not names:
                raise UsageError("Name a model: /model NAME", code="missing_argument")
            self._pick("model", [(known, known) for known in names], self.model)
            return
        self.talk.set_model(name)
        self.app.choice = msgspec.structs.replace(self.app.choice, model=name)

    async def approvals(self, name: str) -> None:
        """For the conversation that is open, from the next action on, and for those that are opened after it."""
        if not name:
            have = self.app.choice.approvals
            now = {have: "  (now)"}
            entries = [(str(mode), f"{mode:<10} {about}{now.get(mode, '')}") for mode, about in APPROVALS.items()]
            self._pick("what may be done without asking", entries, self.approvals)
            return
        chosen = next((mode for mode in APPROVALS if mode == name), None)
        if chosen is None:
            hint = did_you_mean(name, list(APPROVALS))
            raise UsageError(f"there are no approvals {name}", hint=hint, code="unknown_approvals")
        self.talk.set_approvals(chosen)
        self.app.choice = msgspec.structs.replace(self.app.choice, approvals=chosen)
        self.app.bar.approvals = chosen
        self._say(f"{chosen}: {APPROVALS[chosen]}")

    async def role(self, argument: str) -> None:
        """``ROLE MODEL``; without the model, or both, they are chosen from a list."""
        role, _, model = (part.strip() for part in argument.partition(" "))
        have = self.app.choice.roles
        if not role:
            self._pick("role", [(name, f"{name:<9} {have.get(name, NOBODY)}") for name in ROLES], self.role)
            return
        checked_role(role)
        if not model:
            entries = [(f"{role} {name}", name) for name in (*self.app.house.models(), NOBODY)]
            self._pick(f"who is the {role}", entries, self.role)
        else:
            self.talk.set_role(role, "" if model == NOBODY else model)
            roles = {**have, role: model}
            self.app.choice = msgspec.structs.replace(
                self.app.choice, roles={name: who for name, who in roles.items() if who != NOBODY}
            )
            self._say(f"{role} of deep turns: {model}")

    async def candidates(self, number: str) -> None:
        if not number.isdigit() or not 1 <= int(number) <= 16:
            raise UsageError(f"{number} is no number from 1 to 16", code="bad_number", param="candidates")
        self.talk.set_candidates(int(number))
        self._say(f"{number} answer{'s race' if number != '1' else ''} for each edit from the next turn on")

    async def checkpoints(self, number: str) -> None:
        if not number:
            found = [
                (str(point.id), f"{point.id:>4}  {_when(point.created)}  {' '.join(point.label.split())}")
                for point in self.talk.checkpoints(200)
            ]
            if not found:
                raise UsageError("There is no checkpoint yet.", code="no_checkpoints")
            self._pick("go to a checkpoint: files and conversation", found, self.checkpoints)
            return
        if not number.isdigit():
            raise UsageError(f"{number} is no number of a checkpoint", code="bad_number")
        await self.talk.go_to(int(number))
        self._say(f"the files are those of checkpoint {number}; /undo and /redo move from here")

    async def accept(self, worker: str) -> None:
        """Show what a worker made, and ask."""
        diff = await self.talk.preview_worker(worker)
        marks = [line[:1] for line in diff.split("\n") if not line.startswith(("+++", "---"))]
        self._offered[worker] = self.app.scribe.offer(diff, marks.count("+"), marks.count("-"))
        self.app.asked(Asked(ask=ACCEPT + worker, kind="proposal", text=f"what worker {worker} made"))

    def replied(self, ask: Asked, reply: str) -> bool:
        """Whether it was the face that asked; then it is done."""
        if not ask.ask.startswith(ACCEPT):
            return False
        self.app.answered(ask.ask)
        worker = ask.ask.removeprefix(ACCEPT)
        if reply == "y":
            self.app.do(self._accepted(worker))
        else:
            self._decided(worker, "declined")
            self._say(f"the result of worker {worker} is kept; /accept {worker} shows it again")
        return True

    async def _accepted(self, worker: str) -> None:
        try:
            paths = await self.talk.accept_worker(worker)
        except BaseException:
            self._decided(worker, "not applied")
            raise
        self._decided(worker, "applied")
        self._say(f"taken over from worker {worker}: {', '.join(paths) or 'nothing'}")

    def _decided(self, worker: str, state: str) -> None:
        """Say below the change of a worker what became of it."""
        block = self._offered.pop(worker, None)
        if block is not None:
            block.become(state)
            self.app.transcript.touch(block)
            self.app.transcript.settle()

    async def resume(self, name: str) -> None:
        if name:
            await self.change(self.app.house.read(self.app.choice.root, name).id)
            return
        here = self.talk.conversation.id
        found = [
            (past.id, f"{_when(past.updated)}  {past.title or past.id}  ({past.messages} messages)")
            for past in self.app.house.conversations(self.app.choice.root)
            if past.id != here and not past.broken
        ]
        if not found:
            raise UsageError("There is no other conversation in this folder.", code="conversation_not_found")
        self._pick("go on with a conversation", found, self.change)

    async def change(self, conversation: str) -> None:
        """Another conversation in the place of this one."""
        running = self.app.crew.running
        if not self.talk.idle or running:
            kind = "job" if running and running[0] in self.app.crew.jobs else "worker"
            what = f"{kind} {running[0]} runs" if running else "a turn runs"
            raise UsageError(f"{what}: stop it first", hint="/stop ends it.", code="busy")
        before = self.app.choice
        try:
            await self.app.open(msgspec.structs.replace(before, conversation=conversation))
        except BaseException:
            await self.app.open(before)
            raise

    def show_past(self, name: str) -> None:
        """What was said in a conversation that is gone on with."""
        self.app.scribe.take(list(replayed(self.app.house.read(self.app.choice.root, name))))

    async def export(self, name: str) -> None:
        """The conversation as it is on its current path. Relative names start at the workspace."""
        conversation = self.talk.conversation
        name = name or f"{conversation.id}.md"
        file = self.app.choice.root / Path(name).expanduser()

        def write() -> None:
            data = to_json(conversation) if file.suffix == ".json" else to_markdown(conversation).encode("utf-8")
            with file.open("xb") as out:
                out.write(data)

        try:
            await asyncio.to_thread(write)
        except FileExistsError:
            hint = "Name another file: /export FILE"
            raise UsageError(f"{name} is there already", hint=hint, code="file_exists") from None
        except OSError as error:
            raise VivaceError(f"{name}: {error.strerror}", code="write_failed") from None
        self._say(f"exported to {name}")

    def copy(self) -> None:
        last = next((block for block in reversed(self.app.transcript.blocks) if isinstance(block, Answer)), None)
        if last is None:
            raise UsageError("There is no answer to copy.", code="nothing_to_copy")
        self.app.copy_to_clipboard(last.plain())
        self.app.hint("copied")

    def theme(self, name: str) -> None:
        name = name or ("light" if self.app.current_theme.dark else "dark")
        if name not in ("dark", "light"):
            raise UsageError(f"there is no theme {name}", hint="dark or light", code="unknown_theme")
        self.app.theme = f"vivace-{name}"

    def _say(self, text: str) -> None:
        self.app.scribe.note(text)

    def _remember(self, mode: Mode) -> None:
        self.app.choice = msgspec.structs.replace(self.app.choice, mode=mode)

    def _pick(self, title: str, entries: list[tuple[str, str]], then: Then) -> None:
        self.app.push_screen(Picker(title, entries), partial(self._picked, then))

    def _picked(self, then: Then, chosen: str | None) -> None:
        if chosen:
            self.app.do(then(chosen))


def _when(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(moment))

"""Writes the events of a conversation into the transcript: which block an event begins, feeds or ends."""

from __future__ import annotations

from functools import singledispatchmethod
from typing import TypeVar

import msgspec

from vivace.agent.sessions.conversation import short
from vivace.agent.turns import events as ev
from vivace.ui.app.blocks.answer import Answer
from vivace.ui.app.blocks.base import Block
from vivace.ui.app.blocks.diff import LiveEdit, Proposal
from vivace.ui.app.blocks.note import Level, Note
from vivace.ui.app.blocks.steps import Steps
from vivace.ui.app.blocks.thought import Thought
from vivace.ui.app.blocks.tool import ToolCall
from vivace.ui.app.blocks.user import UserMessage
from vivace.ui.app.transcript import Transcript
from vivace.ui.figures import figures

S = TypeVar("S", Answer, Thought)
B = TypeVar("B", bound=Block)


class Scribe:
    """One per transcript. Of what a background worker or job does only its end is told here: the task tree shows it."""

    def __init__(self, transcript: Transcript) -> None:
        self.transcript = transcript
        self._messages: dict[int, UserMessage] = {}
        self._tools: dict[str, ToolCall] = {}
        self._open: Answer | Thought | None = None
        self._edits: dict[str, LiveEdit] = {}
        self._proposal: Proposal | None = None
        self._asked: dict[str, ev.Asked] = {}
        self._steps: Steps | None = None
        self._meters = ev.Meters()

    def take(self, events: list[ev.Event]) -> None:
        for event in events:
            if not event.worker or isinstance(event, ev.WorkerChanged):
                self._write(event)
        self.transcript.settle()

    def note(self, text: str, level: Level = "info") -> None:
        """Something that the face itself says."""
        self._close()
        self.transcript.add(Note(text, level))
        self.transcript.settle()

    def offer(self, diff: str, added: int, removed: int) -> Proposal:
        """A change that is no turn's: what a worker made. Who offers it says what becomes of it."""
        self._close()
        block = self.transcript.add(Proposal(diff, added, removed, ""))
        self.transcript.settle()
        return block

    @singledispatchmethod
    def _write(self, event: ev.Event) -> None:
        """Most events are for other widgets."""

    @_write.register
    def _(self, event: ev.MessageChanged) -> None:
        if event.state == "queued":
            self._messages.pop(event.number, None)  # a fork counts from one again
        known = self._messages.get(event.number)
        if known is not None:
            known.become(event.state, event.reason)
            self.transcript.touch(known)
        elif event.state != "queued" and not (event.state == "failed" and event.reason == "given back"):
            # What waits is shown in the list of waiting messages; here it stands where it was taken.
            self._close()
            if event.verb == "steer":
                # What was being written is begun anew, behind what was said about it.
                for edit in self._edits.values():
                    self.transcript.drop(edit)
                self._edits = {}
            block = UserMessage(event.text, event.verb, event.state, event.reason)
            self._messages[event.number] = self.transcript.add(block)

    @_write.register
    def _(self, event: ev.TurnBegan) -> None:
        self._close()
        self._edits, self._proposal, self._steps, self._meters = {}, None, None, ev.Meters()
        told = f"{event.mode} · {event.model}" + (f" · {event.reason}" if event.reason else "")
        self.transcript.add(Note(told, "turn"))

    @_write.register
    def _(self, event: ev.Said) -> None:
        self._stream(Answer, event.text)

    @_write.register
    def _(self, event: ev.Thought) -> None:
        self._stream(Thought, event.text)

    @_write.register
    def _(self, event: ev.Editing) -> None:
        self._close()
        block = self._edits.get(event.path)
        if block is None:
            block = self._edits[event.path] = self.transcript.add(LiveEdit(event.path))
        if not event.lines:
            block.restart()
        block.feed(event.lines)
        self.transcript.touch(block)

    @_write.register
    def _(self, event: ev.Proposed) -> None:
        self._close()
        if event.replaces and self._proposal is not None:
            self._proposal.become("replaced")
            self.transcript.touch(self._proposal)
        self._proposal = Proposal(event.diff, event.added, event.removed, event.verified)
        self.transcript.replace(list(self._edits.values()), self._proposal)
        self._edits = {}

    @_write.register
    def _(self, event: ev.Applied) -> None:
        if self._proposal is not None:
            self._proposal.become("applied")
            self.transcript.touch(self._proposal)
        else:
            self._add(Note(f"changed {', '.join(event.paths)}", "good"))

    @_write.register
    def _(self, event: ev.Asked) -> None:
        self._asked[event.ask] = event

    @_write.register
    def _(self, event: ev.Answered) -> None:
        asked = self._asked.pop(event.ask, None)
        if asked is None or not event.reply:
            return
        if asked.kind != "proposal":
            what = " ".join(asked.text.strip().split("\n")[0].split())
            label = dict(asked.choices).get(event.reply, event.reply)
            self._add(Note(f"{what} — {label}"))
        elif self._proposal is not None and not self._proposal.state and event.reply.lower() in ("n", "no"):
            self._proposal.become("declined")
            self.transcript.touch(self._proposal)

    @_write.register
    def _(self, event: ev.ToolBegan) -> None:
        self._close()
        self._tools[event.call] = self.transcript.add(ToolCall(event.name, event.brief))

    @_write.register
    def _(self, event: ev.ToolOutput) -> None:
        if (block := self._tools.get(event.call)) is not None:
            block.feed(event.text)
            self.transcript.touch(block)

    @_write.register
    def _(self, event: ev.ToolEnded) -> None:
        if (block := self._tools.pop(event.call, None)) is not None:
            block.end(event.ok, event.text, event.seconds, event.changed)
            self.transcript.touch(block)

    @_write.register
    def _(self, event: ev.PlanChanged) -> None:
        if self._steps is None:
            self._steps = self._add(Steps(event.steps))
        else:
            self._steps.become(event.steps)
            self.transcript.touch(self._steps)

    @_write.register
    def _(self, event: ev.Meters) -> None:
        self._meters = event

    @_write.register
    def _(self, event: ev.WorkerChanged) -> None:
        if event.state not in ("done", "failed", "stopped"):
            return
        offer = f"; /accept {event.worker} takes its {_count(event.offer, 'file')}" if event.offer else ""
        note = f" ({event.note})" if event.note else ""
        level: Level = "good" if event.state == "done" else "warning"
        self._add(Note(f"worker {event.worker} {event.state}: {event.task}{note}{offer}", level))

    @_write.register
    def _(self, event: ev.JobChanged) -> None:
        if event.state == "running":
            return
        how = event.note or ("" if event.code is None else f"exit code {event.code}")
        told = f"job {event.job} {event.state}: {short(event.command)} ({how}, {event.seconds:.1f} s)"
        self._add(Note(told, "good" if event.state == "done" else "warning"))

    @_write.register
    def _(self, event: ev.Noted) -> None:
        self._add(Note(event.text, event.level))

    @_write.register
    def _(self, event: ev.TurnEnded) -> None:
        self._close()
        if self._edits:
            # The pieces of an edit that came to nothing are of no use any more.
            unfinished = Note("the edit was not finished; nothing of it was written", "warning")
            self.transcript.replace(list(self._edits.values()), unfinished)
            self._edits = {}
        if self._proposal is not None and not self._proposal.state:
            self._proposal.become("not applied")
            self.transcript.touch(self._proposal)
        level: Level = "good" if event.status == "done" else "error" if event.status == "failed" else "warning"
        told = event.reason if event.reason.startswith(event.status) else f"{event.status}: {event.reason}"
        parts = [told.removesuffix(": "), f"{event.seconds:.1f} s"]
        if event.changed:
            parts.append(f"{_count(len(event.changed), 'file')} changed")
        measured = msgspec.structs.replace(self._meters, cost=self._meters.cost or None)
        self.transcript.add(Note(" · ".join(parts + figures(measured)), level))

    def _add(self, block: B) -> B:
        self._close()
        return self.transcript.add(block)

    def _stream(self, kind: type[S], text: str) -> None:
        if not isinstance(self._open, kind):
            self._close()
            if not text.strip():
                return
            self._open = self.transcript.add(kind())
        row = self._open.settled
        self._open.feed(text)
        self.transcript.touch(self._open, row)

    def _close(self) -> None:
        if self._open is not None:
            self._open.finish()
            self.transcript.touch(self._open)
            self._open = None


def _count(number: int | None, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"

"""What ``vivace exec`` prints: words and diffs for people and pipes, or every event as a line of JSON."""

from __future__ import annotations

import sys

import msgspec

from vivace.agent.turns import events as ev
from vivace.errors import VivaceError
from vivace.ui.figures import figures
from vivace.ui.plain import visible

TAIL = 5
"""Lines of a failed command's output that are shown."""


UNDO = "vivace undo"
"""The command that takes back what was changed."""


class JsonFace:
    """One JSON object per line, on standard output. The first is ``Opened``, the last ``Exited``, with the command that
    takes back what was changed."""

    def __init__(self) -> None:
        self._encode = msgspec.json.Encoder().encode
        self._changed = False

    def __call__(self, event: ev.Event) -> None:
        self._changed = self._changed or changes(event)
        self._put(event)

    def opened(self, conversation: str) -> None:
        self._put({"type": "Opened", "conversation": conversation})

    def failed(self, error: VivaceError) -> None:
        told = {"code": error.code, "message": error.message, "hint": error.hint, "param": error.param}
        self._put({"type": "Error", **told})

    def exited(self, code: int) -> None:
        self._put({"type": "Exited", "exit": code, "undo": UNDO if self._changed else None})

    def _put(self, what: object) -> None:
        sys.stdout.buffer.write(self._encode(what) + b"\n")
        sys.stdout.buffer.flush()


class PipeFace:
    """What the model says and the diffs that were applied go to standard output, what happens to standard error.

    On a terminal a diff is shown when it is applied, and one that replaces it says so. Whoever reads a pipe gets those
    alone that stand. ``only_shows``: none will be applied, so that those which are proposed are the result.
    """

    def __init__(self, *, only_shows: bool = False) -> None:
        self._terminal = sys.stdout.isatty()
        self._only_shows = only_shows
        self._meters = ev.Meters()
        self._proposed: ev.Proposed | None = None
        self._held: ev.Proposed | None = None
        """It stands, and is not yet printed: it may be replaced."""
        self._undelivered = ""
        """Why the message was not delivered, until the end of the turn says it."""
        self._changed = False
        self._output: dict[str, str] = {}
        self._workers: dict[str, tuple[str, str]] = {}
        self._open = False
        """The last line that was said has no end yet."""

    def opened(self, conversation: str) -> None:
        """Nothing to be told."""

    def failed(self, error: VivaceError) -> None:
        self._tell(f"vivace: {error}")

    def exited(self, code: int) -> None:
        self._release()
        if self._undelivered:
            self._tell(f"the message was not delivered: {self._undelivered}")
        if self._changed:
            self._tell(f"undo: {UNDO}")
        self._finish_line()

    def __call__(self, event: ev.Event) -> None:
        self._changed = self._changed or changes(event)
        if event.worker and not isinstance(event, ev.WorkerChanged):
            return
        match event:
            case ev.Said(text=text):
                sys.stdout.write(visible(text) if self._terminal else text)
                sys.stdout.flush()
                self._open = not text.endswith("\n") if text else self._open
            case ev.TurnBegan():
                self._tell(" · ".join(filter(None, [event.mode, event.model, event.reason])))
            case ev.Proposed() if self._only_shows:
                self._stands(event)
            case ev.Proposed():
                self._proposed = event
            case ev.Applied():
                self._applied(event)
            case ev.ToolBegan():
                self._tell(f"> {event.name} {event.brief}")
            case ev.ToolOutput():
                self._output[event.call] = (self._output.get(event.call, "") + event.text)[-4000:]
            case ev.ToolEnded():
                self._ended(event)
            case ev.Asked(kind="approval" | "question"):
                self._tell(f"? {event.text}")
            case ev.Meters():
                self._meters = event
            case ev.Noted():
                self._tell(f"{event.level}: {event.text}" if event.level != "info" else event.text)
            case ev.MessageChanged(state="failed"):
                self._undelivered = event.reason
            case ev.JobChanged(state="done" | "failed" | "stopped"):
                self._tell(f"job {event.job} {event.state}, {event.seconds:.1f} s: {event.command}")
            case ev.WorkerChanged():
                self._worker(event)
            case ev.TurnEnded():
                self._turn_ended(event)

    def _worker(self, event: ev.WorkerChanged) -> None:
        """When its state changes; its figures are told when it has ended."""
        if self._workers.get(event.worker) == (event.state, event.note):
            return
        self._workers[event.worker] = (event.state, event.note)
        line = f"worker {event.worker} ({event.model}): {event.state}"
        if event.state == "waiting":
            line += f", {event.task}"
        elif event.state != "running":
            line += f", {event.steps} steps, {event.tokens:,} tokens, {event.seconds:.1f} s {event.note}"
        self._tell(line.rstrip())

    def _applied(self, event: ev.Applied) -> None:
        proposed, self._proposed = self._proposed, None
        if proposed is None:
            self._tell(f"changed {', '.join(event.paths)}")
            return
        self._stands(proposed)

    def _stands(self, proposed: ev.Proposed) -> None:
        if proposed.replaces and self._terminal:
            self._tell("the change before was taken back; this one stands in its place")
        elif not proposed.replaces:
            self._release()
        self._held = proposed
        if self._terminal:
            self._release()

    def _release(self) -> None:
        """Print the diff that stands."""
        held, self._held = self._held, None
        if held is None:
            return
        self._finish_line()
        # The exact bytes: the output may be on its way to a file or to git apply.
        sys.stdout.flush()
        sys.stdout.buffer.write(held.diff.encode("utf-8", "surrogateescape"))
        sys.stdout.buffer.flush()

    def _ended(self, event: ev.ToolEnded) -> None:
        output = self._output.pop(event.call, "") or event.text
        if not event.ok:
            for line in output.rstrip("\n").split("\n")[-TAIL:]:
                self._tell(f"  | {line}")
        changed = f", changed {', '.join(event.changed)}" if event.changed else ""
        self._tell(f"  {'ok' if event.ok else 'failed'}, {event.seconds:.1f} s{changed}")

    def _turn_ended(self, event: ev.TurnEnded) -> None:
        """A reason is told once, as it was said: it may have its own full stop, and a hint on the next line."""
        self._undelivered = ""
        self._release()
        if event.reason:
            self._tell(f"{event.status}: {event.reason}")
        parts = [f"after {event.seconds:.1f} s" if event.reason else f"{event.status}, {event.seconds:.1f} s"]
        if event.changed:
            parts.append(f"changed {', '.join(event.changed)}")
        self._tell(", ".join(parts + figures(self._meters)))

    def _tell(self, line: str) -> None:
        self._finish_line()
        print(visible(line), file=sys.stderr, flush=True)

    def _finish_line(self) -> None:
        """Words of the model and lines about them do not share one."""
        if self._open:
            self._open = False
            sys.stdout.write("\n")
            sys.stdout.flush()


class ReplayFace(PipeFace):
    """The same for a conversation that is played back: what the user said is news then, too."""

    def __call__(self, event: ev.Event) -> None:
        if isinstance(event, ev.MessageChanged) and not event.worker:
            failed = f" (not delivered{': ' if event.reason else ''}{event.reason})" if event.state == "failed" else ""
            for line in f"{event.text.rstrip()}{failed}".split("\n"):
                self._tell(f"you: {line}")
            return
        super().__call__(event)


def changes(event: ev.Event) -> bool:
    """Whether it tells of files that the conversation in front has changed."""
    match event:
        case ev.Applied() | ev.ToolEnded(changed=(_, *_)) | ev.TurnEnded(changed=(_, *_)):
            return not event.worker
        case _:
            return False

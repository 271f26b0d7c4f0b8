"""What a face is told of a conversation, in order. The same events feed the terminal, JSON lines and editors."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from vivace.agent.sessions.entries import MessageState

Mode = Literal["auto", "fast", "deep"]
Status = Literal["done", "unchanged", "stopped", "limit", "failed"]
WorkerState = Literal["waiting", "running", "done", "failed", "stopped"]
JobState = Literal["running", "done", "failed", "stopped"]


class Event(Struct, kw_only=True, tag_field="type", tag=True):
    """``turn`` is the turn's number, ``worker`` the background worker that it is about, "" for the foreground."""

    turn: int = 0
    worker: str = ""


class MessageChanged(Event):
    """A message of the user is in this state now."""

    number: int
    text: str
    verb: str
    state: MessageState
    reason: str = ""


class TurnBegan(Event):
    """``mode`` is what was chosen, ``reason`` why, in words."""

    mode: Mode
    model: str
    reason: str


class Said(Event):
    """More of what the model says."""

    text: str


class Thought(Event):
    """More of what the model thinks."""

    text: str


class Editing(Event):
    """A file is being rewritten: the lines of its live diff that are new since the last event."""

    path: str
    lines: tuple[str, ...]


class Proposed(Event):
    """A change of files that waits for an answer (see ``Asked``), or was made right away."""

    diff: str
    paths: tuple[str, ...]
    added: int
    removed: int
    verified: str = ""
    """What was checked, in words: syntax, lint, tests."""
    replaces: bool = False
    """It replaces an earlier proposal of this turn."""


class Applied(Event):
    paths: tuple[str, ...]
    checkpoint: int | None = None


class ToolBegan(Event):
    call: str
    name: str
    brief: str


class ToolOutput(Event):
    """More output of the command in front."""

    call: str
    text: str


class ToolEnded(Event):
    call: str
    ok: bool
    text: str
    seconds: float
    changed: tuple[str, ...] = ()


class PlanChanged(Event):
    """``steps``: text and state (pending, active, done) of each."""

    steps: tuple[tuple[str, str], ...]


class Asked(Event):
    """Something waits for the user; :meth:`vivace.agent.turns.agent.Agent.answer` takes the reply.

    ``kind``: ``question`` of the model, ``approval`` of an action, ``proposal`` to apply. ``choices`` are (key, label).
    """

    ask: str
    kind: Literal["question", "approval", "proposal"]
    text: str
    choices: tuple[tuple[str, str], ...] = ()


class Answered(Event):
    """It waits no more."""

    ask: str
    reply: str


class Meters(Event):
    """Measured figures of the running turn; None where nothing was measured yet."""

    ttft: float | None = None
    tokens_per_second: float | None = None
    copied: float | None = None
    """Share of the output that was accepted from the draft."""
    steps: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    context: float | None = None
    """Share of the window in use."""
    cost: float | None = None


class WorkerChanged(Event):
    """``offer``: the number of files that its result would change, once it is done. ``most_...`` are its limits."""

    task: str
    state: WorkerState
    model: str = ""
    steps: int = 0
    tokens: int = 0
    seconds: float = 0.0
    cost: float | None = None
    most_steps: int | None = None
    most_tokens: int | None = None
    most_seconds: float | None = None
    most_cost: float | None = None
    offer: int | None = None
    note: str = ""


class JobChanged(Event):
    """A background command: when it starts, each second while it runs, when it has ended.

    ``code`` is its exit code, negative for a signal; None while it runs. ``note`` says who ended it, if anybody did.
    """

    job: str
    command: str
    state: JobState
    seconds: float = 0.0
    code: int | None = None
    note: str = ""


class CheckpointTaken(Event):
    number: int
    label: str


class ModeChanged(Event):
    mode: Mode
    model: str
    roles: dict[str, str] = {}


class Noted(Event):
    """Something that the user should know."""

    text: str
    level: Literal["info", "warning", "error"] = "info"


class TurnEnded(Event):
    status: Status
    reason: str
    seconds: float
    changed: tuple[str, ...] = ()
    details: dict[str, Any] = {}

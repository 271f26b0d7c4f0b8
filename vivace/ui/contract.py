"""What every face of the agent is built against: a conversation that takes verbs in and tells events out.

:class:`vivace.agent.turns.agent.Agent` is one; a scripted one drives the tests. A face gets a :class:`House` from the
command that starts it, so it knows no service, backend or model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from msgspec import Struct

from vivace.agent.mcp.config import ServerConfig
from vivace.agent.sessions.conversation import Conversation
from vivace.agent.sessions.listing import Summary
from vivace.agent.turns.events import Event, Mode
from vivace.agent.turns.limits import Limits

Say = Literal["send", "steer", "queue"]
Approving = Literal["read-only", "ask", "auto", "full"]
Listener = Callable[[Event], None]

MODES: tuple[Mode, ...] = ("auto", "fast", "deep")


class Choice(Struct, frozen=True, kw_only=True):
    """What a conversation is opened with.

    ``conversation`` is the id of one to go on with, "" for a new one; ``candidates`` None leaves their number to the
    agent, and they come from ``race_models``, too. ``propose``: edits wait for a yes. ``roles`` names the models of a
    planner, a builder, a reviewer. ``limits`` None leaves those of a turn to the agent. ``workers``: somebody stays to
    accept what background workers make.
    ``mcp_servers`` are for this conversation alone.
    """

    root: Path
    model: str = ""
    mode: Mode = "auto"
    candidates: int | None = None
    race_models: tuple[str, ...] = ()
    conversation: str = ""
    approvals: Approving = "auto"
    propose: bool = False
    roles: dict[str, str] = {}
    limits: Limits | None = None
    workers: bool = True
    mcp_servers: tuple[ServerConfig, ...] = ()


class Letters(Protocol):
    """The messages that wait."""

    def change(self, number: int, text: str | None = None, verb: Literal["steer", "queue"] | None = None) -> bool:
        """False when it was taken already."""
        ...

    def drop(self, number: int) -> bool:
        """Take one back; False when it was taken already."""
        ...


class Talk(Protocol):
    """One conversation in one workspace. Raises :class:`vivace.errors.VivaceError` for what cannot be done."""

    @property
    def idle(self) -> bool: ...

    @property
    def unfinished(self) -> bool:
        """The last turn was cut off by the end of a process."""
        ...

    @property
    def conversation(self) -> Conversation: ...

    @property
    def inbox(self) -> Letters: ...

    async def begin(self) -> None: ...

    async def close(self) -> None: ...

    def say(self, text: str, verb: Say = "send", files: Sequence[str] = ()) -> Any:
        """Take a message in; its states come as events. ``send`` starts a turn when nothing runs."""
        ...

    async def stop(self) -> list[str]:
        """End the foreground turn; the texts of the messages that nobody took."""
        ...

    async def interrupt(self) -> bool:
        """End the command in front, let the turn go on; whether there was one."""
        ...

    async def go_on(self) -> None:
        """Finish the turn that was cut off."""
        ...

    def answer(self, ask: str, reply: str) -> None: ...

    def set_mode(self, mode: Mode) -> None: ...

    def set_model(self, model: str) -> None: ...

    def set_candidates(self, number: int) -> None: ...

    def set_approvals(self, approvals: Approving) -> None:
        """What may be done without asking, from the next action on."""
        ...

    def set_role(self, role: str, model: str) -> None:
        """An empty model takes the role away."""
        ...

    async def undo(self) -> Any: ...

    async def redo(self) -> Any: ...

    def checkpoints(self, limit: int | None = None) -> Sequence[Any]:
        """The newest first; each with ``id``, ``label`` and ``created``."""
        ...

    async def go_to(self, number: int) -> Any: ...

    async def fork(self) -> str: ...

    async def compact(self) -> bool: ...

    def typing(self, text: str) -> None: ...

    async def background(self, task: str, paths: Sequence[str] = ()) -> str: ...

    async def stop_worker(self, worker: str) -> None: ...

    async def stop_job(self, job: str) -> None:
        """End a command that runs in the background."""
        ...

    async def preview_worker(self, worker: str) -> str: ...

    async def accept_worker(self, worker: str) -> tuple[str, ...]: ...


class House(Protocol):
    """Where conversations are opened; one per process."""

    async def check(self, choice: Choice) -> None:
        """Raises :class:`vivace.errors.VivaceError` for a model that cannot be asked."""
        ...

    def open(self, choice: Choice, listener: Listener) -> Talk:
        """Make a conversation, or go on with one; it begins with :meth:`Talk.begin`."""
        ...

    def conversations(self, root: Path) -> list[Summary]:
        """Those of a workspace, the one that was changed last first."""
        ...

    def read(self, root: Path, name: str) -> Conversation:
        """One of them, to be looked at. Raises :class:`vivace.errors.UsageError` for one that is not there."""
        ...

    def models(self) -> list[str]:
        """Names of models that can be asked."""
        ...

    async def close(self) -> None: ...

"""What a tool is about to do, and what the user may answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal

from msgspec import Struct

Mode = Literal["read-only", "ask", "auto", "full"]
"""``read-only``: reading passes, and what changes or may change something is denied. ``ask``: reading passes, all
else asks. ``auto``: so do edits in the workspace, and commands that the sandbox keeps in it. ``full``: everything. What
destroys asks in each of the last three."""

Scope = Literal["once", "session", "prefix", "path"]
"""This once; the same again in this conversation; every command that begins so, from now on in this workspace; every
file below that path, from now on."""


class RunCommand(Struct, frozen=True):
    """A shell command. ``cwd`` is relative to the workspace."""

    text: str
    cwd: str = ""
    sandboxed: bool = False
    network: bool = False


class WriteFile(Struct, frozen=True):
    """A file is made or changed; ``path`` is relative to the workspace."""

    path: str


class ReadFile(Struct, frozen=True):
    """A file is read and its text goes to the model."""

    path: str


class CallTool(Struct, frozen=True):
    """A tool of an MCP server. ``read_only`` is what the server says of it, and no more than that."""

    server: str
    tool: str
    read_only: bool = False


Action = RunCommand | WriteFile | ReadFile | CallTool


class Need(Struct, frozen=True):
    """One thing that wants the user's word. ``scopes`` are the answers that make sense for it."""

    what: str
    reason: str
    scopes: tuple[Scope, ...] = ("once", "session")
    rule: str = ""
    """What the widest scope would cover, for people: ``npm test ...``, ``docs/**``."""


class Decision(Struct, frozen=True):
    """``allow``, ``ask`` for what is in ``needs``, or ``deny`` by a rule of the user or because the conversation only
    reads (``needs`` says which)."""

    verdict: Literal["allow", "ask", "deny"]
    needs: tuple[Need, ...] = ()


class Answer(Struct, frozen=True):
    """The user's word on all needs of a decision. ``note`` goes to the model with a refusal."""

    allow: bool
    scope: Scope = "once"
    note: str = ""


Consult = Callable[[Action, Decision], Awaitable[Answer]]
"""Asks the user. A face without one answers with a refusal that says so."""


async def nobody(action: Action, decision: Decision) -> Answer:
    """There is nobody to ask: what is not allowed beforehand is refused."""
    return Answer(allow=False, note="nobody is here to approve it; do it another way or leave it out")

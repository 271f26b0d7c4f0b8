"""What can be set about a conversation, typed; the faces and commands fill it in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import platformdirs
from msgspec import Struct, field

from vivace.agent.mcp.config import ServerConfig
from vivace.agent.turns.limits import Limits
from vivace.errors import UsageError, did_you_mean

ROLES = ("planner", "builder", "reviewer")
"""The planner says the steps, the builder does them in place of the deep model, the reviewer looks at the result."""
Approving = Literal["read-only", "ask", "auto", "full"]


def roles_of(given: Sequence[str]) -> dict[str, str]:
    """``ROLE=MODEL`` as on a command line. Raises :class:`UsageError` (``unknown_role``, ``bad_role``)."""
    roles = {}
    for text in given:
        role, sign, model = (part.strip() for part in text.partition("="))
        if not sign or not model:
            raise UsageError(f"{text!r} names no model", hint="Such as planner=MODEL.", code="bad_role", param="role")
        roles[checked_role(role)] = model
    return roles


def checked_role(role: str) -> str:
    """Raises :class:`UsageError` (``unknown_role``) for what is none."""
    if role not in ROLES:
        hint = did_you_mean(role, list(ROLES))
        raise UsageError(f"there is no role {role!r}", hint=hint, code="unknown_role", param="role")
    return role


def _state() -> Path:
    return Path(platformdirs.user_state_dir("vivace"))


def _cache() -> Path:
    return Path(platformdirs.user_cache_dir("vivace"))


class AgentOptions(Struct, frozen=True, kw_only=True):
    """The options of one conversation."""

    candidates: int | None = None
    """Answers that race for one edit; None takes 4 where the model is small and 1 elsewhere."""
    race_models: tuple[str, ...] = ()
    """Further models whose answers race with those of the fast one."""
    approvals: Approving = "auto"
    """``read-only``: nothing is changed, edits are only shown. ``ask``: edits and commands wait for a word. ``auto``:
    edits in the workspace and sandboxed commands pass. ``full``: everything but what destroys."""
    propose: bool = False
    """A fast edit is shown and waits for the user's yes, whatever ``approvals`` says."""
    sandbox: bool = True
    limits: Limits = Limits()
    """Of one turn in the foreground."""
    worker_limits: Limits = Limits(steps=60, tokens=400_000, seconds=1800.0)
    """Of one background worker."""
    max_workers: int = 4
    """That run at a time; with 0 the model has none."""
    state_dir: Path = field(default_factory=_state)
    cache_dir: Path = field(default_factory=_cache)
    keep_edits: bool = True
    """Accepted and refused edits are kept on this machine, see :mod:`vivace.agent.turns.kept_edits`."""
    roles: dict[str, str] = {}
    """Models by role, see :data:`ROLES`: a deep turn asks them in turn. A role without one is nobody's."""
    seed: int = 0
    mcp: bool = True
    """Start the MCP servers that are configured for the workspace."""
    mcp_folder: Path | None = None
    """Where the user's own ``mcp.json`` lies; None asks for those of the workspace only."""
    mcp_servers: tuple[ServerConfig, ...] = ()
    """Servers of this conversation alone, such as those that an editor brings; they win over configured ones."""
    compact_at: float = 0.75
    """Share of the window at which a deep turn shortens its context."""
    quick: float = 30.0
    """Seconds in which a result can be verified beside a fast answer."""
    weak: bool | None = None
    """The model cannot be trusted with tools; None finds out."""
    worker: bool = False
    """The conversation is a background worker's: it has none of its own and nobody to ask."""

"""What can be set about a conversation, typed; the faces and commands fill it in."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import platformdirs
from msgspec import Struct, field

from vivace.agent.turns.limits import Limits

Approving = Literal["ask", "auto", "full"]


def _state() -> Path:
    return Path(platformdirs.user_state_dir("vivace"))


def _cache() -> Path:
    return Path(platformdirs.user_cache_dir("vivace"))


class AgentOptions(Struct, frozen=True, kw_only=True):
    """The options of one conversation."""

    candidates: int | None = None
    """Answers that race for one edit; None takes 4 where the model is small and 1 elsewhere."""
    approvals: Approving = "auto"
    """``ask``: edits and commands wait for a word. ``auto``: edits in the workspace and sandboxed commands pass.
    ``full``: everything but what destroys."""
    propose: bool = False
    """A fast edit is shown and waits for the user's yes, whatever ``approvals`` says."""
    sandbox: bool = True
    limits: Limits = Limits()
    """Of one turn in the foreground."""
    worker_limits: Limits = Limits(steps=60, tokens=400_000, seconds=1800.0)
    """Of one background worker."""
    max_workers: int = 4
    state_dir: Path = field(default_factory=_state)
    cache_dir: Path = field(default_factory=_cache)
    keep_edits: bool = True
    """Accepted and refused edits are kept on this machine, see :mod:`vivace.agent.turns.kept_edits`."""
    roles: dict[str, str] = {}
    """Models of roles, such as ``{"builder": "coder-1.5b", "reviewer": "big"}``."""
    seed: int = 0
    mcp: bool = True
    """Start the MCP servers that are configured for the workspace."""
    mcp_folder: Path | None = None
    """Where the user's own ``mcp.json`` lies; None asks for those of the workspace only."""
    compact_at: float = 0.75
    """Share of the window at which a deep turn shortens its context."""
    quick: float = 30.0
    """Seconds in which a result can be verified beside a fast answer."""
    weak: bool | None = None
    """The model cannot be trusted with tools; None finds out."""
    worker: bool = False
    """The conversation is a background worker's: it has none of its own and nobody to ask."""

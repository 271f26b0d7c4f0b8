"""How the door is set up: where it listens, whom it lets in, and how long it waits."""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from vivace.errors import UsageError
from vivace.protocol.contracts import Principal

Authenticator: TypeAlias = Callable[[str], Awaitable[Principal | None]]
"""The secret that a caller presents -> who it is, or None. A door without one is open, and listens on loopback only."""

MIB = 1 << 20


class ServerOptions(Struct, frozen=True, kw_only=True):
    """Times are in seconds."""

    host: str = "127.0.0.1"
    port: int = 8000
    """0 takes a free one."""
    uds: Path | None = None
    """Listen on this Unix socket, which only this user can open, and on no address."""
    websockets: bool = True
    """Off, an upgrade is answered with 426, at which Codex CLI falls back to HTTP at once."""
    compression: bool = False
    """Offer permessage-deflate on WebSockets: less traffic for more CPU on every event."""
    max_message_bytes: int = 64 * MIB
    """The largest body, as it is sent and unpacked, and the largest WebSocket message."""
    stuck_seconds: float = 30.0
    """A client that takes nothing of what was written for so long is cut off."""
    ping_seconds: float = 20.0
    """Between pings on a WebSocket; one without a pong for ``stuck_seconds`` is closed."""
    connection_seconds: float | None = None
    """The age at which a WebSocket is closed, between two responses."""
    drain_seconds: float = 30.0
    """How long running responses may go on when the server is told to stop."""
    idle_seconds: float | None = None
    """End when nobody has been connected for so long."""
    public_metrics: bool = False
    """Answer ``/metrics`` without a key."""
    allow_origins: tuple[str, ...] = ()
    """Origins of web pages that may call (CORS), such as ``https://ide.example.com``; ``*`` allows all."""
    allow_hosts: tuple[str, ...] = ()
    """Names besides the loopback ones that a door without keys answers to, such as ``host.docker.internal``."""

    def check(self, authenticate: Authenticator | None) -> None:
        """Raises :class:`UsageError` for a door that would stand open to the network."""
        if authenticate is None and self.uds is None and not is_loopback(self.host):
            raise UsageError(
                f"Without API keys the server listens on this machine only, not on {self.host}",
                hint="Make a key first: vivace keys create NAME. Or leave --host out.",
                code="keys_required",
                param="host",
            )


@lru_cache(maxsize=64)
def is_loopback(host: str) -> bool:
    """Whether ``host`` names this machine and nothing else."""
    name = host.strip("[]").rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False

"""Where a service listens: ``unix:/path``, or an ``http``, ``https``, ``ws`` or ``wss`` address."""

from __future__ import annotations

from urllib.parse import urlsplit

from msgspec import Struct

from vivace.errors import UsageError

_PORTS = {"http": 80, "ws": 80, "https": 443, "wss": 443}


class Address(Struct, frozen=True):
    """``socket`` is the path of a Unix socket; without one it is ``host`` and ``port``.

    ``root`` is what stands before ``/v1`` in the paths of a server behind a proxy.
    """

    shown: str
    """For messages."""
    socket: str = ""
    host: str = "localhost"
    port: int = 80
    tls: bool = False
    root: str = ""

    @classmethod
    def parse(cls, text: str) -> Address:
        """Raises :class:`UsageError` for what is no address. A path may end in ``/v1``, as OpenAI's clients have it."""
        if text.startswith("unix:"):
            path = text.removeprefix("unix:").removeprefix("//")
            if path:
                return cls(text, socket=path)
        try:
            parts = urlsplit(text)
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
        else:
            if host and parts.scheme in _PORTS and not (parts.query or parts.fragment or parts.username):
                root = parts.path.rstrip("/").removesuffix("/v1")
                tls = parts.scheme in ("https", "wss")
                return cls(text, "", host, port if port is not None else _PORTS[parts.scheme], tls, root)
        raise UsageError(
            f"{text!r} is no address of a service",
            hint="It is http://HOST:PORT, https://HOST or unix:/PATH.",
            param="address",
        )

    @property
    def authority(self) -> str:
        """The ``Host`` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.socket or self.port == (443 if self.tls else 80) else f"{host}:{self.port}"

    @property
    def websocket(self) -> str:
        """The URL of the lasting connection."""
        return f"{'wss' if self.tls else 'ws'}://{self.authority}{self.root}/v1/responses"

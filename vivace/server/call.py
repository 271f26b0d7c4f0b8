"""One call at the door: what was asked, who asks, and how it is answered.

Endpoints get a :class:`Call` and write ASGI messages with it; nothing is between them and the connection.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import parse_qsl

from msgspec import Struct, field
from starlette.types import Message, Receive, Scope, Send

from vivace.protocol.contracts import Gateway, Principal
from vivace.protocol.items import encode
from vivace.protocol.requests import ResponseRequest
from vivace.server.bodies import read_body

if TYPE_CHECKING:
    from vivace.server.drain import Drain
    from vivace.server.metrics import Metrics
    from vivace.server.options import Authenticator, ServerOptions

Dialect = Literal["openai", "anthropic"]

_TOLD = (
    "user-agent", "originator", "session-id", "thread-id", "x-client-request-id", "x-session-id", "x-session-affinity",
    "x-codex-turn-state", "x-codex-turn-metadata", "x-codex-parent-thread-id", "x-openai-subagent", "openai-beta",
    "anthropic-beta",
)  # fmt: skip
"""Headers that tell about the caller, for :attr:`Principal.metadata`; Codex CLI's and opencode's among them."""


class Door(Struct, frozen=True):
    """What every call shares."""

    gateway: Gateway
    authenticate: Authenticator | None
    options: ServerOptions
    metrics: Metrics
    drain: Drain
    etags: dict[str, str] = field(default_factory=dict)
    """Of the list of models, as each principal got it last."""


class Call:
    """One request or upgrade. ``dialect`` is that of its errors."""

    def __init__(self, door: Door, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        self.door = door
        self.gateway = door.gateway
        self.scope = scope
        self.receive = receive
        self.send = send
        self.request_id = request_id
        self.begun = time.monotonic()
        self.principal = Principal()
        self.started = False
        """An answer has begun: nothing can be refused any more."""
        self.status = 0
        self.headers: dict[str, str] = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        """Names in lower case; of several of one name, the last."""
        self.dialect: Dialect = "anthropic" if scope["path"].startswith("/v1/messages") else "openai"

    @property
    def method(self) -> str:
        """``WEBSOCKET`` for an upgrade."""
        method: str = self.scope["method"] if self.scope["type"] == "http" else "WEBSOCKET"
        return method

    @property
    def path(self) -> str:
        path: str = self.scope["path"]
        return path

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(self.scope["query_string"].decode("latin-1"), keep_blank_values=True))

    @property
    def response_id(self) -> str:
        """The id in the path."""
        value: str = self.scope["path_params"]["response_id"]
        return value

    async def body(self) -> bytes:
        """The whole body, unpacked. Raises :class:`vivace.protocol.errors.BadRequest`."""
        return await read_body(self.receive, self.headers, self.door.options.max_message_bytes)

    def known_as(self, principal: Principal) -> Principal:
        """``principal`` with what this connection tells about it."""
        client = self.scope.get("client")
        told = {name: value for name in _TOLD if (value := self.headers.get(name))}
        return Principal(
            principal.id,
            principal.key,
            principal.plan,
            {
                **principal.metadata,
                **told,
                "request_id": self.request_id,
                "address": client[0] if client else "unix",
            },
        )

    def belongs(self, request: ResponseRequest) -> None:
        """Note which conversation a request belongs to where only a header says it (opencode)."""
        if request.prompt_cache_key is None:
            request.prompt_cache_key = self.headers.get("x-session-affinity")

    async def begin(self, status: int, content_type: str, headers: Mapping[str, str], length: int | None) -> None:
        """Write the head of an answer; ``length`` None is a streamed body."""
        self.started, self.status = True, status
        raw = [
            (b"content-type", content_type.encode("latin-1")),
            (b"x-request-id", self.request_id.encode()),
            (b"openai-processing-ms", str(round((time.monotonic() - self.begun) * 1000)).encode()),
        ]
        if length is not None:
            raw.append((b"content-length", str(length).encode()))
        raw += [(name.encode("latin-1"), _safe(value)) for name, value in headers.items()]
        raw += [(name.encode("latin-1"), value.encode("latin-1")) for name, value in self._cross_origin()]
        kind = "http" if self.scope["type"] == "http" else "websocket.http"
        await self.send({"type": f"{kind}.response.start", "status": status, "headers": raw})

    async def write(self, body: bytes, more: bool) -> None:
        kind = "http" if self.scope["type"] == "http" else "websocket.http"
        message: Message = {"type": f"{kind}.response.body", "body": body, "more_body": more}
        await self.send(message)

    async def answer(
        self, body: bytes, status: int = 200, content_type: str = "application/json", headers: Mapping[str, str] = {}
    ) -> None:
        """Answer with a whole body."""
        head = self.method == "HEAD"
        await self.begin(status, content_type, headers, len(body))
        await self.write(b"" if head else body, more=False)

    async def json(self, value: Any, status: int = 200, headers: Mapping[str, str] = {}) -> None:
        """Answer with JSON of builtins or protocol objects."""
        await self.answer(encode(value), status, headers=headers)

    def _cross_origin(self) -> list[tuple[str, str]]:
        """What lets a page of an allowed origin read the answer."""
        origin = self.headers.get("origin")
        allowed = self.door.options.allow_origins
        if origin is None or not allowed or not ("*" in allowed or origin in allowed):
            return []
        return [("access-control-allow-origin", origin), ("vary", "origin")]


def _safe(value: str) -> bytes:
    """A header's value on one line, in Latin-1."""
    return " ".join(value.split()).encode("latin-1", "replace")

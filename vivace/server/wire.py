"""uvicorn's connections, with what a door for fast streams needs besides.

- The head of an HTTP answer waits for the beginning of its body, and both are one write.
- A batch of WebSocket messages is one write to the socket. uvicorn writes each message on its own; at 16,000 messages a
  second the system calls alone would take most of a core.
- A client that takes nothing for a stated time is cut off, so that what it does not read is not kept for ever.
- What is larger than the limit gets an answer that says so: the connection is read on for a moment, because closing it
  with unread data in it would make the peer's system throw the answer away.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from typing import Any, cast

import uvicorn
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import PayloadTooBig
from websockets.protocol import OPEN

from vivace.protocol.errors import error_body, error_frame
from vivace.protocol.events import encode
from vivace.protocol.items import encode as encode_object
from vivace.server.bodies import too_large
from vivace.server.options import ServerOptions

BATCH = "vivace.websocket.batch"
"""An ASGI message of this type holds ``payloads``: JSON texts as bytes, a WebSocket message each. Offered where the
scope's extensions have this name."""

HEADER_BYTES = 64 * 1024
LINGER = 1.0
"""Seconds without data after which a connection that was refused for its size is closed."""


class WireConfig(uvicorn.Config):
    """uvicorn's configuration, and the door's."""

    def __init__(self, app: Any, options: ServerOptions) -> None:
        super().__init__(
            app,
            http=HttpWire,
            ws=SocketWire,
            ws_max_size=options.max_message_bytes,
            ws_ping_interval=options.ping_seconds,
            ws_ping_timeout=options.stuck_seconds,
            ws_per_message_deflate=options.compression,
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=2,
        )
        self.options = options


class _Stuck:
    """Cuts a connection off whose peer takes nothing for ``seconds``."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, transport: asyncio.Transport) -> None:
        self.end()
        self._timer = asyncio.get_running_loop().call_later(self._seconds, transport.abort)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _Joined:
    """A transport on which the head of an answer goes out with what is written next, or when the loop comes round."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self.raw = transport
        self._loop = asyncio.get_running_loop()
        self._head = b""

    def write(self, data: bytes) -> None:
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(b"HTTP/1.1 200"):
            self._head = data
            self._loop.call_soon(self._flush)
            return
        self.raw.write(data)

    def close(self) -> None:
        self._flush()
        self.raw.close()

    def _flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self.raw.write(head)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


class HttpWire(HttpToolsProtocol):
    """One HTTP connection."""

    def __init__(self, config: Any, server_state: Any, app_state: Any, _loop: Any = None) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._stuck = _Stuck(cast(WireConfig, config).options.stuck_seconds)
        self._header_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.transport = cast(asyncio.Transport, _Joined(transport))

    def handle_websocket_upgrade(self) -> None:
        self.transport = cast(_Joined, self.transport).raw
        super().handle_websocket_upgrade()

    def pause_writing(self) -> None:
        self._stuck.begin(self.transport)
        super().pause_writing()

    def resume_writing(self) -> None:
        self._stuck.end()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stuck.end()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        self._header_bytes = 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > HEADER_BYTES:
            raise ValueError(f"headers beyond {HEADER_BYTES} bytes")  # httptools makes a parser error of it
        super().on_header(name, value)

    def send_400_response(self, msg: str) -> None:
        body = encode_object(error_body(msg, code="invalid_http"))
        head = f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        self.transport.write(b"HTTP/1.1 400 Bad Request\r\n" + head.encode() + body)
        self.transport.close()


class SocketWire(WebSocketsSansIOProtocol):
    """One WebSocket connection. Messages arrive as bytes, decoded by whoever parses them."""

    def __init__(self, config: Any, server_state: Any, app_state: Any, _loop: Any = None) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._stuck = _Stuck(cast(WireConfig, config).options.stuck_seconds)
        self._lingering = False

    def handle_connect(self, event: Any) -> None:
        super().handle_connect(event)
        if hasattr(self, "scope"):  # else the handshake was refused
            cast(dict[str, Any], self.scope["extensions"])[BATCH] = {}

    def pause_writing(self) -> None:
        self._stuck.begin(self.transport)
        super().pause_writing()

    def resume_writing(self) -> None:
        self._stuck.end()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stuck.end()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._lingering:
            self._linger()
        else:
            super().data_received(data)

    def send_receive_event_to_app(self) -> None:
        """As uvicorn's, with texts left as bytes: text that is not UTF-8 is the lane's fault, not the connection's."""
        data = self.frames[0] if len(self.frames) == 1 else b"".join(self.frames)
        self.frames = []
        if self.close_sent:
            return
        kind = "data" if self.curr_msg_data_type == "text" else "bytes"
        self.queue.put_nowait(cast(Any, {"type": "websocket.receive", kind: data}))
        if not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()

    def handle_parser_exception(self) -> None:
        if not isinstance(self.conn.parser_exc, PayloadTooBig):
            super().handle_parser_exception()
            return
        limit = cast(WireConfig, self.config).options.max_message_bytes
        refusal = too_large(limit, "message")
        # With 400 Codex CLI shows the message and ends; with 413 it would send the same again, five times.
        told = encode(error_frame(refusal.message, 400, refusal.code))
        self.transport.write(framed([told]))
        self.queue.put_nowait({"type": "websocket.disconnect", "code": 1009, "reason": ""})
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self._linger()

    async def send(self, message: ASGISendEvent) -> None:
        if cast(dict[str, Any], message)["type"] != BATCH:
            await super().send(message)
            if self.initial_response is not None and self.close_sent:
                self.handshake_complete = True  # by a refusal; uvicorn would complain that there was none
            return
        if not self.writable.is_set():
            await self.writable.wait()
        if self.disconnected or self.conn.state is not OPEN:
            raise ClientDisconnected
        payloads: Sequence[bytes] = cast(dict[str, Any], message)["payloads"]
        if self.conn.extensions:
            for payload in payloads:
                self.conn.send_text(payload)
            self.transport.write(b"".join(self.conn.data_to_send()))
        else:
            self.transport.write(framed(payloads))

    def _linger(self) -> None:
        """Go on reading, and dropping, until nothing came for a moment."""
        self._lingering = True
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()
        if self.close_timer is not None:
            self.close_timer.cancel()
        self.close_timer = self.loop.call_later(LINGER, self.transport.close)


def framed(payloads: Sequence[bytes]) -> bytes:
    """Text messages of a server, each one frame (RFC 6455, section 5.2)."""
    parts: list[bytes] = []
    for payload in payloads:
        length = len(payload)
        if length < 126:
            parts.append(bytes((0x81, length)))
        elif length < 1 << 16:
            parts.append(struct.pack("!BBH", 0x81, 126, length))
        else:
            parts.append(struct.pack("!BBQ", 0x81, 127, length))
        parts.append(payload)
    return b"".join(parts)

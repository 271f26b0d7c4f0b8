"""The lasting connection of a client: one WebSocket, a lane for each response that runs on it.

It is opened for the first response and again for the next one after it broke. A response of which an event was seen
cannot be asked for again, so it fails with the connection; one without is sent again, once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING

import msgspec

from vivace.client.address import Address
from vivace.client.generation import RemoteGeneration
from vivace.client.http import Answer, gone, refusal
from vivace.errors import VivaceError
from vivace.protocol import events as ev
from vivace.protocol.items import encode
from vivace.protocol.requests import CancelFrame, ResponseRequest

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

LANES = 16
"""Responses at a time. OpenAI's WebSocket mode runs as many on a connection and makes further ones wait in silence;
waiting here, they can be stopped at once."""
SENDS = 2
"""How often a request is sent at most."""
LARGEST_MESSAGE = 64 << 20
CLOSE_TIMEOUT = 1.0


class Line:
    """All methods belong to one event loop."""

    def __init__(self, address: Address, headers: dict[str, str]) -> None:
        self.address = address
        self._headers = headers
        self._free = [str(n) for n in reversed(range(LANES))]
        self._lanes: dict[str, RemoteGeneration] = {}
        self._waiting: deque[RemoteGeneration] = deque()
        self._outbox: asyncio.Queue[bytes] | None = None
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._told = ""
        """The last error that the server told of no lane, which is why it then closes the connection."""

    def begin(self, request: ResponseRequest) -> RemoteGeneration:
        """A response, asked for as soon as a lane is free."""
        generation = RemoteGeneration(self, request)
        if self._closed:
            generation.fail("The connection to the service was closed.", "service_closed")
            return generation
        self._waiting.append(generation)
        self._assign()
        self.prepare()
        return generation

    def prepare(self) -> None:
        """Connect, if that is not done: whoever opens a model will ask it soon."""
        if not self._closed and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._live())

    def stop(self, generation: RemoteGeneration) -> None:
        """See that it ends soon."""
        if generation.response_id:
            self._send(encode(CancelFrame(response_id=generation.response_id)))
        elif generation in self._waiting:
            self._waiting.remove(generation)
            generation.withdraw()
        elif self._outbox is None:  # it has not left this process
            self._release(generation)
            generation.withdraw()
        # else its first event is on its way, and with it the name by which it can be cancelled

    async def close(self) -> None:
        """End what runs and the connection."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._fail([*self._lanes.values(), *self._waiting], "The connection to the service was closed.")

    async def _live(self) -> None:
        """The loop: connect, ask, hand events on; again while something can still be asked for."""
        first = True
        while first or self._lanes or self._waiting:
            first = False
            try:
                connection = await self._connect()
            except VivaceError as error:
                self._fail([*self._lanes.values(), *self._waiting], str(error), error.code)
                return
            self._told = ""
            reason = await self._serve(connection)
            self._outbox = None
            self._part(reason)

    async def _serve(self, connection: ClientConnection) -> str:
        """Both directions until the connection ends; says why it did."""
        from websockets.exceptions import ConnectionClosed

        self._outbox = asyncio.Queue()
        self._ask_again()
        sending = asyncio.create_task(self._write(connection, self._outbox))
        try:
            while True:
                self._take(await connection.recv(decode=False))
        except ConnectionClosed as closed:
            said = closed.rcvd.reason if closed.rcvd is not None else ""
            return self._told or said or "the server went away"
        except msgspec.DecodeError as error:
            return f"what it sent is no event ({error})"
        finally:
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionClosed):
                await sending
            closing = asyncio.ensure_future(connection.close())
            await asyncio.wait((closing,), timeout=CLOSE_TIMEOUT)

    async def _write(self, connection: ClientConnection, outbox: asyncio.Queue[bytes]) -> None:
        while True:
            await connection.send(await outbox.get(), text=True)

    def _take(self, message: str | bytes) -> None:
        event = ev.decode(message)
        lane = event.stream_id
        generation = self._lanes.get(lane) if lane is not None else None
        if generation is None:
            if isinstance(event, ev.ErrorEvent) and event.error.code != "response_not_found":
                self._told = event.error.message
            return
        generation.take(event)
        if generation.ended:
            self._release(generation)
        elif generation.stopping and isinstance(event, ev.Created):
            self.stop(generation)

    def _part(self, reason: str) -> None:
        """The connection is gone: what had begun has failed with it, the rest may be sent once more."""
        running = list(self._lanes.values())
        begun = [generation for generation in running if generation.request is None]
        stopped = [generation for generation in running if generation.request is not None and generation.stopping]
        tried = [g for g in running if g.request is not None and not g.stopping and g.sent >= SENDS]
        self._fail(begun, f"The connection to the service broke in the middle of the answer: {reason}.")
        self._fail(tried, f"The service closed the connection before it answered: {reason}.")
        for generation in stopped:
            self._release(generation)
            generation.withdraw()

    def _assign(self) -> None:
        while self._waiting and self._free:
            lane, generation = self._free.pop(), self._waiting.popleft()
            self._lanes[lane] = generation
            self._ask(lane, generation)

    def _ask_again(self) -> None:
        """On a new connection."""
        for lane, generation in self._lanes.items():
            self._ask(lane, generation)

    def _ask(self, lane: str, generation: RemoteGeneration) -> None:
        if self._outbox is not None:
            generation.sent += 1
            self._send(generation.frame(lane))

    def _release(self, generation: RemoteGeneration) -> None:
        lane = next((name for name, found in self._lanes.items() if found is generation), None)
        if lane is not None:
            del self._lanes[lane]
            self._free.append(lane)
            self._assign()

    def _fail(self, generations: list[RemoteGeneration], message: str, code: str = "service_gone") -> None:
        for generation in generations:
            if generation in self._waiting:
                self._waiting.remove(generation)
        for generation in generations:
            generation.fail(message, code)
            self._release(generation)

    def _send(self, frame: bytes) -> None:
        if self._outbox is not None:
            self._outbox.put_nowait(frame)

    async def _connect(self) -> ClientConnection:
        """Raises :class:`VivaceError` that says where nobody answered, or what the server refused."""
        from websockets.asyncio.client import connect, unix_connect
        from websockets.exceptions import InvalidStatus, WebSocketException

        address = self.address
        connecting = (
            unix_connect(
                address.socket, address.websocket, additional_headers=self._headers, max_size=LARGEST_MESSAGE,
                compression=None, user_agent_header=None, close_timeout=CLOSE_TIMEOUT,
            )
            if address.socket
            else connect(
                address.websocket, additional_headers=self._headers, max_size=LARGEST_MESSAGE,
                compression=None, user_agent_header=None, close_timeout=CLOSE_TIMEOUT,
            )
        )  # fmt: skip
        try:
            return await connecting
        except InvalidStatus as error:
            raise refusal(Answer(error.response.status_code, error.response.body or b"")) from error
        except (OSError, EOFError, WebSocketException) as error:
            raise gone(address, error) from error

"""One lasting connection: lanes of responses, steering, cancelling.

Requests of one lane run one after the other, lanes side by side. The unnamed lane is one of its own. As in OpenAI's
WebSocket mode 16 responses run at a time and 32 lanes have names; more requests wait, more names are refused.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from vivace.errors import VivaceError
from vivace.protocol import events as ev
from vivace.protocol.contracts import Principal
from vivace.protocol.errors import BadRequest, Refused, error_frame
from vivace.protocol.requests import CancelFrame, ClientFrame, CreateFrame, OtherFrame, ResponseRequest, SteerFrame
from vivace.service.asking import as_refusal
from vivace.service.rate_limits import codex_event
from vivace.service.steering import Steers
from vivace.service.turn import Turn

if TYPE_CHECKING:
    from vivace.service.gateway import LocalGateway

log = logging.getLogger(__name__)

RUNNING = 16
NAMED = 32
"""Lanes with a name on one connection."""
KNOWN = 1024
"""Ended responses of a connection that a late steer is told about."""


class Lanes:
    """See :class:`vivace.protocol.contracts.Line`."""

    def __init__(self, gateway: LocalGateway, principal: Principal) -> None:
        self.gateway = gateway
        self.principal = principal
        self.steers = Steers(self._deliver)
        self._waiting: dict[str | None, deque[ResponseRequest]] = {}
        self._workers: dict[str | None, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(RUNNING)
        self._turns: dict[str, Turn] = {}
        self._taken = 0
        self._behind: list[Turn] = []
        """Answered, and still prefilling."""
        self._past: deque[str] = deque(maxlen=KNOWN)
        self._ready: list[ev.Event] = []
        self._news = asyncio.Event()
        self._closed = False
        self._tasks: set[asyncio.Task[object]] = set()

    def submit(self, frame: ClientFrame) -> None:
        if self._closed:
            return
        match frame:
            case CreateFrame():
                self._create(frame)
            case SteerFrame():
                self._steer(frame)
            case CancelFrame():
                running = [*self._turns.values(), *self._behind]
                turn = next((turn for turn in running if turn.response_id == frame.response_id), None)
                if turn is None or turn.over or (turn.ended.is_set() and turn.prefill is None):
                    known = f"No response '{frame.response_id}' runs on this connection."
                    self.refuse(_on(Refused(known, 404, "response_not_found", "response_id"), frame.stream_id))
                else:
                    self._spawn(turn.stop("cancelled"))
            case OtherFrame():
                message = f"Unknown event type '{frame.type}'."
                self.refuse(_on(BadRequest(message, "type", "unknown_event"), frame.stream_id))
            case _:
                message = "Agents hosted by the server are not offered."
                self.refuse(_on(BadRequest(message, "type", "unsupported_event"), frame.stream_id))

    def refuse(self, error: BadRequest) -> None:
        headers = getattr(error, "headers", None) or None
        message = f"{error.message.rstrip('.')}. {error.hint}" if error.hint else error.message
        kind = getattr(error, "kind", None)
        self._deliver(
            [
                error_frame(
                    message,
                    error.status,
                    error.code,
                    error.param,
                    type=kind,
                    headers=headers,
                    stream_id=error.stream_id,
                )
            ]
        )

    async def ready(self) -> list[ev.Event]:
        while not self._ready:
            if self._closed:
                return []
            self._news.clear()
            await self._news.wait()
        events, self._ready = self._ready, []
        return events

    @property
    def running(self) -> int:
        """Responses that run or wait on it."""
        return self._taken + sum(map(len, self._waiting.values()))

    async def close(self) -> None:
        self._closed = True
        self._news.set()
        for queue in self._waiting.values():
            queue.clear()
        for worker in self._workers.values():
            worker.cancel()
        turns = [*self._turns.values(), *self._behind]
        await asyncio.gather(*(turn.stop("disconnect") for turn in turns))
        await asyncio.gather(*self._workers.values(), *self._tasks, return_exceptions=True)

    def _create(self, frame: CreateFrame) -> None:
        lane = frame.stream_id
        named = [name for name in self._waiting if name is not None]
        if lane is not None and lane not in self._waiting and len(named) >= NAMED:
            message = f"This connection has {NAMED} named lanes already."
            self.refuse(_on(BadRequest(message, "stream_id", "websocket_stream_limit_reached"), lane))
            return
        if frame.background:
            self.refuse(_on(BadRequest("A response in the background has no connection.", "background"), lane))
            return
        self._waiting.setdefault(lane, deque()).append(frame)
        self._wake(lane)

    def _wake(self, lane: str | None) -> None:
        worker = self._workers.get(lane)
        if worker is None or worker.done():
            self._workers[lane] = asyncio.create_task(self._work(lane))

    async def _work(self, lane: str | None) -> None:
        """The loop of a lane: first what follows a steered response, then the requests in their order."""
        queue = self._waiting[lane]
        while queue and not self._closed:
            request = queue.popleft()
            self._taken += 1
            try:
                async with self._slots:
                    turn = await self._asked(request, lane)
                    while turn is not None:
                        await turn.wait()
                        self._past.append(self._turns.pop(turn.response_id).response_id)
                        if not turn.over:
                            self._behind = [*(each for each in self._behind if not each.over), turn]
                        turn = await self._steered(turn)
            finally:
                self._taken -= 1

    async def _asked(self, request: ResponseRequest, lane: str | None) -> Turn | None:
        """The response to a client's request; None when it was refused."""
        joined, waiting = self.steers.join(request)
        try:
            self._say_limits(joined, lane)
            return await self._respond(joined)
        except BadRequest as error:
            self.steers.put_back(request.previous_response_id or "", waiting)
            self.refuse(_on(error, lane))
            return None

    async def _steered(self, turn: Turn) -> Turn | None:
        """The response that follows a steered one; None where none does."""
        follows = self.steers.successor(turn)
        if follows is None:
            return None
        request, waiting = follows
        try:
            return await self._respond(request)
        except BadRequest as error:
            self.steers.give_back(turn, waiting, error.message)
            return None

    async def _respond(self, request: ResponseRequest) -> Turn:
        """Raises :class:`BadRequest`, and nothing else."""
        try:
            turn = await self.gateway.respond(request, self.principal, self._deliver)
        except BadRequest:
            raise
        except VivaceError as error:
            raise as_refusal(error) from error
        except Exception as error:
            log.exception("a request broke")
            raise Refused(f"The server broke: {type(error).__name__}.", 500, "server_error") from error
        self._turns[turn.response_id] = turn
        return turn

    def _say_limits(self, request: ResponseRequest, lane: str | None) -> None:
        """Codex CLI's display of a plan's windows; nothing for a plan without any."""
        gateway = self.gateway
        try:
            buyer = gateway.accounts.buyer(self.principal)
        except VivaceError as error:
            raise as_refusal(error) from error
        states = gateway.meters.snapshot(self.principal.id, buyer.plan, buyer.key, request.model, time.time())
        found = codex_event(buyer.plan.id, states, time.time())
        if found is not None:
            event = msgspec.convert(found, ev.RateLimits)
            event.stream_id = lane
            self._deliver([event])

    def _steer(self, frame: SteerFrame) -> None:
        turn = self._turns.get(frame.previous_response_id)
        self.steers.take(frame, turn, frame.previous_response_id in self._past)

    def _deliver(self, events: list[ev.Event]) -> None:
        if self._closed:
            return
        self._ready += events
        self._news.set()

    def _spawn(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _on(error: BadRequest, lane: str | None) -> BadRequest:
    error.stream_id = lane
    return error

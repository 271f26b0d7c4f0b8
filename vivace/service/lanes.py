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
from vivace.service.rate_limits import codex_event
from vivace.service.steering import Steers
from vivace.service.turn import Turn

if TYPE_CHECKING:
    from vivace.service.gateway import LocalGateway

log = logging.getLogger(__name__)

RUNNING = 16
NAMED = 32
"""Lanes with a name on one connection."""


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
        self._ready: list[ev.Event] = []
        self._news = asyncio.Event()
        self._closed = False
        self._tasks: set[asyncio.Task[object]] = set()

    def submit(self, frame: ClientFrame) -> None:
        match frame:
            case CreateFrame():
                self._create(frame)
            case SteerFrame():
                self._steer(frame)
            case CancelFrame():
                turn = self._turns.get(frame.response_id)
                if turn is None:
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
        frame = error_frame(
            str(error), error.status, error.code, error.param, headers=headers, stream_id=error.stream_id
        )
        self._deliver([frame])

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
        return len(self._turns) + sum(map(len, self._waiting.values()))

    async def close(self) -> None:
        self._closed = True
        self._news.set()
        for queue in self._waiting.values():
            queue.clear()
        for worker in self._workers.values():
            worker.cancel()
        turns = list(self._turns.values())
        await asyncio.gather(*(turn.stop("disconnect") for turn in turns))

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
            async with self._slots:
                turn = await self._respond(request, lane)
                while turn is not None:
                    await turn.wait()
                    self._turns.pop(turn.response_id, None)
                    successor = self.steers.successor(turn)
                    turn = await self._respond(successor, lane) if successor is not None else None

    async def _respond(self, request: ResponseRequest, lane: str | None) -> Turn | None:
        try:
            request = self.steers.joined(request)
            self._say_limits(request, lane)
            turn = await self.gateway.respond(request, self.principal, self._deliver)
        except BadRequest as error:
            self.refuse(_on(error, lane))
            return None
        except VivaceError as error:
            self.refuse(_on(Refused(str(error), 500, error.code), lane))
            return None
        except Exception as error:
            log.exception("a request broke")
            self.refuse(_on(Refused(f"The server broke: {type(error).__name__}.", 500, "server_error"), lane))
            return None
        if self._closed:
            await turn.stop("disconnect")
            return None
        self._turns[turn.response_id] = turn
        return turn

    def _say_limits(self, request: ResponseRequest, lane: str | None) -> None:
        """Codex CLI's display of a plan's windows; nothing for a plan without any."""
        gateway = self.gateway
        buyer = gateway.accounts.buyer(self.principal)
        states = gateway.meters.snapshot(self.principal.id, buyer.plan, buyer.key, request.model, time.time())
        found = codex_event(buyer.plan.id, states, time.time())
        if found is not None:
            event = msgspec.convert(found, ev.RateLimits)
            event.stream_id = lane
            self._deliver([event])

    def _steer(self, frame: SteerFrame) -> None:
        turn = self._turns.get(frame.previous_response_id)
        ended = None if turn is not None else self.gateway.chains.get(frame.previous_response_id, self.principal.id)
        self.steers.take(frame, turn, ended is not None)

    def _deliver(self, events: list[ev.Event]) -> None:
        self._ready += events
        self._news.set()

    def _spawn(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _on(error: BadRequest, lane: str | None) -> BadRequest:
    error.stream_id = lane
    return error

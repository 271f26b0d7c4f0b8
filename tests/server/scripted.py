"""A gateway that says what a test wrote down: batches of events, with pauses, and what it was asked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import msgspec

from vivace.protocol import events as ev
from vivace.protocol.contracts import Final, ModelCard, Principal, StopReason
from vivace.protocol.errors import BadRequest, Refused, error_frame
from vivace.protocol.items import (
    FunctionCall,
    IncompleteDetails,
    InputTokensDetails,
    Item,
    Message,
    OutputText,
    OutputTokensDetails,
    Response,
    ResponseError,
    Usage,
    items_of,
    new_id,
)
from vivace.protocol.requests import CancelFrame, ClientFrame, CreateFrame, OtherFrame, ResponseRequest

USAGE = Usage(20, InputTokensDetails(8, 4), 12, OutputTokensDetails(3, 5, 1), 32)
Batches = AsyncIterator[list[ev.Event]]
Play = Callable[["Answer"], Batches]


class Answer:
    """The events of one response, numbered."""

    def __init__(self, request: ResponseRequest) -> None:
        self.request = request
        self.lane = request.stream_id
        self.response = Response(new_id("resp"), request.model, 1_796_000_000.0, service_tier=request.service_tier)
        self._number = -1

    def number(self) -> int:
        self._number += 1
        return self._number

    def begin(self) -> list[ev.Event]:
        return [
            ev.Created(self.number(), self._now(), stream_id=self.lane),
            ev.InProgress(self.number(), self._now(), stream_id=self.lane),
        ]

    def message(self, pieces: Iterable[str]) -> list[ev.Event]:
        index, id, pieces = len(self.response.output), new_id("msg"), list(pieces)
        text = "".join(pieces)
        item = Message("assistant", [OutputText(text)], id, "completed", "final_answer")
        self.response.output.append(item)
        lane = self.lane
        return [
            ev.ItemAdded(self.number(), index, Message("assistant", [], id, "in_progress"), stream_id=lane),
            ev.PartAdded(self.number(), id, index, 0, OutputText(""), stream_id=lane),
            *(ev.TextDelta(self.number(), id, index, 0, piece, stream_id=lane) for piece in pieces),
            ev.TextDone(self.number(), id, index, 0, text, stream_id=lane),
            ev.PartDone(self.number(), id, index, 0, OutputText(text), stream_id=lane),
            ev.ItemDone(self.number(), index, item, stream_id=lane),
        ]

    def call(self, name: str, pieces: Iterable[str]) -> list[ev.Event]:
        index, id, pieces = len(self.response.output), new_id("fc"), list(pieces)
        item = FunctionCall(new_id("call"), name, "".join(pieces), None, id, "completed")
        self.response.output.append(item)
        opened = msgspec.structs.replace(item, arguments="", status="in_progress")
        return [
            ev.ItemAdded(self.number(), index, opened),
            *(ev.ArgumentsDelta(self.number(), id, index, piece) for piece in pieces),
            ev.ArgumentsDone(self.number(), id, index, item.arguments, name),
            ev.ItemDone(self.number(), index, item),
        ]

    def completed(self) -> list[ev.Event]:
        self.response.status, self.response.usage = "completed", USAGE
        return [ev.Completed(self.number(), self._now(), stream_id=self.lane)]

    def incomplete(self, reason: str) -> list[ev.Event]:
        self.response.status, self.response.usage = "incomplete", USAGE
        self.response.incomplete_details = IncompleteDetails(reason)
        return [ev.Incomplete(self.number(), self._now(), stream_id=self.lane)]

    def failed(self, code: str, message: str) -> list[ev.Event]:
        self.response.status, self.response.error = "failed", ResponseError(code, message)
        return [ev.Failed(self.number(), self._now(), stream_id=self.lane)]

    def _now(self) -> Response:
        return msgspec.structs.replace(self.response, output=list(self.response.output))


async def hello(answer: Answer) -> Batches:
    """One message, in two batches."""
    yield answer.begin()
    yield [*answer.message(["Hel", "lo"]), *answer.completed()]


async def endless(answer: Answer) -> Batches:
    """A delta every millisecond, until stopped."""
    yield answer.begin()
    opening = answer.message([])[:2]
    yield opening
    item = opening[0].item.id  # type: ignore[union-attr]
    while True:
        yield [ev.TextDelta(answer.number(), item, 0, 0, "x", stream_id=answer.lane)]
        await asyncio.sleep(0.001)


async def silent(answer: Answer) -> Batches:
    """Begins, and says nothing more."""
    yield answer.begin()
    await asyncio.Event().wait()


class ScriptedStream:
    """See :class:`vivace.protocol.contracts.Stream`."""

    def __init__(self, gateway: ScriptedGateway, answer: Answer, deliver: Callable[[list[ev.Event]], None]) -> None:
        self.response_id = answer.response.id
        self.headers = {"x-ratelimit-limit-requests": "9"}
        self.answer = answer
        self._gateway = gateway
        self._deliver = deliver
        self._events: list[ev.Event] = []
        self._news = asyncio.Event()
        self._task = asyncio.create_task(self._play(gateway.play(answer)))

    async def _play(self, batches: Batches) -> None:
        async for events in batches:
            self.put(events)

    def put(self, events: list[ev.Event]) -> None:
        self._events += events
        self._deliver(events)
        self._news.set()

    async def ready(self) -> list[ev.Event]:
        while not self._events and not self._task.done():
            self._news.clear()
            waiting = asyncio.ensure_future(self._news.wait())
            await asyncio.wait((waiting, self._task), return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
        events, self._events = self._events, []
        return events

    async def __aiter__(self) -> AsyncIterator[ev.Event]:
        while events := await self.ready():
            for event in events:
                yield event

    async def stop(self, reason: StopReason) -> Final:
        if not self._task.done():
            self._gateway.stopped.append((reason, time.monotonic()))
            self._task.cancel()
            self.put(self.answer.incomplete("stopped"))
        return Final("cancelled", Usage())


class ScriptedLine:
    """See :class:`vivace.protocol.contracts.Line`; every response runs at once."""

    def __init__(self, gateway: ScriptedGateway) -> None:
        self._gateway = gateway
        self._streams: list[ScriptedStream] = []
        self._events: list[ev.Event] = []
        self._news = asyncio.Event()
        self.closed = False

    def submit(self, frame: ClientFrame) -> None:
        self._gateway.frames.append(frame)
        match frame:
            case CreateFrame():
                self._streams.append(ScriptedStream(self._gateway, Answer(frame), self._put))
            case CancelFrame():
                for stream in self._streams:
                    if stream.response_id == frame.response_id:
                        self._gateway.keep(asyncio.ensure_future(stream.stop("cancelled")))
            case OtherFrame():
                error = BadRequest(f"Unknown event type '{frame.type}'.", "type", "unknown_event")
                error.stream_id = frame.stream_id
                self.refuse(error)
            case _:
                raise AssertionError(frame)

    def refuse(self, error: BadRequest) -> None:
        self._put([error_frame(str(error), error.status, error.code, error.param, stream_id=error.stream_id)])

    async def ready(self) -> list[ev.Event]:
        while not self._events and not self.closed:
            self._news.clear()
            await self._news.wait()
        events, self._events = self._events, []
        return events

    async def close(self) -> None:
        self.closed = True
        self._news.set()
        for stream in self._streams:
            await stream.stop("disconnect")

    @property
    def waiting(self) -> int:
        """Events that nobody has taken yet."""
        return len(self._events)

    def _put(self, events: list[ev.Event]) -> None:
        self._events += events
        self._news.set()


class ScriptedGateway:
    """See :class:`vivace.protocol.contracts.Gateway`. ``refusal`` is raised by every request."""

    def __init__(self, play: Play = hello, refusal: Exception | None = None) -> None:
        self.play = play
        self.refusal = refusal
        self.requests: list[ResponseRequest] = []
        self.principals: list[Principal] = []
        self.frames: list[ClientFrame] = []
        self.lines: list[ScriptedLine] = []
        self.streams: list[ScriptedStream] = []
        self.stopped: list[tuple[StopReason, float]] = []
        self.cards = [ModelCard("small", 4096, "chat", True), ModelCard("big/one", 131_072, "chat", True, tools=True)]
        self._tasks: set[asyncio.Future[Any]] = set()
        self.busy = False

    def keep(self, task: asyncio.Future[Any]) -> None:
        self._tasks.add(task)

    async def open(self, model: str) -> ModelCard:
        return self.cards[0]

    async def models(self, principal: Principal) -> list[ModelCard]:
        return self.cards

    async def input_tokens(self, request: ResponseRequest, principal: Principal | None = None) -> int:
        self.requests.append(request)
        return 7

    def start(self, request: ResponseRequest, principal: Principal) -> ScriptedStream:
        return ScriptedStream(self, Answer(request), lambda events: None)

    async def respond(self, request: ResponseRequest, principal: Principal) -> ScriptedStream:
        self.requests.append(request)
        self.principals.append(principal)
        if self.refusal is not None:
            raise self.refusal
        stream = self.start(request, principal)
        self.streams.append(stream)
        return stream

    def connect(self, principal: Principal) -> ScriptedLine:
        self.principals.append(principal)
        line = ScriptedLine(self)
        self.lines.append(line)
        return line

    async def retrieve(self, response_id: str, principal: Principal) -> Response:
        return self._found(response_id).answer.response

    async def resume(self, response_id: str, principal: Principal, after: int = -1) -> ScriptedStream:
        answer = Answer(self._found(response_id).answer.request)
        stream = self.start(answer.request, principal)
        stream.headers = {"x-after": str(after)}
        return stream

    async def delete(self, response_id: str, principal: Principal) -> None:
        self.streams.remove(self._found(response_id))

    async def cancel(self, response_id: str, principal: Principal) -> Response:
        await self._found(response_id).stop("cancelled")
        return self._found(response_id).answer.response

    async def input_items(self, response_id: str, principal: Principal) -> list[Item]:
        request = self._found(response_id).answer.request
        return items_of(request.input) if isinstance(request.input, str) else request.input

    async def compact(self, request: ResponseRequest, principal: Principal) -> tuple[list[Item], Usage]:
        return [Message("user", "kept", "msg_kept")], USAGE

    def overview(self, principal: Principal) -> dict[str, Any]:
        return {"running": [], "queue": {}, "meters": {}, "ledger": {"requests": len(self.requests)}}

    async def drain(self, seconds: float) -> None:
        pass

    async def close(self) -> None:
        for stream in self.streams:
            await stream.stop("cancelled")

    def _found(self, response_id: str) -> ScriptedStream:
        for stream in self.streams:
            if stream.response_id == response_id:
                return stream
        raise Refused(f"Response with id '{response_id}' not found.", 404, "response_not_found")

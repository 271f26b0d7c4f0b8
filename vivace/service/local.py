"""The Service in this process: catalogue models, each on its own backend.

The final object of a response is built from the very items that were streamed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Literal

import msgspec

from vivace.backends.base import Backend, End, EndReason, Job, Run, Text, Watch
from vivace.backends.local import LocalBackend
from vivace.errors import VivaceError
from vivace.models.catalogue import ModelInfo, find_model
from vivace.models.store import is_present, model_path
from vivace.protocol import events as ev
from vivace.protocol.contracts import Final, ModelCard, Principal, StopReason
from vivace.protocol.items import (
    IncompleteDetails,
    IncompleteReason,
    Item,
    ItemStatus,
    Message,
    OutputText,
    Response,
    ResponseError,
    Usage,
    new_id,
)
from vivace.protocol.requests import ResponseRequest
from vivace.settings import Settings

Pull = Callable[[ModelInfo, Settings], None]

_STATUS: dict[EndReason, Literal["completed", "incomplete", "failed", "cancelled"]] = {
    "stop": "completed",
    "length": "incomplete",
    "time": "incomplete",
    "aborted": "cancelled",
    "error": "failed",
}


class LocalService:
    """Answers with the models of the catalogue.

    ``watch`` is told what loading does. ``pull`` fetches a model whose file is not here; without it such a model is
    refused.
    """

    def __init__(self, settings: Settings, watch: Watch = lambda stage, share: None, pull: Pull | None = None) -> None:
        self.settings = settings
        self.watch = watch
        self.pull = pull
        self._backends: dict[str, Backend] = {}
        self._cards: dict[str, ModelCard] = {}
        self._opening = asyncio.Lock()

    async def open(self, model: str) -> ModelCard:
        async with self._opening:
            if model not in self._backends:
                info = find_model(model, self.settings)
                if self.pull is not None and not is_present(info, self.settings):
                    await asyncio.to_thread(self.pull, info, self.settings)
                self._backends[model] = LocalBackend(info, model_path(info, self.settings), self.settings)
            # Asked each time: an engine that crashed is started again here.
            self._cards[model] = await self._backends[model].open(self.watch)
            return self._cards[model]

    async def input_tokens(self, request: ResponseRequest) -> int:
        await self.open(request.model)
        return await self._backends[request.model].count(job_of(request))

    def start(self, request: ResponseRequest, principal: Principal) -> TextGeneration:
        return TextGeneration(self, request)

    async def close(self) -> None:
        await asyncio.gather(*(backend.close() for backend in self._backends.values()))

    async def run(self, request: ResponseRequest) -> Run:
        """The backend's run for a request, its model opened first."""
        await self.open(request.model)
        return self._backends[request.model].start(job_of(request))


class TextGeneration:
    """One response with one message; see :class:`vivace.protocol.contracts.Generation`."""

    def __init__(self, service: LocalService, request: ResponseRequest) -> None:
        self._response = Response(
            id=new_id("resp"),
            model=request.model,
            created_at=time.time(),
            instructions=request.instructions,
            max_output_tokens=request.max_output_tokens,
            temperature=request.temperature,
            top_p=request.top_p,
        )
        self._number = 0
        self._starting = asyncio.ensure_future(service.run(request))

    async def __aiter__(self) -> AsyncIterator[ev.Event]:
        yield ev.Created(self._next(), self._snapshot())
        yield ev.InProgress(self._next(), self._snapshot())
        try:
            run = await asyncio.shield(self._starting)
        except asyncio.CancelledError:
            if not self._starting.cancelled():
                raise
            yield self._incomplete("stopped")
            return
        except VivaceError as error:
            yield self._failed(str(error), error.code)
            return
        message = Message("assistant", [], new_id("msg"), "in_progress")
        item = message.id or ""
        yield ev.ItemAdded(self._next(), 0, message)
        yield ev.PartAdded(self._next(), item, 0, 0, OutputText(""))
        pieces: list[str] = []
        async for piece in run:
            if isinstance(piece, End):
                for event in self._closing(piece, item, "".join(pieces)):
                    yield event
                return
            if isinstance(piece, Text):
                pieces.append(piece.text)
                yield ev.TextDelta(self._next(), item, 0, 0, piece.text)

    async def stop(self, reason: StopReason) -> Final:
        if not self._starting.done():
            self._starting.cancel()
        try:
            run = await asyncio.shield(self._starting)
        except asyncio.CancelledError:
            if not self._starting.cancelled():
                raise
            return Final("cancelled", Usage())
        except VivaceError:
            return Final("failed", Usage())
        end = await run.stop()
        return Final(_STATUS[end.reason], end.usage, end.continuation)

    def _closing(self, end: End, item: str, text: str) -> list[ev.Event]:
        status: ItemStatus = "completed" if end.reason == "stop" else "incomplete"
        message = Message("assistant", [OutputText(text)], item, status)
        self._response.usage = end.usage
        self._response.completed_at = time.time()
        self._response.output = [message]
        closing: list[ev.Event] = [
            ev.TextDone(self._next(), item, 0, 0, text),
            ev.PartDone(self._next(), item, 0, 0, OutputText(text)),
            ev.ItemDone(self._next(), 0, message),
        ]
        match end.reason:
            case "stop":
                self._response.status = "completed"
                closing.append(ev.Completed(self._next(), self._snapshot()))
            case "error":
                closing.append(self._failed(end.message, "server_error"))
            case "length":
                closing.append(self._incomplete("max_output_tokens"))
            case "time":
                closing.append(self._incomplete("max_time"))
            case "aborted":
                closing.append(self._incomplete("stopped"))
        return closing

    def _incomplete(self, reason: IncompleteReason) -> ev.Incomplete:
        self._response.status = "incomplete"
        self._response.incomplete_details = IncompleteDetails(reason)
        return ev.Incomplete(self._next(), self._snapshot())

    def _failed(self, message: str, code: str) -> ev.Failed:
        self._response.status = "failed"
        self._response.error = ResponseError(code, message)
        return ev.Failed(self._next(), self._snapshot())

    def _snapshot(self) -> Response:
        """The response as it is now: an event keeps what was true when it was made."""
        return msgspec.structs.replace(self._response)

    def _next(self) -> int:
        self._number += 1
        return self._number - 1


def job_of(request: ResponseRequest) -> Job:
    """A request as a backend takes it."""
    return Job(request=request, items=messages_of(request))


def messages_of(request: ResponseRequest) -> list[Item]:
    """The conversation of a request: instructions first, then its input."""
    messages: list[Item] = [Message("system", request.instructions)] if request.instructions else []
    if isinstance(request.input, str):
        return [*messages, Message("user", request.input)]
    return [*messages, *request.input]

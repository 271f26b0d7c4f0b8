"""One response from its first event to its last: wait for a slot, answer, settle.

``created`` -> (``queued``) -> ``in_progress`` -> items -> ``completed | incomplete | failed``. Nothing here depends on
the connection: whoever reads may be a socket, an HTTP answer, or nobody yet.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, cast

import msgspec

from vivace.backends.base import CallEnd, CallStart, End, Job, Run
from vivace.errors import VivaceError
from vivace.protocol import events as ev
from vivace.protocol import items as it
from vivace.protocol.contracts import Final, StopReason
from vivace.protocol.items import Response, new_id
from vivace.protocol.requests import written_tools
from vivace.protocol.usage import Usage
from vivace.service.asking import Asked, continued, continues
from vivace.service.chains import Prefill
from vivace.service.composer import Composer
from vivace.service.queue import Ticket
from vivace.service.reading import after_compaction, read_items
from vivace.service.response_object import added, concluded, response_of
from vivace.service.sealing import Sealer
from vivace.service.summarising import asking_for_summary, over_threshold, summary_of
from vivace.service.truncating import Fitting, truncated

log = logging.getLogger(__name__)

Deliver = Callable[[list[ev.Event]], None]
Settle = Callable[["Turn", End], Awaitable[None]]
"""Told the end of a turn before its last event goes out; what it gives is waited for."""


class Turn:
    """See :class:`vivace.protocol.contracts.Stream`.

    With ``deliver`` events go there as they come, otherwise they wait for :meth:`ready`. A turn that only prepares ends
    at once for its client, as Codex CLI holds its first request back until then; ``prefilled`` is told when the prompt
    has been read, or will not be.
    """

    def __init__(
        self,
        asked: Asked,
        ticket: Ticket,
        sealer: Sealer,
        settled: Settle,
        prefilled: Settle,
        deliver: Deliver | None = None,
    ) -> None:
        request = asked.request
        self.asked = asked
        self.ticket = ticket
        self.sealer = sealer
        self.settled = settled
        self.prefilled = prefilled
        self.deliver = deliver
        self.headers: dict[str, str] = {}
        self.response = response_of(asked)
        self.response.tools = cast(Any, written_tools(request.tools))  # it is only written, three times and more
        self.started = time.time()
        self.clock = time.monotonic()
        self.first_piece: float | None = None
        self.admitted_at: float | None = None
        self.characters = 0
        self.last_event = self.clock
        self.history: list[ev.Event] | None = [] if request.background else None
        self.ended = asyncio.Event()
        self.steered = False
        self.stopped: StopReason | None = None
        self.prefill = Prefill(ticket.release) if asked.job.prefill_only else None
        self.final = Final("cancelled", Usage())
        self._settling = False
        self._number = 0
        seals = "reasoning.encrypted_content" in (request.include or ())
        summary = request.reasoning.summary if request.reasoning is not None else None
        self._composer = Composer(
            asked.table,
            self.next_number,
            (lambda text: sealer.seal("reasoning", text)) if seals else None,
            summary not in (None, "none"),
        )
        self._lane = request.stream_id
        self._buffer: list[ev.Event] = []
        self._news = asyncio.Event()
        self._grown = asyncio.Event()
        self._run: Run | None = None
        self._halting: asyncio.Task[End] | None = None
        self._pause: asyncio.Task[object] | None = None
        self._task = asyncio.create_task(self._live())

    @property
    def response_id(self) -> str:
        return self.response.id

    @property
    def calls(self) -> list[it.FunctionCall | it.CustomToolCall]:
        """The tool calls of the answer, whose outputs the client has to send."""
        return [item for item in self.response.output if isinstance(item, it.FunctionCall | it.CustomToolCall)]

    @property
    def made(self) -> int | None:
        """Tokens made so far, where the backend counts while it runs."""
        made: int | None = getattr(self._run, "made", None)
        return made

    @property
    def over(self) -> bool:
        """It has ended, and nothing runs behind it."""
        return self._task.done()

    async def ready(self) -> list[ev.Event]:
        while not self._buffer:
            if self.ended.is_set():
                return []
            self._news.clear()
            await self._news.wait()
        events, self._buffer = self._buffer, []
        return events

    async def __aiter__(self) -> AsyncIterator[ev.Event]:
        while events := await self.ready():
            for event in events:
                yield event

    async def wait(self) -> Final:
        """Until it has ended, whoever reads its events."""
        await self.ended.wait()
        return self.final

    async def more_than(self, events: int) -> None:
        """Until a background response has more than so many events, or has ended."""
        while self.history is not None and len(self.history) <= events and not self.ended.is_set():
            self._grown.clear()
            await self._grown.wait()

    async def stop(self, reason: StopReason) -> Final:
        """See :meth:`vivace.protocol.contracts.Generation.stop`; what runs behind the answer ends too."""
        if not self._task.done():
            self.stopped = self.stopped or reason
            self._halt()
            await asyncio.wait((self._task,))
        return self.final

    def steer(self, preempt: bool) -> None:
        """End after the open item, at once where none is, or with ``preempt`` at the next token."""
        self.steered = True
        if not self._settling and (preempt or self._composer.between_items):
            self._halt()

    def keep_alive(self) -> None:
        """Say that the response still lives."""
        if not self.ended.is_set():
            self._emit([ev.Keepalive(sequence_number=self.next_number())])

    async def patiently(self, work: Coroutine[Any, Any, object]) -> bool:
        """Wait for something in a place where a stop need not; whether it came."""

        self._pause = asyncio.create_task(work)
        try:
            await asyncio.wait((self._pause,))
        except asyncio.CancelledError:
            self._pause.cancel()
            raise
        pause, self._pause = self._pause, None
        if pause.cancelled():
            return False
        pause.result()
        return True

    def snapshot(self) -> Response:
        """The response as it is now."""
        return msgspec.structs.replace(self.response, output=list(self._composer.output))

    def next_number(self) -> int:
        number = self._number
        self._number = number + 1
        return number

    async def _live(self) -> None:
        end = _never()
        try:
            self._emit([ev.Created(self.next_number(), self.snapshot())])
            if self.asked.job.prefill_only:
                self._emit([ev.InProgress(self.next_number(), self.snapshot())])
                end = End("stop", Usage())
            elif await self._admitted():
                self._emit([ev.InProgress(self.next_number(), self.snapshot())])
                end = await self._answer()
        except VivaceError as error:
            end = End("error", Usage(), str(error), code=_CODES.get(error.code, error.code))
        except Exception as error:
            log.exception("response %s broke", self.response.id)
            end = End("error", Usage(), f"The server broke: {type(error).__name__}. Its log says more.")
        try:
            await self._finish(end)
        finally:
            self.ended.set()
            self._news.set()
            self._grown.set()
            try:
                if self.prefill is not None:
                    await self._prefill(self.prefill)
            finally:
                self.ticket.release()

    async def _admitted(self) -> bool:
        """Wait for the backend and a slot of it; False when it was stopped or steered first."""
        opening = self.asked.served.opening
        if not self.ticket.admitted or opening is not None:
            self.response.status = "queued"
            self._emit([ev.Queued(self.next_number(), self.snapshot())])
            await self.ticket.wait()
            if opening is not None and self.ticket.admitted and not self._ends_early:
                await self.patiently(_shielded(opening))
            self.response.status = "in_progress"
        self.admitted_at = time.monotonic()
        return self.ticket.admitted and not self._ends_early

    async def _answer(self) -> End:
        asked, job = self.asked, await self._continued()
        if asked.compacts:
            return await self._compact(job)
        if not await over_threshold(job, asked.served.backend):
            return await self._fitted(job)
        spent = await self._compact(job)
        if spent.reason != "stop":
            return spent
        head = 1 if asked.request.instructions else 0
        summary = read_items(self._composer.output[-1:], self.sealer, lambda id: None)
        items = [*job.items[:head], *after_compaction(job.items[head:], summary, compacts=False)]
        end = await self._fitted(msgspec.structs.replace(job, items=items, continuation=None, known=0))
        return msgspec.structs.replace(end, usage=added(spent.usage, end.usage))

    async def _continued(self) -> Job:
        """The job, behind what is being prefilled for it: reading the same prompt twice would take longer."""
        asked, parent = self.asked, self.asked.parent
        if parent is None or parent.prefill is None or not continues(asked.job, parent, asked.served.backend_id):
            return asked.job
        if not parent.prefill.begun:
            parent.prefill.give_up()
            return asked.job
        await self.patiently(parent.prefill.over.wait())
        return continued(asked.job, parent, len(asked.read))

    async def _fitted(self, job: Job) -> End:
        """The answer, to as much of the conversation as fits where the request wants that."""
        if self.asked.request.truncation != "auto":
            return await self._stream(job)
        backend = self.asked.served.backend
        return await truncated(job, backend, self._stream, self.patiently, lambda: self.first_piece is not None)

    async def _stream(self, job: Job) -> End:
        """The loop of an answer: pieces in, events out, until it ends or is steered."""
        composer, beyond = self._composer, False
        run = self._begin(job)
        if run is None:
            return _never()
        async for piece in run:
            if isinstance(piece, End):
                return _cut(piece) if beyond else piece
            if self.steered and (beyond or composer.starts_item(piece)):
                if not beyond:
                    self._emit(composer.close(more=True))
                    self._halt()
                beyond = True
                continue
            if self.first_piece is None:
                self.first_piece = time.monotonic()
            if not isinstance(piece, CallStart | CallEnd):
                self.characters += len(piece.text)
            self._emit(composer.feed(piece))
        raise VivaceError("The backend's answer broke off.", code="server_error")

    async def _compact(self, job: Job) -> End:
        """Have the conversation summarised, behind the same prompt prefix, and emit the compaction."""
        asked, item_id = self.asked, new_id("cmp")
        if asked.request.truncation == "auto":
            fitting = Fitting(job, asked.served.backend)
            await self.patiently(fitting.first())
            job = fitting.fit or job
        run = self._begin(asking_for_summary(job))
        if run is None:
            return _never()
        self._emit(self._composer.compacting(item_id))
        end, summary = await summary_of(run)
        if end.reason == "stop":
            self._emit(self._composer.compacted(it.Compaction(self.sealer.seal("compaction", summary), item_id)))
        return end

    async def _prefill(self, prefill: Prefill) -> None:
        """Read the prompt behind an answer that the client has already."""
        end = _never()
        try:
            opening = self.asked.served.opening
            if opening is not None and not self._ends_early:
                await self.patiently(_shielded(opening))
            await self.ticket.wait()
            prefill.begun = self.ticket.admitted
            if prefill.begun and (run := self._begin(await self._continued())) is not None:
                async for piece in run:
                    if isinstance(piece, End):
                        end = piece
        except VivaceError as error:
            log.warning("prefill of %s failed: %s", self.response.id, error)
        except Exception:
            log.exception("prefill of %s broke", self.response.id)
        finally:
            try:
                await self.prefilled(self, end)
            except Exception:
                log.exception("prefill of %s was not settled", self.response.id)
            finally:
                prefill.over.set()

    async def _finish(self, end: End) -> None:
        """Close what is open, have it settled, and say how it ended: whatever breaks, a last event goes out."""
        response, self._settling = self.response, True
        try:
            self._emit(self._composer.close("completed" if end.reason == "stop" else "incomplete"))
        except Exception:
            log.exception("an item of %s could not be closed", response.id)
            end = End("error", end.usage, "The server broke. Its log says more.")
        response.output = self._composer.output
        self.final = concluded(response, end, self.stopped, steered=self.steered)
        if self._composer.broken:
            # The tokens hold a part of a call that no item tells of.
            end = msgspec.structs.replace(end, continuation=None)
        try:
            await self.settled(self, end)
        except Exception:
            log.exception("response %s was not settled", response.id)
        whole = self.snapshot()
        if response.status == "completed":
            self._emit([ev.Completed(self.next_number(), whole)])
        elif response.status == "failed":
            self._emit([ev.Failed(self.next_number(), whole)])
        else:
            self._emit([ev.Incomplete(self.next_number(), whole)])

    @property
    def _ends_early(self) -> bool:
        return self.stopped is not None or self.steered

    def _begin(self, job: Job) -> Run | None:
        """A run of the backend; None where nobody wants it any more."""
        if self._ends_early:
            return None
        self._run = self.asked.served.backend.start(job)
        return self._run

    def _halt(self) -> None:
        """End what it waits for, or its run. How that ended comes as the run's last piece."""
        if not self.ticket.admitted:
            self.ticket.release()
        if self._pause is not None:
            self._pause.cancel()
        if self._run is not None and (self._halting is None or self._halting.done()):
            self._halting = asyncio.ensure_future(self._run.stop())

    def _emit(self, events: list[ev.Event]) -> None:
        if not events:
            return
        self.last_event = time.monotonic()
        if self._lane is not None:
            for event in events:
                event.stream_id = self._lane
        if self.history is not None:
            self.history += events
            self._grown.set()
        if self.deliver is not None:
            self.deliver(events)
        else:
            self._buffer += events
            self._news.set()


_CODES = {"error": "server_error", "usage": "invalid_prompt"}
"""Our words as OpenAI's; Codex CLI gives up on the second and tries again after any that it does not know."""


def _never() -> End:
    """The end of what did not begin."""
    return End("aborted", Usage())


def _cut(end: End) -> End:
    """What was generated beyond the boundary of a steer is in the tokens and in no item."""
    reason = end.reason if end.reason == "error" else "aborted"
    return msgspec.structs.replace(end, reason=reason, continuation=None)


async def _shielded(opening: asyncio.Task[Any]) -> None:
    await asyncio.shield(opening)

"""One response from its first event to its last: wait for a slot, answer, settle.

``created`` -> (``queued``) -> ``in_progress`` -> items -> ``completed | incomplete | failed``. Nothing here depends on
the connection: whoever reads may be a socket, an HTTP answer, or nobody yet.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from vivace.backends.base import CallStart, End, Job, Run, Text
from vivace.errors import VivaceError
from vivace.protocol import events as ev
from vivace.protocol import items as it
from vivace.protocol.contracts import Final, StopReason
from vivace.protocol.items import Message, Response, new_id
from vivace.protocol.usage import Usage
from vivace.service.asking import Asked
from vivace.service.composer import Composer
from vivace.service.queue import Ticket
from vivace.service.reading import read_items
from vivace.service.sealing import Sealer

log = logging.getLogger(__name__)

Deliver = Callable[[list[ev.Event]], None]
Settle = Callable[["Turn", End], Awaitable[None] | None]
"""Told the end of a turn before its last event goes out; what it gives is waited for."""

SUMMARISE = (
    "Write a summary of this conversation for whoever continues the work without having seen it: the goal, decisions "
    "and constraints, files and names that matter with what was learned about each, what was done, what is still open. "
    "Be complete and brief. Write the summary only."
)
"""What a model is asked when a conversation is to be compacted."""


class Turn:
    """See :class:`vivace.protocol.contracts.Stream`.

    With ``deliver`` events go there as they come, otherwise they wait for :meth:`ready`. A turn that only prepares ends
    at once for its client, as Codex CLI holds its first request back until then; ``prefilled`` is told when the prompt
    has been read.
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
        self.started = time.time()
        self.clock = time.monotonic()
        self.first_piece: float | None = None
        self.admitted_at: float | None = None
        self.characters = 0
        self.last_event = self.clock
        self.history: list[ev.Event] | None = [] if request.background else None
        self.ended = asyncio.Event()
        self.steered = False
        self.final = Final("cancelled", Usage())
        self._number = 0
        seals = "reasoning.encrypted_content" in (request.include or ())
        self._composer = Composer(
            asked.table, self.next_number, (lambda text: sealer.seal("reasoning", text)) if seals else None
        )
        self._buffer: list[ev.Event] = []
        self._news = asyncio.Event()
        self._grown = asyncio.Event()
        self._run: Run | None = None
        self._stopped: StopReason | None = None
        self._halt: asyncio.Task[None] | None = None
        self._task = asyncio.create_task(self._live())

    @property
    def response_id(self) -> str:
        return self.response.id

    @property
    def calls(self) -> list[it.FunctionCall | it.CustomToolCall]:
        """The tool calls of the answer, whose outputs the client has to send."""
        return [item for item in self.response.output if isinstance(item, it.FunctionCall | it.CustomToolCall)]

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

    @property
    def disconnected(self) -> bool:
        """Whether its client went away before it ended."""
        return self._stopped == "disconnect"

    async def stop(self, reason: StopReason) -> Final:
        if self._stopped is None and not self._task.done():
            self._stopped = reason
            if not self.ticket.admitted:
                self.ticket.release()
            await self._halt_run()
        await self.ended.wait()
        return self.final

    def steer(self, preempt: bool) -> None:
        """End after the open item, or with ``preempt`` at the next token."""
        self.steered = True
        if preempt and self._halt is None:
            self._halt = asyncio.create_task(self._halt_run())

    def keep_alive(self) -> None:
        """Say that the response still lives."""
        self._emit([ev.Keepalive(sequence_number=self.next_number())])

    async def _live(self) -> None:
        end = End("aborted", Usage())
        try:
            self._emit([ev.Created(self.next_number(), self._snapshot())])
            if await self._admitted():
                self._emit([ev.InProgress(self.next_number(), self._snapshot())])
                end = await self._answer()
        except VivaceError as error:
            end = End("error", Usage(), str(error), code=error.code if error.code != "error" else "server_error")
        except Exception as error:
            log.exception("response %s broke", self.response.id)
            end = End("error", Usage(), f"The server broke: {type(error).__name__}. Its log says more.")
        try:
            await self._finish(end)
        finally:
            self.ended.set()
            self._news.set()
            self._grown.set()
            if self.asked.job.prefill_only and end.reason == "stop" and self._stopped is None:
                await self._prefill()
            self.ticket.release()

    async def _admitted(self) -> bool:
        """Wait for a slot; False when it was stopped first."""
        if not self.ticket.admitted:
            self.response.status = "queued"
            self._emit([ev.Queued(self.next_number(), self._snapshot())])
            await self.ticket.wait()
            self.response.status = "in_progress"
        self.admitted_at = time.monotonic()
        return self.ticket.admitted and self._stopped is None

    async def _answer(self) -> End:
        asked = self.asked
        if asked.job.prefill_only:
            return End("stop", Usage())
        job = asked.job
        if asked.compacts:
            return await self._compact(job)
        if self._over_threshold():
            spent = await self._compact(job)
            if spent.reason != "stop":
                return spent
            job = msgspec.structs.replace(job, items=self._compacted(job), continuation=None, known=0)
            end = await self._stream(job)
            return msgspec.structs.replace(end, usage=added(spent.usage, end.usage))
        return await self._stream(job)

    async def _stream(self, job: Job) -> End:
        """The loop of an answer: pieces in, events out, until it ends or is steered."""
        run = await self._begin(job)
        async for piece in run:
            if isinstance(piece, End):
                return piece
            if self.first_piece is None:
                self.first_piece = time.monotonic()
            if self.steered and self._halt is None and self._composer.starts_item(piece):
                await run.stop()
                # What was generated beyond the boundary is in the tokens and in no item.
                end = [last async for last in run if isinstance(last, End)][-1]
                return msgspec.structs.replace(end, continuation=None)
            if not isinstance(piece, CallStart) and hasattr(piece, "text"):
                self.characters += len(piece.text)
            self._emit(self._composer.feed(piece))
        raise VivaceError("The backend's answer broke off.", code="server_error")

    async def _begin(self, job: Job) -> Run:
        run = self.asked.served.backend.start(job)
        self._run = run
        if self._stopped is not None:
            await run.stop()
        return run

    async def _compact(self, job: Job) -> End:
        """Have the conversation summarised, behind the same prompt prefix, and emit the compaction."""
        asked = self.asked
        item_id = new_id("cmp")
        index = len(self._composer.output)
        added_item = it.Compaction("", item_id)
        self._emit(
            [ev.ItemAdded(self.next_number(), index, added_item), ev.Compacting(self.next_number(), item_id, index)]
        )
        request = msgspec.structs.replace(
            asked.request, prediction=None, text=None, tool_choice="none", max_output_tokens=None
        )
        table = msgspec.structs.replace(asked.table, mode="none", allowed=())
        ask = msgspec.structs.replace(job, request=request, tools=table, items=[*job.items, Message("user", SUMMARISE)])
        parts: list[str] = []
        run = await self._begin(ask)
        async for piece in run:
            if isinstance(piece, Text):
                parts.append(piece.text)
            if not isinstance(piece, End):
                continue
            if piece.reason == "stop":
                item = it.Compaction(self.sealer.seal("compaction", "".join(parts).strip()), item_id)
                self._composer.output.append(item)
                self._emit([ev.ItemDone(self.next_number(), index, item)])
            return msgspec.structs.replace(piece, continuation=None)
        raise VivaceError("The backend's answer broke off.", code="server_error")

    async def _prefill(self) -> None:
        """Read the prompt behind an answer that the client has already."""
        end = End("aborted", Usage())
        try:
            async for piece in await self._begin(self.asked.job):
                if isinstance(piece, End):
                    end = piece
        except VivaceError as error:
            log.warning("prefill of %s failed: %s", self.response.id, error)
        await (self.prefilled(self, end) or _nothing())

    def _over_threshold(self) -> bool:
        parent, rules = self.asked.parent, self.asked.request.context_management or []
        limit = min((rule.compact_threshold or 0 for rule in rules if rule.type == "compaction"), default=0)
        return bool(limit and parent is not None and parent.tokens >= limit)

    def _compacted(self, job: Job) -> list[it.Item]:
        """What a model reads after a compaction inside the response: the instructions, the summary, what is new."""
        head = [job.items[0]] if self.asked.request.instructions else []
        return [*head, *read_items(self._composer.output[-1:], self.sealer, lambda id: None), *self.asked.read]

    async def _finish(self, end: End) -> None:
        response = self.response
        halted = end.reason == "aborted"
        self._emit(self._composer.close("incomplete" if end.reason != "stop" else "completed"))
        response.output = self._composer.output
        response.usage = end.usage
        response.completed_at = time.time()
        match end.reason:
            case "stop":
                response.status = "completed"
            case "error":
                response.status = "failed"
                response.error = it.ResponseError(end.code, end.message)
            case _:
                reason = {"length": "max_output_tokens", "time": "max_time"}.get(end.reason, "stopped")
                response.status = "cancelled" if self._stopped == "cancelled" else "incomplete"
                steered = halted and self.steered and self._stopped is None
                response.incomplete_details = it.IncompleteDetails("steered" if steered else reason)
        status = "cancelled" if halted and self._stopped is not None else response.status
        self.final = Final(status if status in ("completed", "incomplete", "failed") else "cancelled", end.usage)
        await (self.settled(self, end) or _nothing())
        whole = self._snapshot()
        if response.status == "completed":
            self._emit([ev.Completed(self.next_number(), whole)])
        elif response.status == "failed":
            self._emit([ev.Failed(self.next_number(), whole)])
        else:
            self._emit([ev.Incomplete(self.next_number(), whole)])

    async def _halt_run(self) -> None:
        if self._run is not None:
            await self._run.stop()

    def _emit(self, events: list[ev.Event]) -> None:
        if not events:
            return
        self.last_event = time.monotonic()
        lane = self.asked.request.stream_id
        if lane is not None:
            for event in events:
                event.stream_id = lane
        if self.history is not None:
            self.history += events
            self._grown.set()
        if self.deliver is not None:
            self.deliver(events)
        else:
            self._buffer += events
            self._news.set()

    def _snapshot(self) -> Response:
        """The response as it is now: an event keeps what was true when it was made."""
        return msgspec.structs.replace(self.response, output=list(self.response.output))

    def next_number(self) -> int:
        self._number += 1
        return self._number - 1


async def _nothing() -> None:
    pass


def response_of(asked: Asked) -> Response:
    """The object of a response that begins, with what the request said and the tier that serves."""
    request = asked.request
    parent = asked.parent if asked.chained else None
    return Response(
        id=new_id("resp"),
        model=request.model,
        created_at=time.time(),
        instructions=request.instructions,
        previous_response_id=parent.id if parent is not None else None,
        max_output_tokens=request.max_output_tokens,
        temperature=request.temperature,
        top_p=request.top_p,
        parallel_tool_calls=request.parallel_tool_calls is not False,
        tool_choice=request.tool_choice or "auto",
        tools=request.tools or [],
        background=request.background or False,
        max_tool_calls=request.max_tool_calls,
        metadata=request.metadata or {},
        prompt_cache_key=request.prompt_cache_key,
        reasoning=request.reasoning,
        safety_identifier=request.safety_identifier,
        service_tier=asked.tier.id,
        store=request.store is not False,
        text=request.text,
        truncation=request.truncation or "disabled",
        user=request.user,
    )


def added(one: Usage, other: Usage) -> Usage:
    """The tokens of two runs that made one response."""
    total = msgspec.convert(msgspec.to_builtins(one), Usage)
    total.input_tokens += other.input_tokens
    total.output_tokens += other.output_tokens
    total.total_tokens += other.total_tokens
    total.input_tokens_details.cached_tokens += other.input_tokens_details.cached_tokens
    total.input_tokens_details.cache_write_tokens += other.input_tokens_details.cache_write_tokens
    details = total.output_tokens_details
    details.reasoning_tokens += other.output_tokens_details.reasoning_tokens
    details.accepted_prediction_tokens += other.output_tokens_details.accepted_prediction_tokens
    details.rejected_prediction_tokens += other.output_tokens_details.rejected_prediction_tokens
    return total

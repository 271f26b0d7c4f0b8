"""One answer of an upstream server: asked, asked again where that helps, read, and stopped."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import msgspec

from vivace.backends.base import CallText, End, Job, Piece, Reasoning, Text
from vivace.backends.faults import Fault, backoff, fault_of
from vivace.backends.http import Answer
from vivace.backends.replicas import Replica
from vivace.backends.sse import SseReader
from vivace.backends.upstream_chat import ChatStream
from vivace.backends.upstream_completions import PATH as COMPLETIONS_PATH
from vivace.backends.upstream_completions import CompletionStream, no_route
from vivace.backends.upstream_responses import PATH as RESPONSES_PATH
from vivace.backends.upstream_responses import ResponsesStream
from vivace.backends.upstream_usage import Tally
from vivace.protocol.items import Usage, item_text

if TYPE_CHECKING:
    from vivace.backends.upstream import UpstreamBackend

_PREFIX_ITEMS, _PREFIX_CHARS = 4, 4096
_REFUSAL_BYTES = 65536

Stream = ChatStream | ResponsesStream | CompletionStream
_READERS: dict[str, type[Stream]] = {RESPONSES_PATH: ResponsesStream, COMPLETIONS_PATH: CompletionStream}
"""What reads the answers of a route; the others are Chat Completions."""


class UpstreamRun:
    """One answer of an upstream server. It is read whether or not somebody listens; :meth:`stop` closes the connection,
    by which the server knows that nobody wants the rest."""

    def __init__(self, backend: UpstreamBackend, job: Job) -> None:
        self._backend = backend
        self._job = job
        self._key = affinity(job)
        self._tally = Tally(job)
        self._asked = False
        self._begun = False
        self._pieces: list[Piece] = []
        self._news = asyncio.Event()
        self._ended: asyncio.Future[End] = asyncio.get_running_loop().create_future()
        backend.runs.add(self)
        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(self._done)

    async def __aiter__(self) -> AsyncIterator[Piece]:
        while True:
            await self._news.wait()
            self._news.clear()
            pieces, self._pieces = self._pieces, []
            for piece in pieces:
                yield piece
                if isinstance(piece, End):
                    return

    async def stop(self) -> End:
        if not self._task.done():
            self._task.cancel()
        return await asyncio.shield(self._ended)

    def _done(self, task: asyncio.Task[None]) -> None:
        """What did not come to its end by itself ends here."""
        if self._ended.done():
            return
        if task.cancelled():
            self._end(End("aborted", self._usage()))
        else:
            logging.getLogger(__name__).error("an upstream's answer failed", exc_info=task.exception())
            self._end(End("error", self._usage(), f"The answer of {self._backend.upstream.name} could not be read."))

    def _end(self, end: End) -> None:
        self._backend.runs.discard(self)
        self._push([end])
        self._ended.set_result(end)

    def _push(self, pieces: list[Piece]) -> None:
        self._pieces += pieces
        self._news.set()

    def _usage(self) -> Usage:
        """What was used so far, estimated: a server counts at the end."""
        return self._tally.estimate() if self._asked else Usage()

    async def _run(self) -> None:
        try:
            async with asyncio.timeout(self._job.request.max_seconds):
                end = await self._answer()
        except TimeoutError:
            end = End("time", self._usage())
        except Fault as fault:
            end = End("error", self._usage(), str(fault), code=fault.code, retry_after=fault.retry_after)
        # At once, so that it reaches the reader together with the last text, where one read brought both.
        self._end(end)

    async def _answer(self) -> End:
        """Ask until a first piece has come: others at once, the same again after a pause. Raises :class:`Fault`."""
        tried: set[str] = set()
        failures = 0
        while True:
            try:
                return await self._once(tried)
            except Fault as fault:
                if self._begun:
                    raise
                if self._backend.learn(fault, self._job):
                    tried.clear()
                    continue
                if not fault.again:
                    raise
                if self._backend.replicas.elsewhere(tried):
                    continue
                wait = backoff(failures, fault.retry_after)
                failures += 1
                if failures > self._backend.upstream.retries or wait > self._backend.upstream.longest_wait:
                    raise
                tried.clear()
            await asyncio.sleep(wait)

    async def _once(self, tried: set[str]) -> End:
        health = self._backend.replicas.choose(self._key, tried)
        tried.add(health.replica.base_url)
        try:
            with health.job():
                end = await self._attempt(health.replica)
        except Fault as fault:
            if fault.retry_after and fault.again:
                health.busy(fault.retry_after, fault.message)
            if fault.down:
                health.failed(fault.message)
            raise
        health.succeeded()
        return end

    async def _attempt(self, replica: Replica) -> End:
        """One request, read to its end."""
        await self._backend.prepare(self._job, replica)
        path, body = self._backend.request(self._job)
        url = replica.base_url.rstrip("/") + path
        stream = _READERS.get(path, ChatStream)(self._job, replica.base_url, self._backend.upstream.dialect)
        self._tally = stream.tally
        reader = SseReader()
        headers = {"content-type": "application/json", "accept": "text/event-stream", **replica.headers()}
        encoded = msgspec.json.encode(body)
        with await self._backend.http.ask("POST", url, headers, encoded, where=replica.base_url) as answer:
            if answer.status != 200:
                fault = await _refusal(answer, replica.base_url)
                raise no_route(fault, self._backend.upstream.name) if path == COMPLETIONS_PATH else fault
            if "json" in answer.headers.get("content-type", ""):
                raise Fault(f"{url} does not stream its answers.", status=502)
            self._asked = True
            while data := await answer.read():
                self._feed(stream, reader.feed(data))
                if stream.done:
                    await _read_out(answer)
                    break
        self._feed(stream, reader.finish())
        rest, end = stream.finish()
        self._say(rest)
        return end

    def _feed(self, stream: Stream, events: list[bytes]) -> None:
        """Pass on what events bring, up to one that is a fault."""
        pieces: list[Piece] = []
        try:
            for event in events:
                pieces += stream.feed(event)
        finally:
            if pieces:
                self._say(pieces)

    def _say(self, pieces: list[Piece]) -> None:
        """Pass on what one read brought, neighbours of one kind as one piece."""
        if self._job.prefill_only:
            return
        joined: list[Piece] = []
        for piece in pieces:
            last = joined[-1] if joined else None
            if type(piece) is type(last) and isinstance(piece, Text | Reasoning | CallText):
                joined[-1] = type(piece)(last.text + piece.text)  # type: ignore[union-attr]
            else:
                joined.append(piece)
        self._begun = self._begun or bool(joined)
        self._push(joined)


def affinity(job: Job) -> str:
    """What belongs together: as the service says, else how the conversation begins."""
    if job.affinity:
        return job.affinity
    begin = "\0".join(item_text(item)[:_PREFIX_CHARS] for item in job.items[:_PREFIX_ITEMS])
    if job.request.prompt is not None:
        begin = job.request.completed_text[:_PREFIX_CHARS]
    return hashlib.blake2b(begin.encode("utf-8", "replace"), digest_size=8).hexdigest()


async def _refusal(answer: Answer, where: str) -> Fault:
    """The fault that an answer other than 200 tells of; reads its body."""
    try:
        body = await answer.body(_REFUSAL_BYTES)
    except Fault:
        body = b""  # the status is known all the same
    return fault_of(answer.status, body, answer.headers, where)


async def _read_out(answer: Answer) -> None:
    """Read what follows the last event, usually nothing, so that the connection can be used again."""
    if answer.whole:
        return
    try:
        async with asyncio.timeout(0.2):
            while await answer.read():
                pass
    except (TimeoutError, Fault):
        pass  # the answer is whole; only the connection is lost

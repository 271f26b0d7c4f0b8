"""One answer of the engine: its tokens as pieces, and what is kept of it to go on from."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import msgspec
from msgspec import Struct

from vivace.backends.base import CallEnd, CallStart, CallText, End, EndReason, Piece, Reasoning, Text
from vivace.backends.memory import AnswerMemory
from vivace.backends.pieces import PieceSink, Told
from vivace.dialects.chat import ChatDialect, Given, Prompt
from vivace.dialects.families import Parser
from vivace.dialects.history import WrittenCall
from vivace.engine.messages import Finish, Start
from vivace.engine.process import EngineStream
from vivace.errors import VivaceError
from vivace.models.tokenizer import IncrementalDecoder, Tokenizer
from vivace.protocol.items import InputTokensDetails, OutputTokensDetails, Usage


class TokenTrail(Struct, frozen=True):
    """The continuation of a local answer: the exact token ids of prompt and output.

    ``place`` is the digest of the conversation up to the answer, ``tools`` that of the tools on offer. An answer that
    is not ``whole`` holds half a call, which is no part of its items, and its ids are not gone on from. ``reasoned``:
    there is reasoning among the tokens of this chain's answers.
    """

    tokens: list[int]
    place: bytes = b""
    tools: str = ""
    whole: bool = True
    reasoned: bool = False


class Answering(Struct):
    """What one run needs beside the engine's stream.

    ``shown`` are control tokens whose text reaches the parser; ``window`` is the model's. ``reasoned``: the prompt goes
    on from answers with reasoning.
    """

    dialect: ChatDialect
    prompt: Prompt
    memory: AnswerMemory
    tools: str
    sink: PieceSink
    parser: Parser | None
    shown: frozenset[int]
    window: int
    reasoned: bool = False


class EmptyRun:
    """A run that has nothing to do."""

    def __init__(self) -> None:
        self._end = End("stop", Usage())

    async def __aiter__(self) -> AsyncIterator[Piece]:
        yield self._end

    async def stop(self) -> End:
        return self._end


class LocalRun:
    """One answer of the engine. Without ``answering`` all of it is text."""

    def __init__(
        self,
        stream: EngineStream,
        start: Start,
        tokenizer: Tokenizer,
        stops: list[str],
        answering: Answering | None = None,
    ) -> None:
        self._stream = stream
        self._start = start
        self._answering = answering
        self._parser = answering.parser if answering else None
        shown = answering.shown if answering else frozenset()
        self._hidden = tokenizer.special_ids - shown if shown else frozenset()
        self._decoder = IncrementalDecoder(tokenizer, skip_special=not shown)
        self._stops = stops
        self._held = ""
        self._pieces: asyncio.Queue[Piece] = asyncio.Queue()
        self._output: list[int] = []
        self._said: list[str | WrittenCall] = []
        self._call: list[str] | None = None
        self._reasoning_tokens = 0
        # Read to the end whether or not somebody listens, so that stop() can wait for it.
        self._ended: asyncio.Task[End] = asyncio.create_task(self._pump())

    @property
    def made(self) -> int:
        """Tokens made so far."""
        return len(self._output)

    async def __aiter__(self) -> AsyncIterator[Piece]:
        while True:
            piece = await self._pieces.get()
            yield piece
            if isinstance(piece, End):
                return

    async def stop(self) -> End:
        if not self._ended.done():
            self._stream.abort()
        return await asyncio.shield(self._ended)

    async def _pump(self) -> End:
        try:
            end = await self._read()
        except VivaceError as error:
            end = End("error", Usage(), str(error))
        self._pieces.put_nowait(end)
        return end

    async def _read(self) -> End:
        async for progress in self._stream:
            self._output += progress.tokens
            finish = progress.finish
            if self._parser is None:
                if text := self._text(progress.tokens, finish):
                    self._said.append(text)
                    self._pieces.put_nowait(Text(text))
            else:
                self._parse(self._parser, progress.tokens, finish)
            if finish is not None:
                return self._end(finish)
        raise VivaceError("The engine's answer broke off.", code="engine")

    def _text(self, tokens: Sequence[int], finish: Finish | None) -> str:
        """The text that these tokens complete, as far as it can be no part of a stop text."""
        if self._hidden:
            tokens = [token for token in tokens if token not in self._hidden]
        text = self._held + self._decoder.feed(*tokens)
        if finish is None:
            keep = _could_be_a_stop(text, self._stops)
            self._held = text[len(text) - keep :]
            return text[: len(text) - keep]
        text += self._decoder.finish()
        places = [place for stop in self._stops if (place := text.find(stop)) >= 0]
        return text[: min(places)] if finish.trim and places else text

    def _parse(self, parser: Parser, tokens: Sequence[int], finish: Finish | None) -> None:
        """Tokens through the family's parser; one by one as long as they may be reasoning, which is counted."""
        at = 0
        while at < len(tokens) and parser.watched:
            before = parser.reasoning
            parser.feed(self._text(tokens[at : at + 1], None))
            self._reasoning_tokens += before or parser.reasoning
            at += 1
        if text := self._text(tokens[at:], finish):
            parser.feed(text)
        if finish is not None:
            parser.finish()
        assert self._answering is not None
        for piece in self._answering.sink.take():
            self._note(piece)
            self._pieces.put_nowait(piece)

    def _note(self, piece: Told) -> None:
        """Keep what was said, as a client will send it back."""
        match piece:
            case Text(text):
                self._said.append(text)
            case CallStart(name, call_id, raw):
                self._said.append(WrittenCall(name, "", raw, call_id))
                self._call = []
            case CallText(text) if self._call is not None:
                self._call.append(text)
            case CallEnd() if self._call is not None:
                last = self._said.pop()
                assert isinstance(last, WrittenCall)
                self._said.append(msgspec.structs.replace(last, text="".join(self._call)))
                self._call = None
            case Reasoning():
                pass

    def _end(self, finish: Finish) -> End:
        reason: EndReason = "length" if finish.reason == "window" else finish.reason
        usage = Usage(
            input_tokens=finish.prompt_tokens,
            input_tokens_details=InputTokensDetails(
                finish.cached_tokens, max(0, finish.prompt_tokens - finish.cached_tokens)
            ),
            output_tokens=finish.output_tokens,
            output_tokens_details=OutputTokensDetails(
                reasoning_tokens=self._reasoning_tokens,
                accepted_prediction_tokens=finish.accepted,
                rejected_prediction_tokens=finish.drafted - finish.accepted,
            ),
            total_tokens=finish.prompt_tokens + finish.output_tokens,
        )
        prompt = self._start.tokens
        window = self._answering.window if self._answering else 0
        too_long = reason == "error" and 0 < window <= len(prompt)
        return End(
            reason,
            usage,
            finish.message,
            self._trail(finish),
            code="context_length_exceeded" if too_long else "server_error",
        )

    def _trail(self, finish: Finish) -> TokenTrail:
        tokens = self._start.tokens + self._output
        answering = self._answering
        if answering is None:
            return TokenTrail(tokens)
        whole = self._call is None and not self._start.prefill_only
        place = answering.dialect.answered(answering.prompt, self._said)
        if whole and self._said and not finish.trim and finish.reason != "error":
            answering.memory.keep(place, Given(self._output, answering.prompt.opening))
        return TokenTrail(tokens, place, answering.tools, whole, answering.reasoned or self._reasoning_tokens > 0)


def _could_be_a_stop(text: str, stops: list[str]) -> int:
    """How many characters at the end of ``text`` may be the beginning of a stop text."""
    longest = max(map(len, stops), default=1) - 1
    return next((n for n in range(min(longest, len(text)), 0, -1) if any(s.startswith(text[-n:]) for s in stops)), 0)

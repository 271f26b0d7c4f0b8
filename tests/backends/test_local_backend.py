"""The embedded engine as a backend, with a real model behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from vivace.backends.base import End, Job, Run, Text
from vivace.backends.local import LocalBackend, TokenTrail
from vivace.dialects.tools import ToolTable
from vivace.errors import UsageError
from vivace.models.catalogue import find_model
from vivace.models.tokenizer import Tokenizer
from vivace.protocol.items import Item, Message
from vivace.protocol.requests import Prediction, ResponseRequest
from vivace.settings import Settings

pytestmark = pytest.mark.model

NAME = "smollm2-135m"
MESSAGES: list[Item] = [
    Message("system", "Answer briefly."),
    Message("user", "Write a Python function that adds two numbers."),
]
NO_TOOLS = ToolTable()


@asynccontextmanager
async def opened(model_file: Callable[[str], Path]) -> AsyncIterator[LocalBackend]:
    settings = Settings()
    backend = LocalBackend(find_model(NAME, settings), model_file(NAME), settings)
    await backend.open(lambda stage, share: None)
    try:
        yield backend
    finally:
        await backend.close()


def request(**values: object) -> ResponseRequest:
    return ResponseRequest(model=NAME, input=list(MESSAGES), **values)  # type: ignore[arg-type]


def job(items: Sequence[Item] = MESSAGES, tools: ToolTable = NO_TOOLS, **values: object) -> Job:
    return Job(request=request(**values), items=list(items), tools=tools)


async def whole(run: Run) -> tuple[str, End]:
    pieces = [piece async for piece in run]
    assert isinstance(pieces[-1], End) and all(isinstance(piece, Text) for piece in pieces[:-1])
    return "".join(piece.text for piece in pieces[:-1] if isinstance(piece, Text)), pieces[-1]


def test_text_usage_and_trail_are_the_engines_tokens(model_file: Callable[[str], Path]) -> None:
    tokenizer = Tokenizer.load(model_file(NAME), Settings())

    async def run() -> None:
        async with opened(model_file) as backend:
            text, end = await whole(backend.start(job(max_output_tokens=40)))
            trail, usage = end.continuation, end.usage
            assert isinstance(trail, TokenTrail) and end.reason == "length"
            assert usage.input_tokens == await backend.count(job())
            assert usage.output_tokens == 40 == len(trail.tokens) - usage.input_tokens
            assert usage.total_tokens == len(trail.tokens) and usage.input_tokens_details.cached_tokens == 0
            assert text == tokenizer.decode(trail.tokens[usage.input_tokens :], skip_special=True)

            again, end = await whole(backend.start(job(max_output_tokens=40, prediction=Prediction(text))))
            assert again == text and end.continuation == trail
            assert end.usage.output_tokens_details.accepted_prediction_tokens > 20
            assert usage.input_tokens - 32 <= end.usage.input_tokens_details.cached_tokens < usage.input_tokens

            longer, end = await whole(backend.start(job([*MESSAGES, Message("assistant", text), *MESSAGES[1:]])))
            assert longer and end.reason == "stop"
            assert end.usage.input_tokens_details.cached_tokens > usage.input_tokens

    asyncio.run(run())


def test_no_part_of_a_stop_text_is_told(model_file: Callable[[str], Path]) -> None:
    async def run() -> None:
        async with opened(model_file) as backend:
            text, _ = await whole(backend.start(job(max_output_tokens=40)))
            for at in range(3, len(text) - 8, 17):
                stop = text[at : at + 5]
                cut, end = await whole(backend.start(job(max_output_tokens=40, stop=["@@@", stop])))
                assert cut == text[: text.index(stop)] and end.reason == "stop"
            with pytest.raises(UsageError, match="stop"):
                backend.start(job(stop=["x", ""]))

    asyncio.run(run())


def test_stop_works_in_every_state(model_file: Callable[[str], Path]) -> None:
    async def run() -> None:
        async with opened(model_file) as backend:
            for pieces in (0, 1, 5):
                running = backend.start(job(max_output_tokens=4000))
                iterator = aiter(running)
                told = [await anext(iterator) for _ in range(pieces)]
                first, second = await asyncio.gather(running.stop(), running.stop())
                assert first is second and first.reason == "aborted"
                assert first.usage.output_tokens >= pieces
                assert isinstance(first.continuation, TokenTrail)
                assert len(first.continuation.tokens) == first.usage.total_tokens
                rest = [piece async for piece in running] if not pieces else [piece async for piece in iterator]
                assert rest[-1] is first and all(isinstance(piece, Text) for piece in told + rest[:-1])

            ended = backend.start(job(max_output_tokens=3))
            _, end = await whole(ended)
            assert await ended.stop() is end and end.reason == "length"

            # Nobody reads, somebody gives up waiting for the stop: it still ends.
            unread = backend.start(job(max_output_tokens=4000))
            impatient = asyncio.create_task(unread.stop())
            await asyncio.sleep(0)
            impatient.cancel()
            assert (await unread.stop()).reason == "aborted"
            assert (await backend.engine.report()).kv_blocks_held == 0

    asyncio.run(run())


def test_a_seed_repeats_an_answer(model_file: Callable[[str], Path]) -> None:
    async def run() -> None:
        async with opened(model_file) as backend:

            async def say(seed: int | None) -> str:
                return (await whole(backend.start(job(max_output_tokens=20, temperature=1.5, seed=seed))))[0]

            assert await say(7) == await say(7)
            assert len({await say(None) for _ in range(4)}) == 4

    asyncio.run(run())

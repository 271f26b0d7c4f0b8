"""One turn through a running server by each of its two ways, by OpenAI's own client."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from msgspec import Struct

PROMPT = "Write a function that adds two numbers, and nothing else."
LONGEST = 256
"""Tokens of the turn, at most."""


class Turn(Struct, frozen=True):
    """How one turn went. Times are seconds; ``fault`` says why it failed."""

    way: str
    ttft: float = 0.0
    tokens: int = 0
    seconds: float = 0.0
    fault: str = ""

    def __str__(self) -> str:
        if self.fault:
            return f"{self.way:<10} failed: {self.fault}"
        rate = f"{(self.tokens - 1) / self.seconds:,.0f} tok/s" if self.tokens > 1 and self.seconds > 0 else "-"
        return f"{self.way:<10} ok   TTFT {self.ttft * 1000:,.1f} ms   {self.tokens} tokens   {rate}"


async def check_turns(root: str, model: str, key: str, websockets: bool = True) -> list[Turn]:
    """A turn over HTTP, and one over a WebSocket where there are any. Never raises."""
    from openai import AsyncOpenAI

    turns = []
    async with AsyncOpenAI(base_url=f"{root}/v1", api_key=key, max_retries=0, timeout=120) as client:
        for way, events in (("HTTP", _over_http), ("WebSocket", _over_websocket)):
            if way == "HTTP" or websockets:
                # The first turn is the client's own: it imports and builds what it needs while the answer comes.
                for longest in (1, LONGEST):
                    # Closed before the client is: what is left open at the end of the loop complains on the terminal.
                    async with aclosing(events(client, model, longest)) as stream:
                        turn = await _timed(way, stream)
                    if turn.fault:
                        break
                turns.append(turn)
    return turns


async def _timed(way: str, events: AsyncIterator[Any]) -> Turn:
    begun = time.perf_counter()
    first = last = 0.0
    try:
        async for event in events:
            if event.type.endswith(".delta"):
                last = time.perf_counter()
                first = first or last
            elif event.type in ("response.completed", "response.incomplete"):
                usage = event.response.usage
                return Turn(way, first - begun if first else 0.0, usage.output_tokens if usage else 0, last - first)
            elif event.type == "response.failed":
                return Turn(way, fault=event.response.error.message)
            elif event.type == "error":
                return Turn(way, fault=event.error.message)
    except Exception as error:  # whatever it is, it is what the check was made to find
        return Turn(way, fault=f"{type(error).__name__}: {error}")
    return Turn(way, fault="the stream ended before the response did")


async def _over_http(client: Any, model: str, longest: int) -> AsyncGenerator[Any]:
    stream = await client.responses.create(
        model=model, input=PROMPT, max_output_tokens=longest, stream=True, store=False
    )
    async with stream:
        async for event in stream:
            yield event


async def _over_websocket(client: Any, model: str, longest: int) -> AsyncGenerator[Any]:
    async with client.responses.connect() as connection:
        await connection.response.create(model=model, input=PROMPT, max_output_tokens=longest, store=False)
        async for event in connection:
            yield event

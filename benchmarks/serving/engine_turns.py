"""Time to the first token of a second turn on the engine: on its chain, in a fresh HTTP request, and without a cache.

Each round takes three conversations of the same length under new names. One goes over a WebSocket and one over HTTP:
a first turn, then a second one that adds a tool's output, then a third that adds one line of the user's. Of the third
conversation the server has seen nothing when its second turn is asked for, whole: that is what every turn would be
without a prefix cache. All HTTP requests come on fresh connections.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks.serving.client import Http, Socket
from benchmarks.serving.conversation import Conversation, Json, encode
from benchmarks.serving.process import vivace
from benchmarks.serving.rollout import fitted, less
from benchmarks.serving.turns import Turn, http_turn, socket_turn
from vivace.bench.stats import quantile

OUTPUT = 24
"""Tokens of an answer, at most."""
SHORT = "Good. Go on with the next one, please."
MORE: dict[str, Any] = {"max_output_tokens": OUTPUT, "temperature": 0.0}

Ask = Callable[[Conversation, list[Json], str | None], Awaitable[Turn]]


async def measure_engine(model: str, context: int, rounds: int, command: str) -> dict[str, Any]:
    """TTFT in milliseconds by case, and how many tokens of each prompt the server said to have found cached."""
    made: dict[str, list[Turn]] = {}
    with vivace("", ("--backend", "local", "--model", model), command) as server:

        async def fresh_http(conversation: Conversation, new: list[Json], previous: str | None) -> Turn:
            http = await Http.open(server.root)
            try:
                return await http_turn(http, encode(conversation.body(**MORE)))
            finally:
                await http.close()

        socket = await Socket.open(server.root)

        async def on_chain(conversation: Conversation, new: list[Json], previous: str | None) -> Turn:
            frame = conversation.body(new if previous else None, previous, **MORE)
            return await socket_turn(socket, encode({"type": "response.create", **frame}))

        characters = await fitted(server, context, model)
        await on_chain(Conversation("warming up", 30_000, model), [], None)
        ways: list[tuple[str, Ask]] = [("chain", on_chain), ("http", fresh_http)]
        for _ in range(rounds):
            ways.reverse()
            for case, ask in ways:
                first, second, third = await _three(ask, Conversation(uuid.uuid4().hex, characters, model))
                made.setdefault("first", []).append(first)
                made.setdefault(f"{case} second", []).append(second)
                made.setdefault(f"{case} third", []).append(third)
            unseen = Conversation(uuid.uuid4().hex, characters, model)
            unseen.answer(made["first"][-1].items)
            made.setdefault("uncached second", []).append(await fresh_http(unseen, [], None))
        await socket.close()
    cases = {case: _summary(turns) for case, turns in made.items()}

    def ttft(case: str) -> float:
        found: float = cases[case]["ttft_ms"]
        return found

    saved = {
        "chain against uncached": less(ttft("chain second"), ttft("uncached second")),
        "chain against http": less(ttft("chain second"), ttft("http second")),
        "http against uncached": less(ttft("http second"), ttft("uncached second")),
        "chain against http, short": less(ttft("chain third"), ttft("http third")),
    }
    return {"model": model, "context": context, "rounds": rounds, "cases": cases, "saved_percent": saved}


async def _three(ask: Ask, conversation: Conversation) -> tuple[Turn, Turn, Turn]:
    first = await ask(conversation, [], None)
    second = await ask(conversation, conversation.answer(first.items), first.id)
    return first, second, await ask(conversation, conversation.answer(second.items, word=SHORT), second.id)


def _summary(turns: list[Turn]) -> dict[str, Any]:
    ttft = [turn.ttft for turn in turns]
    return {
        "turns": len(turns),
        "ttft_ms": quantile(ttft, 0.5),
        "ttft_range_ms": [quantile(ttft, 0.0), quantile(ttft, 1.0)],
        "whole_ms": quantile([turn.whole for turn in turns], 0.5),
        "input_tokens": round(quantile([turn.usage.input_tokens for turn in turns], 0.5)),
        "cached_tokens": round(
            quantile([turn.usage.input_tokens_details.get("cached_tokens", 0) for turn in turns], 0.5)
        ),
        "bytes_sent": round(quantile([turn.bytes_sent for turn in turns], 0.5)),
    }

"""The same agent rollout over HTTP with the whole history each time, and over a WebSocket with what is new.

On the paced backend, whose answer is there at once: all that a round trip takes is the server's. Both ways begin behind
the same history, made up anew under another name for each rollout, and are run in turn.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable
from statistics import median
from typing import Any

import msgspec

from benchmarks.serving.client import Http, Socket
from benchmarks.serving.conversation import CALLS, SCRIPT, Conversation, Json, encode
from benchmarks.serving.process import Process, vivace
from benchmarks.serving.turns import Turn, http_turn, socket_turn
from vivace.bench.stats import quantile

CONTEXTS = (8_000, 96_000)
MODEL = "paced"
CONFIG = """
[backends.paced]
kind = "paced"
tok_s = 1e9
ttft_ms = 0
window = 262144
script = "script.toml"
"""

Way = Callable[[Process, Conversation], Awaitable[list[tuple[float, Turn]]]]
"""Gives each call's turn, and the milliseconds in which the client wrote its request as JSON."""


async def over_http(server: Process, conversation: Conversation) -> list[tuple[float, Turn]]:
    """On one kept connection, which is the best that HTTP can do."""
    http = await Http.open(server.root)
    turns = []
    for call in range(CALLS):
        began = time.perf_counter()
        body = encode(conversation.body())
        encoding = (time.perf_counter() - began) * 1e3
        turn = await http_turn(http, body)
        turns.append((encoding, turn))
        conversation.answer(turn.items, last=call == CALLS - 2)
    await http.close()
    return turns


async def over_websocket(server: Process, conversation: Conversation) -> list[tuple[float, Turn]]:
    """As Codex CLI: ``generate: false`` with the history first, which is not counted, then increments."""
    socket = await Socket.open(server.root)
    warm = await socket_turn(socket, encode({"type": "response.create", **conversation.body(generate=False)}))
    turns: list[tuple[float, Turn]] = []
    new: list[Json] = []
    previous = warm.id
    for call in range(CALLS):
        began = time.perf_counter()
        frame = encode({"type": "response.create", **conversation.body(new, previous)})
        encoding = (time.perf_counter() - began) * 1e3
        turn = await socket_turn(socket, frame)
        turns.append((encoding, turn))
        previous, new = turn.id, conversation.answer(turn.items, last=call == CALLS - 2)
    await socket.close()
    return turns


WAYS: dict[str, Way] = {"http": over_http, "websocket": over_websocket}


async def fitted(server: Process, tokens: int, model: str) -> int:
    """How many characters a conversation of so many tokens has, by the server's own count."""
    http = await Http.open(server.root)
    characters = tokens * 4
    for _ in range(2):
        body = Conversation("fitting", characters, model).body()
        reply = await http.ask(
            "/v1/responses/input_tokens", encode({key: body[key] for key in ("model", "input", "tools")})
        )
        if reply.status != 200:
            raise RuntimeError(f"{reply.status}: {reply.body[:500]!r}")
        characters = round(characters * tokens / int(msgspec.json.decode(reply.body)["input_tokens"]))
    await http.close()
    return characters


async def floor(server: Process) -> float:
    """Median milliseconds of GET /healthz on a kept connection: what a round trip takes that asks for nothing."""
    http = await Http.open(server.root)
    replies = [await http.ask("/healthz") for _ in range(200)]
    await http.close()
    return quantile([(reply.done - reply.sent) / 1e6 for reply in replies[20:]], 0.5)


async def measure(context: int, repeats: int, command: str) -> dict[str, Any]:
    """Both ways in turn, ``repeats`` rollouts each, after one of each that does not count. ``command`` is vivace's.

    The WebSocket's processor time has the prewarm in it, which reads the whole history once.
    """
    turns: dict[str, list[tuple[float, Turn]]] = {way: [] for way in WAYS}
    cpu: dict[str, list[float]] = {way: [] for way in WAYS}
    with vivace(CONFIG, ("--backend", MODEL), command, files={"script.toml": SCRIPT}) as server:
        characters = await fitted(server, context, MODEL)
        for repeat in range(repeats + 1):
            for way, run in WAYS.items():
                conversation = Conversation(uuid.uuid4().hex, characters, MODEL)
                before = server.cpu_seconds()
                made = await run(server, conversation)
                spent = server.cpu_seconds() - before
                if repeat:
                    turns[way] += made
                    cpu[way].append(spent / CALLS * 1e3)
        nothing, resident = await floor(server), server.resident_bytes()
    ways = {way: _summary(turns[way], cpu[way]) for way in WAYS}
    saved = {key: less(ways["websocket"][key], ways["http"][key]) for key in ("whole_ms", "ttft_ms", "cpu_ms")}
    return {
        "context": context,
        "rollouts": repeats,
        "ways": ways,
        "saved_percent": saved,
        "healthz_ms": nothing,
        "resident_bytes": resident,
    }


def _summary(made: list[tuple[float, Turn]], cpu: list[float]) -> dict[str, Any]:
    turns = [turn for _, turn in made]
    whole = [turn.whole for turn in turns]
    return {
        "calls": len(turns),
        "input_tokens": [turns[0].usage.input_tokens, turns[-1].usage.input_tokens],
        "output_tokens": round(median(turn.usage.output_tokens for turn in turns)),
        "bytes_sent": round(median(turn.bytes_sent for turn in turns)),
        "first_event_ms": quantile([turn.first_event for turn in turns], 0.5),
        "ttft_ms": quantile([turn.ttft for turn in turns], 0.5),
        "whole_ms": quantile(whole, 0.5),
        "whole_p90_ms": quantile(whole, 0.9),
        "cpu_ms": quantile(cpu, 0.5),
        "client_encode_ms": quantile([encoding for encoding, _ in made], 0.5),
    }


def less(value: float, than: float) -> float:
    """By how many per cent ``value`` is below ``than``."""
    return round(100 * (1 - value / than), 1)

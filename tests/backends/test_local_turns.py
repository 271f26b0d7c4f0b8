"""Conversations on the embedded engine: tools, forms, chains and histories sent anew, with a real model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from vivace.backends.base import CallEnd, CallStart, CallText, End, Job, Piece, Run, Text
from vivace.backends.local import LocalBackend, TokenTrail
from vivace.dialects.tools import ToolTable
from vivace.engine.kv import BLOCK
from vivace.errors import UsageError
from vivace.models.catalogue import find_model
from vivace.protocol.items import (
    CustomToolCall,
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    items_of,
)
from vivace.protocol.options import JsonSchemaFormat, TextOptions
from vivace.protocol.requests import ResponseRequest
from vivace.settings import Settings

pytestmark = pytest.mark.model

NAME = "coder-0.5b"
WEATHER = {
    "type": "function",
    "name": "weather",
    "description": "The weather in a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}, "days": {"type": "integer", "maximum": 9}},
        "required": ["city", "days"],
        "additionalProperties": False,
    },
}
EDIT = {
    "type": "custom",
    "name": "edit",
    "description": "Changes lines of a file.",
    "format": {
        "type": "grammar",
        "syntax": "lark",
        "definition": 'start: "file: " /[a-z.]{1,12}/ LF ("+" | "-") /[a-z ]{0,20}/ LF "end"\n%import common.LF',
    },
}
TOOLS = [WEATHER, EDIT]
ASK: list[Item] = [
    Message("system", "You are a helpful assistant."),
    Message("user", "What is the weather in Paris for the next 3 days?"),
]


@asynccontextmanager
async def opened(model_file: Callable[[str], Path]) -> AsyncIterator[LocalBackend]:
    settings = Settings()
    backend = LocalBackend(find_model(NAME, settings), model_file(NAME), settings)
    await backend.open(lambda stage, share: None)
    try:
        yield backend
    finally:
        await backend.close()


def job(items: list[Item], tools: ToolTable | None = None, **values: Any) -> Job:
    extra = {key: values.pop(key) for key in ("continuation", "known", "prefill_only") if key in values}
    request = ResponseRequest(model=NAME, max_output_tokens=values.pop("limit", 120), **values)
    return Job(request=request, items=items, tools=tools or ToolTable(), **extra)


async def told(run: Run) -> tuple[list[Piece], End]:
    pieces = [piece async for piece in run]
    assert isinstance(pieces[-1], End)
    return pieces[:-1], pieces[-1]


def items_from(pieces: list[Piece]) -> list[Item]:
    """What a client keeps of an answer."""
    items: list[Item] = []
    for piece in pieces:
        match piece:
            case Text(text):
                if not items or not isinstance(items[-1], Message):
                    items.append(Message("assistant", ""))
                last = items[-1]
                assert isinstance(last, Message) and isinstance(last.content, str)
                last.content += text
            case CallStart(name, call_id, raw):
                items.append(CustomToolCall(call_id, name, "") if raw else FunctionCall(call_id, name, ""))
            case CallText(text):
                last = items[-1]
                if isinstance(last, CustomToolCall):
                    last.input += text
                else:
                    assert isinstance(last, FunctionCall)
                    last.arguments += text
    return items


def test_calls_are_made_as_they_must_be(model_file: Callable[[str], Path]) -> None:
    async def run() -> None:
        async with opened(model_file) as backend:
            table = ToolTable.of(TOOLS, {"type": "function", "name": "weather"}, parallel=False)
            pieces, end = await told(backend.start(job(ASK, table)))
            (call,) = items_from(pieces)
            assert isinstance(call, FunctionCall) and call.name == "weather" and end.reason == "stop"
            arguments = json.loads(call.arguments)
            assert set(arguments) == {"city", "days"} and isinstance(arguments["days"], int)
            assert isinstance(pieces[0], CallStart) and not pieces[0].raw and isinstance(pieces[-1], CallEnd)
            assert len([piece for piece in pieces if isinstance(piece, CallText)]) > 3

            table = ToolTable.of(TOOLS, {"type": "custom", "name": "edit"}, parallel=False)
            pieces, end = await told(backend.start(job([*ASK[:1], Message("user", "Add a line to a.py.")], table)))
            (edit,) = items_from(pieces)
            assert isinstance(edit, CustomToolCall) and end.reason == "stop"
            lines = edit.input.split("\n")
            assert lines[0].startswith("file: ") and lines[1][0] in "+-" and lines[2:] == ["end"]

            # A call that is cut off has no end, and nobody goes on from its half.
            pieces, end = await told(backend.start(job(ASK, ToolTable.of(TOOLS, "required"), limit=12)))
            assert end.reason == "length" and isinstance(pieces[0], CallStart) and CallEnd() not in pieces
            assert isinstance(end.continuation, TokenTrail) and not end.continuation.whole

            pieces, _ = await told(backend.start(job(ASK, ToolTable.of(TOOLS, "none"), limit=40)))
            assert all(isinstance(piece, Text) for piece in pieces) and "<tool_call>" not in str(pieces)

    asyncio.run(run())


def test_an_answer_has_the_form_that_was_asked_for(model_file: Callable[[str], Path]) -> None:
    async def run() -> None:
        async with opened(model_file) as backend:
            schema = {
                "type": "object",
                "properties": {"language": {"enum": ["python", "c"]}, "lines": {"type": "integer", "maximum": 99}},
                "required": ["language", "lines"],
                "additionalProperties": False,
            }
            text = TextOptions(format=JsonSchemaFormat("answer", schema, strict=True))
            ask: list[Item] = [Message("user", "Which language is `print(1)` written in?")]
            pieces, end = await told(backend.start(job(ask, text=text)))
            answer = json.loads("".join(piece.text for piece in pieces if isinstance(piece, Text)))
            assert end.reason == "stop" and answer["language"] == "python" and isinstance(answer["lines"], int)
            with pytest.raises(UsageError, match="grammar"):
                broken = {**EDIT, "format": {"type": "grammar", "syntax": "lark", "definition": "start: nothing"}}
                backend.start(job(ask, ToolTable.of([broken])))

    asyncio.run(run())


@pytest.mark.parametrize("resend", [False, True])
def test_a_second_turn_computes_only_what_is_new(resend: bool, model_file: Callable[[str], Path]) -> None:
    async def run() -> None:
        async with opened(model_file) as backend:
            choice = {"type": "function", "name": "weather"}
            table = ToolTable.of(TOOLS, choice, parallel=False)
            pieces, first = await told(backend.start(job(ASK, table, temperature=1.0, seed=3)))
            trail = first.continuation
            assert isinstance(trail, TokenTrail) and first.reason == "stop"
            answer = items_from(pieces)
            call = answer[-1]
            assert isinstance(call, FunctionCall)
            items = [*ASK, *answer, FunctionCallOutput(call.call_id, "Sunny, 20 degrees.")]
            # The same tools, another choice: the prompt is the same.
            table = ToolTable.of(TOOLS, "none")
            if resend:
                public = [msgspec.to_builtins(item) for item in items]
                second = job(items_of(json.loads(json.dumps(public))), table, limit=30)
            else:
                second = job(items, table, limit=30, continuation=trail, known=len(items) - 1)
            assert await backend.count(second) > len(trail.tokens)
            assert backend.prompt(second).tokens[: len(trail.tokens)] == trail.tokens
            pieces, end = await told(backend.start(second))
            assert end.usage.input_tokens_details.cached_tokens >= (len(trail.tokens) - 1) // BLOCK * BLOCK
            assert end.usage.input_tokens == await backend.count(second)

            # A third turn behind a sampled answer of text.
            items += [*items_from(pieces), Message("user", "Thank you. Now in Rome?")]
            third = job(items, table, limit=5, continuation=None if resend else end.continuation, known=len(items) - 1)
            _, last = await told(backend.start(third))
            assert isinstance(end.continuation, TokenTrail)
            known = (len(end.continuation.tokens) - 1) // BLOCK * BLOCK
            assert last.usage.input_tokens_details.cached_tokens >= known

    asyncio.run(run())


def test_a_prompt_is_made_ready_without_an_answer(model_file: Callable[[str], Path]) -> None:
    async def run() -> None:
        async with opened(model_file) as backend:
            table = ToolTable.of(TOOLS)
            ready: list[Item] = [Message("developer", "Be brief. " * 40)]
            pieces, end = await told(backend.start(job(ready, table, prefill_only=True)))
            assert not pieces and end.reason == "stop" and end.usage.output_tokens == 0
            follow_up = job([*ready, *ASK[1:]], table, limit=2, continuation=end.continuation, known=1)
            _, answer = await told(backend.start(follow_up))
            assert (
                answer.usage.input_tokens_details.cached_tokens >= (end.usage.input_tokens - 1) // BLOCK * BLOCK - BLOCK
            )
            assert backend.prompt(follow_up).tokens == backend.prompt(job([*ready, *ASK[1:]], table)).tokens

    asyncio.run(run())


def test_a_prompt_that_does_not_fit_says_so(model_file: Callable[[str], Path]) -> None:
    async def run() -> None:
        async with opened(model_file) as backend:
            pieces, end = await told(backend.start(job([Message("user", "one two " * 20_000)])))
            assert not pieces and end.reason == "error" and end.code == "context_length_exceeded"

    asyncio.run(run())

"""Tokens of an answer with reasoning and calls in it to pieces, and what is remembered of it; without a model."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from vivace.backends.base import CallEnd, CallStart, CallText, End, Piece, Reasoning, Text
from vivace.backends.local_run import Answering, LocalRun, TokenTrail
from vivace.backends.memory import AnswerMemory
from vivace.backends.pieces import PieceSink
from vivace.dialects.chat import ChatDialect
from vivace.dialects.tools import ToolTable
from vivace.engine.messages import EngineConfig, Finish, Progress, Start
from vivace.engine.process import EngineProcess, EngineStream
from vivace.models.pretokenizers import WHOLE_WORDS
from vivace.models.tokenizer import Tokenizer, _byte_alphabet
from vivace.models.vocabulary import Vocabulary
from vivace.protocol.items import FunctionCall, Item, Message

TEMPLATE = (
    "{% for m in messages %}{{ m.role }}:{% if m.role == 'assistant' %}<think>\n\n</think>\n\n{% endif %}"
    "{{ m.content }}<end>{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
)
BYTES = list(_byte_alphabet().values())
DIALECT = ChatDialect(
    Tokenizer(
        Vocabulary(
            pre=next(iter(WHOLE_WORDS)), tokens=[*_byte_alphabet(), "<end>", "<pad>", "<think>", "</think>"], merges=[],
            control=[256, 257, 258, 259], user_defined=[], unused=[], ends=[256], bos=None, add_bos=False,
            chat_template=TEMPLATE,
        )
    )
)  # fmt: skip
TABLE = ToolTable.of([{"type": "function", "name": "run"}])
ASK: list[Item] = [Message("user", "x")]
CALL = '<tool_call>\n{"name": "run", "arguments": {"a": 1}}\n</tool_call>'
THINK, THOUGHT, PAD, END = 258, 259, 257, 256


def ids(text: str) -> list[int]:
    return [BYTES.index(byte) for byte in text.encode()]


async def answer(
    tokens: Sequence[int], size: int, finish: Finish, memory: AnswerMemory, stops: list[str]
) -> list[Piece]:
    prompt = DIALECT.compose(ASK, TABLE)
    sink = PieceSink()
    parser = DIALECT.family.parser(TABLE, sink)
    shown = frozenset((THINK, THOUGHT))
    answering = Answering(DIALECT, prompt, memory, TABLE.digest, sink, parser, shown, 1000)
    stream = EngineStream(EngineProcess(EngineConfig(model_path="", cache_dir="")), 1)
    run = LocalRun(stream, Start(id=1, tokens=prompt.tokens), DIALECT.tokenizer, stops, answering)
    for at in range(0, len(tokens), size):
        stream.put(Progress(1, list(tokens[at : at + size])))
        await asyncio.sleep(0)
    stream.put(Progress(1, [], finish))
    return [piece async for piece in run]


def said(
    tokens: Sequence[int], size: int, memory: AnswerMemory | None = None, stops: Sequence[str] = (), **finish: object
) -> tuple[list[Piece], End]:
    end = Finish(finish.pop("reason", "stop"), 3, 0, len(tokens), 0, 0, 1, **finish)  # type: ignore[arg-type]
    pieces = asyncio.run(answer(tokens, size, end, memory or AnswerMemory(), list(stops)))
    assert isinstance(pieces[-1], End)
    return pieces[:-1], pieces[-1]


def joined(pieces: list[Piece]) -> list[tuple[str, str]]:
    """Kinds and texts, neighbours of one kind as one."""
    told: list[tuple[str, str]] = []
    for piece in pieces:
        kind = type(piece).__name__
        text = piece.text if isinstance(piece, Text | Reasoning | CallText) else ""
        if told and told[-1][0] == kind:
            text = told.pop()[1] + text
        told.append((kind, text))
    return told


WHOLE = [THINK, *ids("\nab"), PAD, *ids("c\n"), THOUGHT, *ids("\n\nText\n" + CALL), END]


@pytest.mark.parametrize("size", [1, 2, 7, 500])
def test_reasoning_text_and_calls(size: int) -> None:
    pieces, end = said(WHOLE, size)
    assert joined(pieces) == [
        ("Reasoning", "abc"), ("Text", "Text"), ("CallStart", ""), ("CallText", '{"a": 1}'), ("CallEnd", ""),
    ]  # fmt: skip
    start = next(piece for piece in pieces if isinstance(piece, CallStart))
    assert start.name == "run" and start.call_id.startswith("call_") and not start.raw
    # Both marks and all between them, however the engine cut its answer.
    assert end.usage.output_tokens_details.reasoning_tokens == WHOLE.index(THOUGHT) + 1
    assert end.usage.input_tokens_details.cache_write_tokens == 3
    trail = end.continuation
    assert isinstance(trail, TokenTrail) and trail.whole and trail.reasoned and trail.tools == TABLE.digest


def test_an_answer_is_remembered_in_its_place() -> None:
    memory = AnswerMemory()
    pieces, end = said(WHOLE, 5, memory)
    call_id = next(piece.call_id for piece in pieces if isinstance(piece, CallStart))
    items = [*ASK, Message("assistant", "Text"), FunctionCall(call_id, "run", '{"a": 1}')]
    prompt = DIALECT.compose([*items, Message("user", "y")], TABLE, recall=memory.recall)
    assert isinstance(end.continuation, TokenTrail)
    trail = end.continuation.tokens
    assert prompt.tokens[: len(trail)] == trail and DIALECT.tokenizer.decode(prompt.tokens).endswith(
        "<end>user:y<end>assistant:"
    )
    assert DIALECT.compose(items, TABLE).place == end.continuation.place


def test_half_an_answer_is_not_gone_on_from() -> None:
    for tokens, options in (
        (ids("Text\n" + CALL[:40]), {"reason": "length"}),
        (ids("one two en"), {"reason": "stop", "trim": 3, "stops": ["two"]}),
        ([], {"reason": "aborted"}),
    ):
        memory = AnswerMemory()
        pieces, end = said(tokens, 3, memory, **options)  # type: ignore[arg-type]
        assert CallEnd() not in pieces and isinstance(end.continuation, TokenTrail)
        assert memory.recall(end.continuation.place) is None
        assert end.continuation.whole == (not any(isinstance(piece, CallStart) for piece in pieces))


def test_a_prompt_beyond_the_window_has_its_code() -> None:
    _, end = said([], 1, reason="error", message="too long")
    assert (end.reason, end.code) == ("error", "server_error")
    long = Answering(DIALECT, DIALECT.compose(ASK), AnswerMemory(), "", PieceSink(), None, frozenset(), 3)

    async def run() -> End:
        stream = EngineStream(EngineProcess(EngineConfig(model_path="", cache_dir="")), 1)
        local = LocalRun(stream, Start(id=1, tokens=[1] * 3), DIALECT.tokenizer, [], long)
        stream.put(Progress(1, [], Finish("error", 3, 0, 0, 0, 0, 0, message="too long")))
        return await local.stop()

    assert asyncio.run(run()).code == "context_length_exceeded"


def test_neighbours_become_one_piece() -> None:
    sink = PieceSink()
    sink.text("a")
    sink.text("b")
    sink.reasoning("c")
    sink.call("run", False)
    sink.argument("{")
    sink.argument("}")
    told = sink.take()
    assert told[:2] == [Text("ab"), Reasoning("c")] and isinstance(told[2], CallStart) and told[3:] == [CallText("{}")]
    sink.call_end()
    sink.text("d")
    assert sink.take() == [CallEnd(), Text("d")] and sink.take() == []

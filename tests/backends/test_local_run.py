"""Tokens to text: nothing lost, nothing of a stop text told, whatever the chunks; without a model."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vivace.backends.base import End, Text
from vivace.backends.local import LocalRun, TokenTrail, _sampling
from vivace.engine.messages import EngineConfig, Finish, Progress, Start
from vivace.engine.process import EngineCrashed, EngineProcess, EngineStream
from vivace.errors import UsageError
from vivace.models.pretokenizers import WHOLE_WORDS
from vivace.models.tokenizer import Tokenizer, _byte_alphabet
from vivace.models.vocabulary import Vocabulary
from vivace.protocol.requests import ResponseRequest

BYTES = list(_byte_alphabet().values())
TOKENIZER = Tokenizer(
    Vocabulary(
        pre=next(iter(WHOLE_WORDS)), tokens=[*_byte_alphabet(), "<end>"], merges=[], control=[256], user_defined=[],
        unused=[], ends=[256], bos=None, add_bos=False, chat_template=None,
    )
)  # fmt: skip
PROMPT = [1, 2, 3]

texts = st.text(st.sampled_from("abé漢 \n"), max_size=40)
stops = st.lists(st.text(st.sampled_from("abé漢 \n"), min_size=1, max_size=4), max_size=3)


def ids(data: bytes) -> list[int]:
    return [BYTES.index(byte) for byte in data]


async def run(chunks: Sequence[Progress], stops: Sequence[str] = ()) -> list[Text | End]:
    stream = EngineStream(EngineProcess(EngineConfig(model_path="", cache_dir="")), 1)
    local = LocalRun(stream, Start(id=1, tokens=PROMPT), TOKENIZER, list(stops))
    for chunk in chunks:
        stream.put(chunk)
        await asyncio.sleep(0)
    return [piece async for piece in local]


def cut(tokens: list[int], sizes: list[int], finish: Finish) -> list[Progress]:
    """Tokens in chunks of the given sizes, the end in the last."""
    chunks = []
    at = turn = 0
    while at < len(tokens):
        size = sizes[turn % len(sizes)]
        chunks.append(Progress(1, tokens[at : at + size]))
        at, turn = at + size, turn + 1
    last = chunks.pop().tokens if chunks else []
    return [*chunks, Progress(1, last, finish)]


def finish_of(tokens: list[int], reason: str = "stop", trim: int = 0) -> Finish:
    return Finish(reason, 3, 2, len(tokens), 10, 4, 5, trim)  # type: ignore[arg-type]


def stopped(text: str, stops: list[str]) -> tuple[list[int], int]:
    """What the engine does: output up to the byte that completes a stop text, and the bytes from its beginning."""
    data = text.encode()
    for length in range(1, len(data) + 1):
        places = [place for stop in stops if (place := data[:length].find(stop.encode())) >= 0]
        if places:
            return ids(data[:length]), length - min(places)
    return ids(data), 0


@settings(max_examples=300, deadline=None)
@given(texts, stops, st.lists(st.integers(1, 7), min_size=1, max_size=5))
def test_the_text_is_whole_up_to_the_stop_text(text: str, stops: list[str], sizes: list[int]) -> None:
    tokens, trim = stopped(text, stops)
    *pieces, end = asyncio.run(run(cut(tokens, sizes, finish_of(tokens, trim=trim)), stops))
    said = "".join(piece.text for piece in pieces if isinstance(piece, Text))
    assert said == text.encode()[: len(tokens) - trim].decode()
    assert not any(stop in said for stop in stops)
    assert all(isinstance(piece, Text) and piece.text for piece in pieces)
    assert isinstance(end, End) and end.reason == "stop" and end.continuation == TokenTrail(PROMPT + tokens)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=30), st.lists(st.integers(1, 7), min_size=1, max_size=5))
def test_any_bytes_become_what_decoding_them_gives(data: bytes, sizes: list[int]) -> None:
    tokens = [*ids(data), 256]
    pieces = asyncio.run(run(cut(tokens, sizes, finish_of(tokens))))
    assert "".join(piece.text for piece in pieces[:-1] if isinstance(piece, Text)) == data.decode(errors="replace")


def test_text_comes_as_soon_as_it_cannot_be_a_stop_text() -> None:
    tokens = ids(b"one two en")
    pieces = asyncio.run(run([*(Progress(1, [t]) for t in tokens), Progress(1, [], finish_of(tokens))], ["end"]))
    said = [piece.text for piece in pieces if isinstance(piece, Text)]
    assert said == ["o", "n", "e ", "t", "w", "o", " ", "en"]


def test_usage_is_the_engines_own_count() -> None:
    tokens = ids(b"abc")
    end = asyncio.run(run([Progress(1, tokens, finish_of(tokens))]))[-1]
    assert isinstance(end, End)
    usage = end.usage
    assert (usage.input_tokens, usage.input_tokens_details.cached_tokens, usage.output_tokens) == (3, 2, 3)
    assert usage.total_tokens == 6
    details = usage.output_tokens_details
    assert (details.accepted_prediction_tokens, details.rejected_prediction_tokens) == (4, 6)


@pytest.mark.parametrize("reason", ["stop", "length", "window", "time", "aborted", "error"])
def test_every_end_has_its_reason(reason: str) -> None:
    end = asyncio.run(run([Progress(1, [], finish_of([], reason))]))[-1]
    assert isinstance(end, End) and end.reason == ("length" if reason == "window" else reason)


def test_a_crash_ends_the_run_in_words() -> None:
    async def crash() -> list[Text | End]:
        stream = EngineStream(EngineProcess(EngineConfig(model_path="", cache_dir="")), 1)
        local = LocalRun(stream, Start(id=1, tokens=PROMPT), TOKENIZER, ["abc"])
        stream.put(Progress(1, ids(b"xa")))
        stream.put(EngineCrashed(-9))
        assert (await local.stop()).reason == "error"
        return [piece async for piece in local]

    *pieces, end = asyncio.run(crash())
    assert "".join(piece.text for piece in pieces if isinstance(piece, Text)).startswith("x")
    assert isinstance(end, End) and end.reason == "error" and "signal 9" in end.message


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("temperature", 11.0),
        ("top_p", 1.5),
        ("min_p", -1.0),
        ("repetition_penalty", 0.0),
    ],
)
def test_sampling_values_out_of_range_name_their_field(field: str, value: float) -> None:
    with pytest.raises(UsageError, match=field) as caught:
        _sampling(ResponseRequest(model="m", input="x", **{field: value}))
    assert caught.value.param == field


def test_without_a_seed_answers_differ_and_any_seed_is_taken() -> None:
    seeds = {_sampling(ResponseRequest(model="m", input="x", temperature=1.0)).seed for _ in range(20)}
    assert len(seeds) == 20
    for seed in (-1, 0, 1 << 80):
        assert 0 <= _sampling(ResponseRequest(model="m", input="x", seed=seed)).seed < 1 << 63

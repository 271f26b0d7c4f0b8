"""The paced backend: exact on the clock, truthful in its counts, ended at any moment."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.backends.asking import PATCH, SHELL, TEAM, assembled, job, read, text_of
from vivace.backends.base import CallStart, End, Job, Reasoning, Text
from vivace.backends.clock import Clock
from vivace.backends.paced import Pace, PacedBackend
from vivace.backends.paced_script import script_of
from vivace.backends.paced_tokens import DEFAULT_TOKENS, cut, filler
from vivace.errors import UsageError
from vivace.protocol.items import FunctionCall, Item, Message, OutputText
from vivace.protocol.requests import Prediction

FAST = Pace(tok_s=1e6, ttft=0.0)


def backend(*rules: dict[str, Any], pace: Pace = FAST, window: int = 131_072) -> PacedBackend:
    return PacedBackend("paced", script_of({"rules": list(rules)}), pace, window)


def answered(asked: Job, *rules: dict[str, Any], **fields: Any) -> tuple[list[Any], End]:
    async def main() -> tuple[list[Any], End]:
        return await read(backend(*rules, **fields).start(asked))

    return asyncio.run(main())


@given(st.text())
def test_cutting_loses_nothing(text: str) -> None:
    assert "".join(cut(text)) == text


@pytest.mark.parametrize("count", [0, 1, 7, DEFAULT_TOKENS, 1000])
def test_filler_counts_as_what_it_says(count: int) -> None:
    assert len(filler(count)) == count == len(cut("".join(filler(count))))


def test_the_default_answer_has_400_tokens() -> None:
    pieces, end = answered(job())
    assert len(cut(text_of(pieces))) == DEFAULT_TOKENS == end.usage.output_tokens == 400
    assert (end.reason, end.usage.input_tokens, end.usage.total_tokens) == ("stop", 3, 403), "the role is a token"


def test_the_rate_is_exact_over_a_second() -> None:
    """16 streams of 1,000 tokens a second; each token says when it was due."""

    async def main() -> None:
        paced = backend({"steps": [{"tokens": 1000}]}, pace=Pace(tok_s=1000, ttft=0.05, stamp=True))
        began, lags = time.monotonic(), []

        async def one() -> list[float]:
            due: list[float] = []
            async for piece in paced.start(job()):
                if isinstance(piece, Text):
                    now = time.monotonic()
                    stamps = [int(word) / 1e9 for word in piece.text.split()]
                    lags.extend(now - stamp for stamp in stamps)
                    due += stamps
            return due

        for due in await asyncio.gather(*(one() for _ in range(16))):
            assert len(due) == 1000
            assert due[0] - began == pytest.approx(0.05, abs=0.03)
            assert due[-1] - due[0] == pytest.approx(0.999, abs=1e-6)
        assert time.monotonic() - began < 1.5
        lags.sort()
        assert lags[0] > -1e-4, "a token came before it was due"
        assert lags[len(lags) // 2] < 0.02, "half of the tokens were late by more than 20 ms"

    asyncio.run(main())


def test_who_looks_late_finds_the_late_tokens_in_one_piece() -> None:
    async def main() -> None:
        run = backend({"steps": [{"tokens": 100}]}, pace=Pace(tok_s=1000, ttft=0.0)).start(job())
        pieces = aiter(run)
        time.sleep(0.15)  # the loop is held up
        first = await anext(pieces)
        assert isinstance(first, Text)
        assert len(cut(first.text)) == 100

    asyncio.run(main())


def test_stop_ends_it_at_once_and_counts_what_was_said() -> None:
    async def main() -> None:
        paced = backend({"steps": [{"tokens": 10}, {"hang": True}]})
        run = paced.start(job())
        pieces = aiter(run)
        said = ""
        while len(cut(said)) < 10:
            piece = await anext(pieces)
            assert isinstance(piece, Text)
            said += piece.text
        last = asyncio.ensure_future(anext(pieces))
        await asyncio.sleep(0.02)
        began = time.perf_counter()
        end = await run.stop()
        assert await last == end
        assert time.perf_counter() - began < 0.05
        assert (end.reason, end.usage.output_tokens) == ("aborted", 10)
        assert await run.stop() == end

        unread = paced.start(job())
        assert (await unread.stop()).reason == "aborted"
        assert [piece async for piece in unread] == [await unread.stop()]

    asyncio.run(main())


def test_closing_ends_what_runs() -> None:
    async def main() -> None:
        paced = backend({"steps": [{"hang": True}]})
        runs = [paced.start(job()) for _ in range(3)]
        reading = asyncio.gather(*(read(run) for run in runs))
        await asyncio.sleep(0.01)
        await paced.close()
        assert [end.reason for _, end in await reading] == ["aborted"] * 3
        assert not paced.runs

    asyncio.run(main())


def test_limits() -> None:
    pieces, end = answered(job(max_output_tokens=7))
    assert (len(cut(text_of(pieces))), end.reason, end.usage.output_tokens) == (7, "length", 7)
    pieces, end = answered(job("one two three"), window=13)
    assert (end.reason, end.usage.total_tokens) == ("length", 13)
    with pytest.raises(UsageError) as raised:
        answered(job("one two three"), window=3)
    assert (raised.value.code, raised.value.param) == ("context_length_exceeded", "input")
    began = time.perf_counter()
    pieces, end = answered(job(max_seconds=0.1), {"steps": [{"text": "begin"}, {"hang": True}]})
    assert (text_of(pieces), end.reason) == ("begin", "time")
    assert time.perf_counter() - began < 1
    pieces, end = answered(job(stop=["STOP", "two"]), {"steps": [{"text": "one two STOP"}, {"text": "never"}]})
    assert (text_of(pieces), end.reason) == ("one ", "stop")


def test_calls() -> None:
    steps = [
        {"reasoning": "Look first."},
        {"call": "shell", "arguments": {"cmd": "ls é"}},
        {"call": "spawn", "namespace": "team", "arguments": "{broken", "call_id": "c2"},
        {"call": "apply_patch", "input": "*** Begin\n"},
    ]
    pieces, end = answered(job("x", [SHELL, TEAM, PATCH]), {"steps": steps})
    assert pieces[0] == Reasoning("Look first.")
    assert [(name, text, ended) for name, _, text, ended in assembled(pieces)] == [
        ("shell", '{"cmd":"ls é"}', True),
        ("team__spawn", "{broken", True),
        ("apply_patch", "*** Begin\n", True),
    ]
    starts = [piece for piece in pieces if isinstance(piece, CallStart)]
    assert [start.raw for start in starts] == [False, False, True]
    assert starts[1].call_id == "c2"
    assert starts[0].call_id.startswith("call_")
    assert end.usage.output_tokens_details.reasoning_tokens == 2
    pieces, end = answered(job("x", [SHELL], max_output_tokens=2), {"steps": steps[1:2]})
    assert (assembled(pieces)[0][3], end.reason) == (False, "length")


def test_faults() -> None:
    pieces, end = answered(job(), {"steps": [{"text": "a"}, {"error": "rate_limit_exceeded", "retry_after": 2}]})
    assert (text_of(pieces), end.reason, end.code, end.retry_after) == ("a", "error", "rate_limit_exceeded", 2)
    _, end = answered(job(), {"steps": [{"drop": True}]})
    assert (end.reason, end.message, end.code) == ("error", "connection lost", "server_error")
    _, end = answered(job(), {"steps": [{"text": "a"}], "end": "length"})
    assert end.reason == "length"


def test_prompts_are_cached_by_what_they_say() -> None:
    async def main() -> None:
        rule = {"steps": [{"reasoning": "Hm."}, {"text": "Fine then."}, {"call": "shell", "arguments": {"cmd": "ls"}}]}
        paced = backend(rule, pace=Pace(tok_s=1e6, ttft=0.0, prefill_tok_s=1000))
        first = job("word " * 100, [SHELL])
        began = time.perf_counter()
        _, end = await read(paced.start(first))
        assert time.perf_counter() - began > 0.1
        assert end.usage.input_tokens_details.cached_tokens == 0
        answer: list[Item] = [
            Message("assistant", [OutputText("Fine then.")], id="msg_1", status="completed"),
            FunctionCall("call_1", "shell", '{"cmd":"ls"}', id="fc_1"),
        ]
        new = Message("user", "And more?")
        again = Job(request=first.request, items=[*first.items, *answer, new], tools=first.tools)
        # The whole history once more, and only what is new behind the continuation: the same count, the same hit.
        known = len(first.items) + len(answer)
        going_on = Job(
            request=first.request, items=again.items, tools=first.tools, continuation=end.continuation, known=known
        )
        everything = await paced.count(again)
        for asked in (again, going_on):
            began = time.perf_counter()
            run = paced.start(asked)
            await run.stop()
            usage = (await run.stop()).usage
            assert usage.input_tokens == everything == await paced.count(going_on)
            assert usage.input_tokens - usage.input_tokens_details.cached_tokens == 3, "only the new message is new"
        other = Job(request=first.request, items=[Message("user", "else"), *again.items], tools=first.tools)
        assert (await paced.start(other).stop()).usage.input_tokens_details.cached_tokens < 40, "tools are the same"

    asyncio.run(main())


def test_a_prompt_is_made_ready_and_nothing_said() -> None:
    async def main() -> None:
        paced = backend(pace=Pace(tok_s=1000, ttft=5.0, prefill_tok_s=1000))
        pieces, end = await read(paced.start(job("word " * 50, prefill_only=True)))
        assert (pieces, end.reason, end.usage.output_tokens) == ([], "stop", 0)
        usage = (await paced.start(job("word " * 50)).stop()).usage
        assert usage.input_tokens_details.cached_tokens == usage.input_tokens == 52, (
            "the role, 50 words, and the space at the end"
        )

    asyncio.run(main())


def test_the_reference_is_counted_and_makes_it_faster() -> None:
    rule = {"steps": [{"text": "a b c d " + "x y z w " * 10}]}
    pace = Pace(tok_s=100, ttft=0.0, reference_speed=50)
    began = time.perf_counter()
    _, end = answered(job(prediction=Prediction("x y z w other words")), rule, pace=pace)
    assert time.perf_counter() - began < 0.35, "44 tokens at the plain rate take 0.44 seconds"
    details = end.usage.output_tokens_details
    assert (details.accepted_prediction_tokens, details.rejected_prediction_tokens) == (40, 0)
    _, end = answered(job(prediction=Prediction("nothing of this")), rule)
    details = end.usage.output_tokens_details
    assert (details.accepted_prediction_tokens, details.rejected_prediction_tokens) == (0, 4)


def test_a_clock_wakes_in_order_and_forgets_who_left() -> None:
    async def main() -> None:
        clock, woken = Clock(0.001), []

        async def wait(after: float) -> None:
            await clock.until(time.monotonic() + after)
            woken.append(after)

        tasks = [asyncio.create_task(wait(after)) for after in (0.03, 0.01, 0.02)]
        await asyncio.sleep(0)
        left = asyncio.create_task(wait(0.005))
        await asyncio.sleep(0)
        left.cancel()
        await asyncio.gather(*tasks)
        assert woken == [0.01, 0.02, 0.03]
        late = asyncio.create_task(wait(60))
        await asyncio.sleep(0)
        clock.close()
        await late

    asyncio.run(main())


@pytest.mark.parametrize("fields", [{"tok_s": 0}, {"ttft": -1}, {"tick": 0}, {"prefill_tok_s": float("inf")}])
def test_paces_that_cannot_be(fields: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        Pace(**fields)


def test_a_text_to_complete_is_counted() -> None:
    _, end = answered(job(prompt={"raw": "one two three"}))
    assert end.usage.input_tokens == 4, "and who says it"
    _, end = answered(job(prompt={"fim": {"prefix": "one two ", "suffix": "four"}}))
    assert end.usage.input_tokens == 4

"""``truncation: auto``: what stays of a conversation that is longer than the window."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.service.lines import ME, SHELL, Watched, answer, freed, gateway, last, request, run
from vivace.backends.base import Job
from vivace.backends.paced import Pace, PacedBackend
from vivace.protocol import items as it
from vivace.protocol.items import Item, item_text
from vivace.protocol.requests import ResponseRequest
from vivace.service.truncating import ROOM, Fitting, without


class Counting(PacedBackend):
    """Counts a token for each character, and how often it was asked."""

    def __init__(self, window: int) -> None:
        super().__init__("paced", pace=Pace(), window=window)
        self.counted = 0

    async def count(self, job: Job) -> int:
        self.counted += 1
        return size(job.items)


def size(items: list[Item]) -> int:
    return sum(len(item_text(item)) + 4 for item in items)


def job(items: list[Item], **fields: Any) -> Job:
    return Job(request=ResponseRequest(model="paced", truncation="auto", **fields), items=items)


def words(count: int) -> str:
    return "word " * count


@st.composite
def conversations(draw: st.DrawFn) -> list[Item]:
    """Turns as an agent makes them: calls side by side, outputs in any order, developers in between."""
    items: list[Item] = [it.Message("system", "Be good.")] if draw(st.booleans()) else []
    calls = 0
    for kind in draw(st.lists(st.sampled_from(["user", "assistant", "developer", "calls", "reasoning"]), max_size=25)):
        text = words(draw(st.integers(0, 60)))
        if kind == "calls":
            names = [f"c{calls + n}" for n in range(draw(st.integers(1, 3)))]
            calls += len(names)
            items += [it.FunctionCall(name, "shell", text) for name in names]
            items += [it.FunctionCallOutput(name, text) for name in draw(st.permutations(names))]
        elif kind == "reasoning":
            items.append(it.Reasoning(content=[it.ReasoningText(text)]))
        else:
            items.append(it.Message(kind, text))  # type: ignore[arg-type]
    return [*items, it.Message("user", "and now?")] if draw(st.booleans()) else items


@given(conversations(), st.integers(200, 3000))
def test_the_end_of_a_conversation_stays(items: list[Item], window: int) -> None:
    backend = Counting(window)
    fitting = Fitting(job(items), backend)
    asyncio.run(fitting.first())
    fit = fitting.fit
    assert fit is not None
    budget = window - min(ROOM, window // 4)
    if size(items) <= budget:
        assert fit.items == items
        return
    # It is the end of the conversation, and everything that a developer said before that.
    kept = [place for place, item in enumerate(items) if any(item is one for one in fit.items)]
    spoken = [place for place in kept if not stays(items[place])]
    assert [items[place] for place in kept] == fit.items
    assert all(place in kept for place, item in enumerate(items) if stays(item))
    gone = {call_id(item) for place, item in enumerate(items) if called(item) and place not in kept}
    if spoken:
        behind = range(spoken[0], len(items))
        left_out = [items[place] for place in behind if place not in kept]
        assert all(answers(item) and call_id(item) in gone for item in left_out)
    # A call and its output stay together.
    calls = {call_id(item) for item in fit.items if called(item)}
    assert all(call_id(item) in calls for item in fit.items if answers(item))
    # Whatever fits was found.
    if size(fit.items) > budget:
        asyncio.run(fitting.tighter())
        assert fitting.fit is None


def stays(item: Item) -> bool:
    return isinstance(item, it.Message) and item.role in ("system", "developer")


def called(item: Item) -> bool:
    return isinstance(item, it.FunctionCall)


def answers(item: Item) -> bool:
    return isinstance(item, it.FunctionCallOutput)


def call_id(item: Any) -> str:
    return str(item.call_id)


def test_a_conversation_that_is_short_is_not_even_counted() -> None:
    backend = Counting(100_000)
    given = job([it.Message("user", words(10))] * 3)
    fitting = Fitting(given, backend)
    asyncio.run(fitting.first())
    assert fitting.fit is given
    assert backend.counted == 0


def test_it_is_counted_a_few_times_only() -> None:
    """Counting is as much work as reading the prompt."""
    items: list[Item] = [it.Message("user", f"{n} {words(n % 37)}") for n in range(2000)]
    backend = Counting(20_000)
    asyncio.run(Fitting(job(items), backend).first())
    assert backend.counted <= 5


def test_the_beginning_stays_the_same_for_several_turns() -> None:
    """Otherwise nothing of the prompt would be found in KV memory."""
    items: list[Item] = [it.Message("system", "Be good.")]
    begins = []
    for turn in range(60):
        items += [it.Message("user", f"question {turn} {words(20)}"), it.Message("assistant", words(40))]
        fitting = Fitting(job([*items, it.Message("user", "next")]), Counting(4000))
        asyncio.run(fitting.first())
        assert fitting.fit is not None
        begins.append(item_text(fitting.fit.items[1])[:12])
        assert isinstance(fitting.fit.items[1], it.Message) and fitting.fit.items[1].role == "user"
    changes = sum(one != other for one, other in pairwise(begins))
    assert 2 <= changes <= 60 / 3


def test_less_is_tried_until_nothing_can_go() -> None:
    items: list[Item] = [it.Message("user", f"{n} {words(20)}") for n in range(30)]

    async def work() -> None:
        fitting = Fitting(job(items), Counting(10_000))
        await fitting.first()
        sizes = []
        while fitting.fit is not None:
            sizes.append(size(fitting.fit.items))
            await fitting.tighter()
        assert sizes[0] == size(items)
        assert all(after <= before * 0.8 for before, after in pairwise(sizes[:-1]))
        assert sizes[-1] < 200

    asyncio.run(work())


def test_an_output_without_its_call_is_dropped_with_it() -> None:
    items: list[Item] = [
        it.Message("developer", "rules"),
        it.FunctionCall("a", "shell", "{}"),
        it.FunctionCall("b", "shell", "{}"),
        it.FunctionCallOutput("b", "B"),
        it.Message("developer", "more"),
        it.FunctionCallOutput("a", "A"),
    ]
    assert [item_text(item) for item in without(items, 2)] == ["rules", "{}", "B", "more"]


def test_a_chain_outgrows_its_window() -> None:
    async def work() -> None:
        backend = Watched([{"steps": [{"tokens": 60}]}])
        backend.window = 1000
        service = gateway(backend)
        response, _ = await answer(service, "first", instructions="Be good.", truncation="auto")
        assert response.truncation == "auto"
        for turn in range(14):
            said = f"turn {turn} {words(60)}"
            response, events = await answer(
                service, said, instructions="Be good.", previous_response_id=response.id, truncation="auto"
            )
            assert response.status == "completed"
            assert response.usage is not None and response.usage.input_tokens <= 1000 - 250
            assert last(events).truncation == "auto"
        assert item_text(backend.jobs[-1].items[0]) == "Be good."
        assert item_text(backend.jobs[-1].items[-1]) == said
        assert len(await service.input_items(response.id, ME)) == 29
        # Nothing is dropped in silence: the default refuses.
        refused, _ = await answer(service, "more", previous_response_id=response.id)
        assert refused.status == "failed" and refused.truncation == "disabled"
        assert refused.error is not None and refused.error.code == "context_length_exceeded"
        await freed(service)
        await service.close()

    run(work)


def test_what_cannot_be_dropped_and_does_not_fit_is_refused() -> None:
    async def work() -> None:
        backend = Watched()
        backend.window = 200
        service = gateway(backend)
        refused, _ = await answer(service, words(300), truncation="auto")
        assert refused.error is not None and refused.error.code == "context_length_exceeded"
        await service.close()

    run(work)


def test_a_server_that_counts_more_than_it_was_thought_is_given_less() -> None:
    class Estimating(Watched):
        async def count(self, job: Job) -> int:
            return (await super().count(job)) // 2

    async def work() -> None:
        backend = Estimating([{"steps": [{"text": "yes"}]}])
        backend.window = 1000
        service = gateway(backend)
        given = [{"role": "user", "content": f"{n} {words(30)}"} for n in range(50)]
        response, _ = await answer(service, given, truncation="auto")
        assert response.status == "completed"
        assert response.usage is not None and 300 < response.usage.input_tokens < 1000
        await service.close()

    run(work)


def test_a_compaction_of_a_conversation_that_is_too_long() -> None:
    async def work() -> None:
        backend = Watched([{"steps": [{"text": "A summary."}]}])
        backend.window = 1000
        service = gateway(backend)
        given: list[Any] = [{"role": "user", "content": f"{n} {words(30)}"} for n in range(50)]
        response, _ = await answer(service, [*given, {"type": "compaction_trigger"}], truncation="auto")
        assert response.status == "completed"
        assert [type(item) for item in response.output] == [it.Compaction]
        refused, _ = await answer(service, [*given, {"type": "compaction_trigger"}])
        assert refused.error is not None and refused.error.code == "context_length_exceeded"
        await service.close()

    run(work)


def test_who_stops_is_not_made_to_wait_for_a_count() -> None:
    class Slow(Watched):
        async def count(self, job: Job) -> int:
            await asyncio.sleep(30)
            return 0

    async def work() -> None:
        backend = Slow()
        backend.window = 1000
        service = gateway(backend)
        turn = await service.respond(request(words(5000), truncation="auto", tools=[SHELL]), ME)
        await asyncio.sleep(0.05)
        async with asyncio.timeout(0.5):
            final = await turn.stop("cancelled")
        assert final.status == "cancelled"
        assert not backend.jobs
        await freed(service)
        await service.close()

    run(work)

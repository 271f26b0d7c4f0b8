"""The service over a real model: event order, what each end looks like, and stop at any moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from vivace.composing import ComposedGateway, compose_gateway
from vivace.protocol import events as ev
from vivace.protocol.contracts import Generation, Principal
from vivace.protocol.items import InputText, Message, OutputText
from vivace.protocol.requests import ResponseRequest
from vivace.settings import Settings

NAME = "smollm2-135m"
ME = Principal()
OPENING = [ev.Created, ev.InProgress]
TEXT_END = [ev.TextDone, ev.PartDone, ev.ItemDone]


@pytest.fixture
def service(model_file: Callable[[str], Path]) -> Callable[[], object]:
    model_file(NAME)

    @asynccontextmanager
    async def opened() -> AsyncIterator[ComposedGateway]:
        made = compose_gateway(Settings(), database=False)
        try:
            yield made
        finally:
            await made.close()

    return opened


def request(**values: object) -> ResponseRequest:
    values = {"model": NAME, "input": "Write a Python function that adds two numbers.", **values}
    return ResponseRequest(**values)  # type: ignore[arg-type]


def checked(events: list[ev.Event]) -> list[ev.Event]:
    """What holds for every stream: numbers from 0, one response, and the same events out of their JSON."""
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [ev.decode(ev.encode(event)) for event in events] == events
    events = [event for event in events if not isinstance(event, ev.Keepalive)]
    assert isinstance(events[0], ev.Created)
    # What is refused or stopped at once has not begun.
    assert len(events) == 2 or isinstance(events[1], ev.InProgress | ev.Queued)
    responses = [event.response for event in events if hasattr(event, "response")]
    assert len({response.id for response in responses}) == 1
    assert {response.status for response in responses[:-1]} <= {"in_progress", "queued"}
    assert isinstance(events[-1], ev.Completed | ev.Incomplete | ev.Failed)
    return events


async def events_of(generation: Generation) -> list[ev.Event]:
    return checked([event async for event in generation])


async def failure(service: ComposedGateway, **values: object) -> tuple[str, str]:
    """Code and message of a request that must fail before any output."""
    *opening, failed = await events_of(service.start(request(**values), ME))
    assert all(isinstance(event, ev.Created | ev.Queued | ev.InProgress) for event in opening)
    assert isinstance(failed, ev.Failed)
    assert failed.response.status == "failed" and failed.response.error is not None and not failed.response.output
    return failed.response.error.code, failed.response.error.message


@pytest.mark.model
def test_events_come_in_order_and_the_final_object_is_what_was_streamed(
    service: Callable[[], asynccontextmanager],  # type: ignore[type-arg]
) -> None:
    async def run() -> None:
        async with service() as local:
            card = await local.open(NAME)
            assert card.name == NAME and card.takes_reference and card.context_window == 8192
            asked = request(instructions="Be brief.", max_output_tokens=25)
            generation = local.start(asked, ME)
            events = await events_of(generation)
            deltas = [event for event in events if isinstance(event, ev.TextDelta)]
            kinds = [*OPENING, ev.ItemAdded, ev.PartAdded, *[ev.TextDelta] * len(deltas), *TEXT_END, ev.Incomplete]
            assert [type(event) for event in events] == kinds and len(deltas) > 5
            text = "".join(delta.delta for delta in deltas)
            item_done, last = events[-2], events[-1]
            assert isinstance(item_done, ev.ItemDone) and isinstance(last, ev.Incomplete)
            assert last.response.output == [item_done.item]
            assert item_done.item.content == [OutputText(text)] and item_done.item.status == "incomplete"
            assert {event.item_id for event in events if hasattr(event, "item_id")} == {item_done.item.id}
            assert last.response.incomplete_details is not None
            assert last.response.incomplete_details.reason == "max_output_tokens"
            usage = last.response.usage
            assert usage is not None and usage.output_tokens == 25
            assert usage.input_tokens == await local.input_tokens(asked)
            final = await generation.stop("cancelled")
            assert (final.status, final.usage) == ("incomplete", usage)

            stopped = await events_of(local.start(request(stop=["def "]), ME))
            assert isinstance(stopped[-1], ev.Completed) and stopped[-1].response.status == "completed"
            assert "def " not in stopped[-1].response.output[0].text

            timed = (await events_of(local.start(request(max_seconds=1e-6), ME)))[-1]
            assert isinstance(timed, ev.Incomplete) and timed.response.incomplete_details is not None
            assert timed.response.incomplete_details.reason == "max_time"

    asyncio.run(run())


@pytest.mark.model
def test_items_and_a_string_make_the_same_prompt(service: Callable[[], asynccontextmanager]) -> None:  # type: ignore[type-arg]
    async def run() -> None:
        async with service() as local:
            plain = await local.input_tokens(request(input="x y z", instructions="S"))
            items = [Message("system", "S"), Message("user", [InputText("x y "), InputText("z")])]
            assert plain == await local.input_tokens(request(input=items))

    asyncio.run(run())


@pytest.mark.model
def test_stop_before_while_and_after(service: Callable[[], asynccontextmanager]) -> None:  # type: ignore[type-arg]
    async def run() -> None:
        async with service() as local:
            # Before the model is open: nothing ran.
            early = local.start(request(), ME)
            assert (await early.stop("cancelled")).status == "cancelled"
            *opening, last = await events_of(early)
            assert [type(event) for event in opening] == [ev.Created] and isinstance(last, ev.Incomplete)

            await local.open(NAME)
            for seen in (1, 3, 8):
                generation = local.start(request(max_output_tokens=4000), ME)
                iterator = aiter(generation)
                events = [await anext(iterator) for _ in range(seen)]
                first, second = await asyncio.gather(generation.stop("steered"), generation.stop("disconnect"))
                assert first == second and first.status == "cancelled"
                events += [event async for event in iterator]
                last = checked(events)[-1]
                assert isinstance(last, ev.Incomplete) and last.response.incomplete_details is not None
                assert last.response.incomplete_details.reason == "stopped"
                if last.response.usage is not None:
                    assert last.response.usage == first.usage

            ended = local.start(request(max_output_tokens=2), ME)
            events = await events_of(ended)
            assert (await ended.stop("disconnect")).status == "incomplete"

            unread = local.start(request(max_output_tokens=4000), ME)
            await asyncio.sleep(0.1)
            assert (await unread.stop("disconnect")).status == "cancelled"

    asyncio.run(run())


@pytest.mark.model
def test_requests_that_cannot_be_answered_fail_in_words(service: Callable[[], asynccontextmanager]) -> None:  # type: ignore[type-arg]
    async def run() -> None:
        async with service() as local:
            code, message = await failure(local, model="smollm2-135")
            assert code == "model_not_found" and "smollm2-135m" in message
            code, message = await failure(local, temperature=-1.0)
            assert code == "invalid_prompt" and "temperature" in message
            *_, failed = await events_of(local.start(request(input="word " * 9000), ME))
            assert isinstance(failed, ev.Failed) and failed.response.error is not None
            assert "8192" in failed.response.error.message
            # And the next one is answered.
            assert isinstance((await events_of(local.start(request(max_output_tokens=1), ME)))[-1], ev.Incomplete)

    asyncio.run(run())


@pytest.mark.model
def test_a_crash_of_the_engine_fails_what_runs_and_the_next_request_starts_it_again(
    service: Callable[[], asynccontextmanager],  # type: ignore[type-arg]
) -> None:
    async def run() -> None:
        async with service() as local:
            await local.open(NAME)
            generation = local.start(request(max_output_tokens=4000), ME)
            events = []
            async for event in generation:
                events.append(event)
                if len(events) == 6:
                    local.backends.opened()[NAME]._local.engine._process.kill()
            last = checked(events)[-1]
            assert isinstance(last, ev.Failed) and last.response.error is not None
            assert "engine process ended" in last.response.error.message
            assert (await generation.stop("disconnect")).status == "failed"
            again = (await events_of(local.start(request(max_output_tokens=2), ME)))[-1]
            assert isinstance(again, ev.Incomplete) and again.response.usage is not None

    asyncio.run(run())


def test_a_model_that_is_not_pulled_is_a_failure_with_the_command(tmp_path: Path) -> None:
    async def run() -> None:
        local = compose_gateway(Settings(models_dir=tmp_path / "models", cache_dir=tmp_path / "cache"), database=False)
        code, message = await failure(local)
        assert code == "model_not_pulled" and f"vivace models pull {NAME}" in message
        await local.close()

    asyncio.run(run())

"""One response, from its first event to its last, however it ends."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from tests.service.lines import ME, PATCH, SHELL, Watched, answer, check, freed, gateway, last, request, run
from vivace.backends.base import Job
from vivace.backends.paced import PacedRun
from vivace.errors import UsageError, VivaceError
from vivace.protocol import events as ev
from vivace.protocol import items as it
from vivace.protocol.contracts import ModelCard
from vivace.service.turn import Turn

CALLS: list[dict[str, Any]] = [
    {"reasoning": "think a bit"},
    {"text": "I look at it."},
    {"call": "shell", "arguments": {"cmd": "ls -l /tmp/somewhere/else"}},
    {"call": "apply_patch", "input": "*** Begin Patch"},
    {"text": "That is all."},
]


def test_a_whole_answer() -> None:
    async def work() -> None:
        service = gateway(rules=[{"steps": CALLS}])
        response, events = await answer(service, tools=[SHELL, PATCH], include=["reasoning.encrypted_content"])
        assert [type(event).__name__ for event in events[:2]] == ["Created", "InProgress"]
        assert [type(item).__name__ for item in response.output] == [
            *["Reasoning", "Message", "FunctionCall", "CustomToolCall", "Message"]
        ]
        assert isinstance(response.output[0], it.Reasoning)
        assert service.sealer.open("reasoning", response.output[0].encrypted_content or "") == "think a bit"
        assert response.status == "completed"
        assert response.service_tier == "default"
        assert response.usage is not None and response.usage.output_tokens > 10
        assert response.usage.output_tokens_details.reasoning_tokens == 3
        await freed(service)
        await service.close()

    run(work)


@pytest.mark.parametrize("given", [{"max_output_tokens": 3}, {"max_seconds": 0.05}])
def test_a_limit_leaves_an_incomplete_message(given: dict[str, Any]) -> None:
    async def work() -> None:
        service = gateway(rules=[{"steps": [{"tokens": 500}]}])
        response, _ = await answer(service, **given)
        assert response.status == "incomplete"
        assert response.incomplete_details is not None
        assert response.incomplete_details.reason == ("max_time" if "max_seconds" in given else "max_output_tokens")
        (message,) = response.output
        assert isinstance(message, it.Message) and message.status == "incomplete"
        await service.close()

    run(work)


def test_a_limit_inside_a_call_hands_no_call_over() -> None:
    async def work() -> None:
        backend = Watched([{"steps": CALLS[2:3]}])
        service = gateway(backend)
        response, events = await answer(service, tools=[SHELL], max_output_tokens=2)
        assert response.output == []
        assert not any(isinstance(event, ev.ItemDone) for event in events)
        await answer(service, "go on", previous_response_id=response.id)
        assert backend.jobs[1].continuation is None  # the half call is in its tokens
        await service.close()

    run(work)


@pytest.mark.parametrize(
    ("steps", "code"),
    [
        ([{"error": "rate_limit_exceeded", "message": "Please try again in 1s."}], "rate_limit_exceeded"),
        ([{"text": "half a"}, {"drop": True}], "server_error"),
        ([{"call": "shell", "arguments": {}}, {"error": "context_length_exceeded"}], "context_length_exceeded"),
    ],
)
def test_a_failure_is_told_once_and_leaves_nothing(steps: list[Any], code: str) -> None:
    async def work() -> None:
        service = gateway(rules=[{"steps": steps}])
        response, events = await answer(service)
        assert isinstance(events[-1], ev.Failed)
        assert response.error is not None and response.error.code == code
        await freed(service)
        with pytest.raises(VivaceError, match="not found"):
            await answer(service, previous_response_id=response.id)
        await service.close()

    run(work)


def test_what_a_backend_cannot_be_asked_fails_the_response() -> None:
    class Refusing(Watched):
        def start(self, job: Job) -> Any:
            raise UsageError("A stop text is empty.", param="stop")

    class Broken(Watched):
        def start(self, job: Job) -> Any:
            raise ZeroDivisionError

    async def work() -> None:
        for backend, code in ((Refusing(), "invalid_prompt"), (Broken(), "server_error")):
            service = gateway(backend)
            response, _ = await answer(service)
            assert response.error is not None and response.error.code == code
            await freed(service)
            await service.close()

    run(work)


def _moments() -> list[tuple[str, float]]:
    return [("at once", -1.0), ("in prefill", 0.02), ("thinking", 0.07), ("in a call", 0.15), ("in text", 0.6)]


@pytest.mark.parametrize(("name", "after"), _moments())
@pytest.mark.parametrize("reason", ["cancelled", "disconnect"])
def test_stop_at_any_moment(name: str, after: float, reason: Any) -> None:
    steps = [
        {"reasoning": "a b c d e", "pause": 0.01},
        {"call": "shell", "arguments": {"cmd": "a b c d e f g h i j k l"}, "pause": 0.02},
        {"text": "a b c d e f g h i j k l m n o p q r s t", "pause": 0.05},
    ]

    async def work() -> None:
        backend = Watched([{"steps": steps, "prefill": 0.05}])
        service = gateway(backend)
        turn = await service.respond(request(tools=[SHELL]), ME)
        if after >= 0:
            await asyncio.sleep(after)
        began = time.monotonic()
        # From several places at once.
        finals = await asyncio.gather(*(turn.stop(reason) for _ in range(3)))
        assert time.monotonic() - began < 0.1
        assert len({id(final) for final in finals}) == 1
        assert finals[0].status == "cancelled"
        await freed(service)
        events = [event async for event in turn]
        check(events)
        response = last(events)
        assert response.status == ("cancelled" if reason == "cancelled" else "incomplete")
        assert response.incomplete_details is not None and response.incomplete_details.reason == "stopped"
        calls = [item for item in response.output if isinstance(item, it.FunctionCall)]
        assert len(calls) == (name == "in text")
        assert (await turn.stop("cancelled")).status == "cancelled"  # after the end
        await service.close()

    run(work)


def test_stop_while_it_waits_for_a_slot() -> None:
    async def work() -> None:
        service = gateway(rules=[{"steps": [{"hang": True}]}], slots=1)
        running = await service.respond(request(), ME)
        waiting = await service.respond(request(), ME)
        third = await service.respond(request(), ME)
        await asyncio.sleep(0.02)
        events = await waiting.ready()
        assert [type(event) for event in events] == [ev.Created, ev.Queued]
        assert waiting.response.status == "queued"
        began = time.monotonic()
        await waiting.stop("cancelled")
        assert time.monotonic() - began < 0.1
        events += [event async for event in waiting]
        check(events)
        await running.stop("cancelled")
        await asyncio.sleep(0.02)
        assert third.admitted_at is not None
        told = await third.ready()
        assert [type(event) for event in told] == [ev.Created, ev.Queued, ev.InProgress]
        await third.stop("disconnect")
        await freed(service)
        await service.close()

    run(work)


def test_silence_is_broken_within_the_time_that_was_said() -> None:
    async def work() -> None:
        service = gateway(rules=[{"steps": [{"text": "late"}], "prefill": 0.5}], slots=1, keep_alive=0.1)
        turns = [await service.respond(request(), ME) for _ in range(2)]

        async def gaps(turn: Turn) -> tuple[float, list[ev.Event]]:
            events, longest, before = list[ev.Event](), 0.0, time.monotonic()
            while some := await turn.ready():
                longest, before = max(longest, time.monotonic() - before), time.monotonic()
                events += some
            return longest, events

        for longest, events in await asyncio.gather(*map(gaps, turns)):
            check(events)
            assert longest < 0.2
            assert sum(isinstance(event, ev.Keepalive) for event in events) >= 3
        await service.close()

    run(work)


def test_a_model_that_loads_for_long_is_waited_for_inside_the_response() -> None:
    class Slow(Watched):
        ready = False

        async def open(self, watch: Any) -> ModelCard:
            await asyncio.sleep(1.3)
            if self.name == "broken":
                raise VivaceError("Its file is damaged.", code="engine")
            return await super().open(watch)

    async def work() -> None:
        for name in ("slow", "broken"):
            service = gateway(Slow(name=name), keep_alive=0.1)
            stopped, turn = await asyncio.gather(*(service.respond(request(), ME) for _ in range(2)))
            await asyncio.sleep(0.05)
            began = time.monotonic()
            await stopped.stop("disconnect")
            assert time.monotonic() - began < 0.1
            events = [event async for event in turn]
            check(events)
            assert isinstance(events[1], ev.Queued)
            assert last(events).status == ("completed" if name == "slow" else "failed")
            await freed(service)
            await service.close()

    run(work)


def test_a_settlement_that_breaks_does_not_keep_the_end_from_going_out() -> None:
    async def work() -> None:
        service = gateway()

        def broken(turn: Turn) -> None:
            raise ZeroDivisionError

        service.observers.append(broken)
        response, _ = await answer(service)
        assert response.status == "completed"
        await freed(service)
        await service.close()

    run(work)


def test_a_run_is_read_to_its_end_when_it_is_steered() -> None:
    """Whoever stops a run reads on until its last piece: what it used is said there and nowhere else."""

    async def work() -> None:
        steps = [{"text": "one two three four", "pause": 0.02}, {"call": "shell", "arguments": {}}]
        backend = Watched([{"steps": steps}])
        service = gateway(backend)
        turn = await service.respond(request(tools=[SHELL]), ME)
        await asyncio.sleep(0.03)
        turn.steer(preempt=False)
        events = [event async for event in turn]
        check(events)
        response = last(events)
        assert response.incomplete_details is not None and response.incomplete_details.reason == "steered"
        (message,) = response.output
        assert isinstance(message, it.Message)
        assert (message.text, message.status) == ("one two three four", "completed")
        (made,) = backend.made
        assert isinstance(made, PacedRun)
        assert response.usage == (await made.stop()).usage
        await service.close()

    run(work)

"""Messages that are put into a running response."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from tests.service.lines import SHELL, Client, Watched, check, freed, gateway, run
from vivace.protocol import events as ev
from vivace.protocol import items as it
from vivace.service.plans import Plan, Window
from vivace.service.steering import MOST_PENDING
from vivace.service.tiers import TierFile, TierTable

TALK = {"text": "one two three four five six", "pause": 0.03}
CALL = {"call": "shell", "arguments": {"cmd": "one two three four five six"}, "pause": 0.03}


async def steered(client: Client, response_id: str, given: Any = "be brief", **fields: Any) -> None:
    client.send("steer", previous_response_id=response_id, input=given, **fields)


def texts(items: list[it.Item]) -> list[str]:
    return [it.item_text(item) for item in items]


def test_a_steer_in_a_message_ends_it_at_its_boundary_and_a_successor_follows() -> None:
    async def work() -> None:
        backend = Watched([{"when": {"user": "go"}, "steps": [TALK, CALL]}, {"steps": [{"text": "brief"}]}])
        service = gateway(backend)
        client = Client(service)
        settings = {"temperature": 0.5, "instructions": "Be good.", "tools": [SHELL], "metadata": {"a": "b"}}
        client.create("go", stream_id="main", max_output_tokens=99, **settings)
        begun = await client.of(ev.TextDelta)
        (created,) = [event for event in client.events if isinstance(event, ev.Created)]
        await steered(client, created.response.id)
        accepted = await client.of(ev.SteerAccepted)
        assert accepted.stream_id == "main" and begun.stream_id == "main"
        assert (accepted.steer.id or "").startswith("steer_") and len(accepted.steer.id or "") == 38
        first = await client.end(1)
        assert first.status == "incomplete"
        assert first.incomplete_details is not None and first.incomplete_details.reason == "steered"
        (message,) = first.output
        assert isinstance(message, it.Message)
        assert (message.text, message.status) == ("one two three four five six", "completed")
        second = await client.end(2)
        assert second.status == "completed"
        assert second.previous_response_id == first.id
        for name in ("temperature", "instructions", "tools", "metadata", "max_output_tokens", "service_tier"):
            assert getattr(second, name) == getattr(first, name)
        assert texts(backend.jobs[1].items) == ["Be good.", "go", "one two three four five six", "be brief"]
        assert all(event.stream_id == "main" for event in client.events)
        for events in client.by_response().values():
            check(events)
        await freed(service)
        await client.line.close()
        await service.close()

    run(work)


@pytest.mark.parametrize("step", [TALK, CALL], ids=["message", "call"])
def test_preempt_ends_at_the_next_token(step: dict[str, Any]) -> None:
    async def work() -> None:
        backend = Watched([{"when": {"user": "go"}, "steps": [step]}, {"steps": [{"text": "brief"}]}])
        service = gateway(backend)
        client = Client(service)
        client.create("go", tools=[SHELL])
        await client.until(lambda event: isinstance(event, ev.TextDelta | ev.ArgumentsDelta))
        began = time.monotonic()
        await steered(client, client.events[0].response.id, preempt=True)  # type: ignore[union-attr]
        first, second = await client.end(1), await client.end(2)
        assert time.monotonic() - began < 0.1
        assert first.incomplete_details is not None and first.incomplete_details.reason == "steered"
        if step is CALL:
            assert first.output == []  # dropped, and nobody may carry it out
            assert not any(isinstance(event, ev.ItemDone) for event in client.by_response()[first.id])
            assert backend.jobs[1].continuation is None
        else:
            (message,) = first.output
            assert isinstance(message, it.Message) and message.status == "incomplete"
            assert "one two three four five six".startswith(message.text)
        assert second.previous_response_id == first.id
        for events in client.by_response().values():
            check(events)
        await freed(service)
        await client.line.close()
        await service.close()

    run(work)


def test_a_steer_in_a_call_lets_it_finish_and_waits_for_its_output() -> None:
    async def work() -> None:
        backend = Watched([{"when": {"user": "go"}, "steps": [CALL]}, {"steps": [{"text": "done"}]}])
        service = gateway(backend)
        client = Client(service)
        client.create("go", tools=[SHELL])
        await client.of(ev.ArgumentsDelta)
        name = client.events[0].response.id  # type: ignore[union-attr]
        await steered(client, name, "first")
        await steered(client, name, [{"role": "user", "content": "second"}])
        first = await client.end(1)
        (call,) = first.output
        assert isinstance(call, it.FunctionCall)
        waiting = [await client.of(ev.SteerPending, n) for n in (1, 2)]
        accepted = [event.steer.id for event in client.events if isinstance(event, ev.SteerAccepted)]
        assert [event.steer.id for event in waiting] == accepted
        for event in waiting:
            assert event.reason == "waiting_for_required_input"
            assert event.required_input == [ev.RequiredInput("function_call_output", call.call_id, "shell")]
        outputs = [{"type": "function_call_output", "call_id": call.call_id, "output": "listed"}]
        # A request that is refused does not lose them.
        client.create(outputs, previous_response_id=name, tools=[SHELL], service_tier="nonsense")
        assert (await client.of(ev.ErrorEvent)).status == 400
        client.create(outputs, previous_response_id=name, tools=[SHELL])
        await client.end(2)
        assert texts(backend.jobs[1].items)[-3:] == ["first", "second", "listed"]
        assert backend.jobs[1].continuation is not None
        for events in client.by_response().values():
            check(events)
        await client.line.close()
        await service.close()

    run(work)


def test_a_steer_before_the_first_item_ends_at_once() -> None:
    async def work() -> None:
        backend = Watched([{"when": {"user": "go"}, "steps": [TALK], "prefill": 60}, {"steps": [{"text": "brief"}]}])
        service = gateway(backend, slots=1)
        client = Client(service)
        client.create("go")
        client.create("go", stream_id="queued")
        await client.of(ev.InProgress)
        await client.of(ev.Queued)
        begun = {event.stream_id: event.response.id for event in client.events if isinstance(event, ev.Created)}
        began = time.monotonic()
        await steered(client, begun["queued"], "q")
        await asyncio.sleep(0.01)
        await steered(client, begun[None], "p")
        ends = [await client.end(n) for n in (1, 2, 3, 4)]
        assert time.monotonic() - began < 0.3
        assert sorted(end.status for end in ends) == ["completed", "completed", "incomplete", "incomplete"]
        for events in client.by_response().values():
            check(events)
        await freed(service)
        await client.line.close()
        await service.close()

    run(work)


def test_a_response_that_ends_by_itself_first_is_completed_and_followed() -> None:
    async def work() -> None:
        service = gateway(rules=[{"when": {"user": "go"}, "steps": [TALK]}, {"steps": [{"text": "brief"}]}])
        client = Client(service)
        client.create("go")
        await client.of(ev.TextDelta)
        name = client.events[0].response.id  # type: ignore[union-attr]
        await steered(client, name)
        assert (await client.end(1)).status == "completed"
        second = await client.end(2)
        assert second.previous_response_id == name
        await steered(client, name, "late")
        failed = await client.of(ev.SteerFailed)
        assert failed.error.code == "response_already_completed"
        assert failed.steer.input == "late"
        await client.line.close()
        await service.close()

    run(work)


def test_what_cannot_be_steered_is_given_back() -> None:
    async def work() -> None:
        service = gateway(rules=[{"steps": [{"hang": True}]}])
        client = Client(service)
        await steered(client, "resp_unknown", "x")
        assert (await client.of(ev.SteerFailed, 1)).error.code == "response_not_found"
        client.create("go")
        await client.of(ev.InProgress)
        name = client.events[-1].response.id  # type: ignore[union-attr]
        given = [{"role": "assistant", "content": "no"}]
        for n, wrong in enumerate((given, [], ""), 2):
            await steered(client, name, wrong)
            failed = await client.of(ev.SteerFailed, n)
            assert failed.error.code == "invalid_input"
        client.create("go", stream_id="c", context_management=[{"type": "compaction", "compact_threshold": 9999}])
        created = await client.of(ev.Created, 2)
        await steered(client, created.response.id, "x")
        assert (await client.of(ev.SteerFailed, 5)).error.code == "steering_not_supported"
        client.send("cancel", response_id=name)
        client.send("cancel", response_id=created.response.id)
        await client.end(2)
        for events in client.by_response().values():
            if events[0].sequence_number == 0 and isinstance(events[0], ev.Created):
                check(events)
        await client.line.close()
        await service.close()

    run(work)


def test_the_steers_of_a_cancelled_or_failed_response_are_given_back() -> None:
    async def work() -> None:
        rules: list[dict[str, Any]] = [
            {"when": {"user": "fail"}, "steps": [TALK, {"error": "server_error"}]},
            {"steps": [TALK, {"hang": True}]},
        ]
        service = gateway(rules=rules)
        client = Client(service)
        for n, given in enumerate(("fail", "cancel"), 1):
            client.create(given)
            created = await client.of(ev.Created, n)
            await client.until(lambda event, n=n: isinstance(event, ev.TextDelta) and client.events.index(event) > n)
            await client.of(ev.InProgress, n)
            await asyncio.sleep(0.05)
            await steered(client, created.response.id, f"hear me {n}")
            await client.of(ev.SteerAccepted, n)
            if given == "cancel":
                client.send("cancel", response_id=created.response.id)
            failed = await client.of(ev.SteerFailed, n)
            assert failed.error.code == "successor_creation_failed"
            assert failed.steer.input == f"hear me {n}"
        for events in client.by_response().values():
            check(events)
        await client.line.close()
        await service.close()

    run(work)


def test_a_successor_that_is_refused_gives_its_steers_back() -> None:
    async def work() -> None:
        plan = Plan("small", windows=[Window("requests", 3600, 1)])
        tiers = TierTable(TierFile(default_plan="small", plans=[plan]))
        service = gateway(rules=[{"steps": [TALK]}], tiers=tiers)
        client = Client(service)
        client.create("go")
        await client.of(ev.TextDelta)
        created = await client.of(ev.Created)
        await steered(client, created.response.id)
        await client.end(1)
        failed = await client.of(ev.SteerFailed)
        assert failed.error.code == "successor_creation_failed"
        assert "1 requests" in failed.error.message
        assert failed.steer.input == "be brief"
        check(client.by_response()[created.response.id])
        await freed(service)
        await client.line.close()
        await service.close()

    run(work)


def test_so_many_steers_wait_and_no_more() -> None:
    async def work() -> None:
        backend = Watched([{"when": {"user": "go"}, "steps": [TALK]}, {"steps": [{"text": "brief"}]}])
        service = gateway(backend)
        client = Client(service)
        client.create("go")
        await client.of(ev.TextDelta)
        created = await client.of(ev.Created)
        for n in range(MOST_PENDING + 1):
            await steered(client, created.response.id, f"{n}")
        failed = await client.of(ev.SteerFailed)
        assert failed.error.code == "too_many_pending_steers"
        await client.end(2)
        assert texts(backend.jobs[1].items)[2:] == [f"{n}" for n in range(MOST_PENDING)]
        for events in client.by_response().values():
            check(events)
        await client.line.close()
        await service.close()

    run(work)


def test_a_steer_behind_a_whole_call_ends_the_response_as_completed_and_waits_for_its_output() -> None:
    async def work() -> None:
        steps = [{"call": "shell", "arguments": {"cmd": "ls"}}, {"delay": 5.0}, {"text": "never said"}]
        service = gateway(Watched([{"steps": steps}]))
        client = Client(service)
        client.create("go", tools=[SHELL])
        await client.of(ev.ItemDone)
        (created,) = [event for event in client.events if isinstance(event, ev.Created)]
        began = time.monotonic()
        await steered(client, created.response.id)
        first = await client.end(1)
        assert time.monotonic() - began < 1.0 and first.status == "completed"
        assert isinstance(first.output[-1], it.FunctionCall)
        pending = await client.of(ev.SteerPending)
        assert [need.call_id for need in pending.required_input] == [first.output[-1].call_id]
        await freed(service)
        await client.line.close()
        await service.close()

    run(work)

"""One connection: order inside a lane, side by side across lanes, and whatever a client does in between."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.service.lines import ENDS, ME, SHELL, STEERS, Client, Watched, check, freed, gateway, run
from vivace.protocol import events as ev
from vivace.protocol import items as it
from vivace.protocol.contracts import Principal
from vivace.service.lanes import NAMED, RUNNING
from vivace.service.plans import Plan, Window
from vivace.service.tiers import TierFile, TierTable


def test_a_lane_answers_in_order_and_lanes_side_by_side() -> None:
    async def work() -> None:
        backend = Watched(
            [{"when": {"user": "slow"}, "steps": [{"delay": 0.2}, {"text": "s"}]}, {"steps": [{"text": "f"}]}]
        )
        service = gateway(backend)
        client = Client(service)
        client.create("slow", stream_id="a")
        client.create("fast", stream_id="a")
        client.create("fast", stream_id="b")
        client.create("fast")
        for n in range(1, 5):
            await client.end(n)
        order = [event.stream_id for event in client.events if isinstance(event, ENDS)]
        assert sorted(order[:2], key=str) == [None, "b"] and order[2:] == ["a", "a"]
        for events in client.by_response().values():
            check(events)
            assert len({event.stream_id for event in events}) == 1
        await client.line.close()
        await service.close()

    run(work)


def test_so_many_run_at_a_time_and_so_many_lanes_have_names() -> None:
    async def work() -> None:
        service = gateway(rules=[{"steps": [{"delay": 0.1}, {"text": "x"}]}])
        client = Client(service)
        for n in range(NAMED):
            client.create(stream_id=f"lane{n}")
        client.create(stream_id="one_more")
        refused = await client.of(ev.ErrorEvent)
        assert (refused.status, refused.error.code, refused.stream_id) == (
            *(400, "websocket_stream_limit_reached"),
            "one_more",
        )
        client.create()  # the lane without a name does not count
        await asyncio.sleep(0.05)
        assert len(service.turns) == RUNNING
        for n in range(NAMED + 1):
            await client.end(n + 1)
        client.create(stream_id="lane0")
        await client.end(NAMED + 2)
        await freed(service)
        await client.line.close()
        await service.close()

    run(work)


def test_forks_across_lanes_share_what_was_said() -> None:
    async def work() -> None:
        backend = Watched()
        service = gateway(backend)
        client = Client(service)
        root = await client.ask("root", store=False)
        client.create("left", previous_response_id=root.id, store=False, stream_id="l")
        client.create("right", previous_response_id=root.id, store=False, stream_id="r")
        forks = [await client.end(2), await client.end(3)]
        assert {fork.previous_response_id for fork in forks} == {root.id}
        assert all(job.continuation is not None and job.known == 2 for job in backend.jobs[1:])
        for fork in forks:
            assert fork.usage is not None and fork.usage.input_tokens_details.cached_tokens > 400
        client.create("x", previous_response_id="resp_zz", stream_id="l")
        refused = await client.of(ev.ErrorEvent)
        assert (refused.status, refused.error.code, refused.error.param, refused.stream_id) == (
            *(400, "previous_response_not_found"),
            *("previous_response_id", "l"),
        )
        await client.line.close()
        # A chain outlives the connection that made it.
        again = Client(service)
        assert (await again.ask("more", previous_response_id=forks[0].id)).status == "completed"
        await again.line.close()
        await service.close()

    run(work)


def test_a_warm_up_is_answered_at_once_and_its_continuation_is_used() -> None:
    async def work() -> None:
        backend = Watched(prefill_tok_s=2000.0)
        service = gateway(backend, slots=3)
        client = Client(service)
        long = "word " * 600
        began = time.monotonic()
        warm = await client.ask([{"role": "developer", "content": long}], generate=False, tools=[SHELL])
        assert time.monotonic() - began < 0.1
        assert [type(event) for event in client.events] == [ev.Created, ev.InProgress, ev.Completed]
        assert warm.output == [] and warm.usage is not None and warm.usage.total_tokens == 0
        first = await client.ask("hello", previous_response_id=warm.id, tools=[SHELL], max_output_tokens=5)
        # The prompt was read once: the second waited for the first.
        assert 0.25 < time.monotonic() - began < 0.6
        assert first.usage is not None
        assert first.usage.input_tokens_details.cached_tokens > 600
        assert backend.jobs[1].continuation is not None
        await freed(service)
        # Found by what it says, too.
        other = await client.ask(
            [{"role": "developer", "content": long}, {"role": "user", "content": "x"}],
            tools=[SHELL],
            max_output_tokens=5,
        )
        assert backend.jobs[2].continuation is not None
        assert other.previous_response_id is None
        await client.line.close()
        await service.close()

    run(work)


def test_a_warm_up_that_waits_for_a_slot_is_passed_over() -> None:
    async def work() -> None:
        rules: list[dict[str, Any]] = [
            {"when": {"user": "hang"}, "steps": [{"hang": True}]},
            {"steps": [{"text": "ok"}]},
        ]
        backend = Watched(rules, prefill_tok_s=2000.0)
        service = gateway(backend, slots=1)
        client = Client(service)
        client.create("hang", stream_id="other")
        hanging = await client.of(ev.InProgress)
        warm = await client.ask("word " * 600, generate=False)  # although no slot is free
        client.create("go", previous_response_id=warm.id, service_tier="priority")
        await client.of(ev.Queued)
        client.send("cancel", response_id=hanging.response.id)
        assert (await client.end(3)).status == "completed"
        await asyncio.sleep(0.05)
        assert [job.prefill_only for job in backend.jobs if job.request.input != "hang"] in ([False], [True, False])
        await freed(service)
        await client.line.close()
        await service.close()

    run(work)


def test_a_warm_up_ends_with_its_connection() -> None:
    async def work() -> None:
        backend = Watched(prefill_tok_s=100.0)
        service = gateway(backend)
        client = Client(service)
        warm = await client.ask("word " * 1000, generate=False)
        client.create("go", previous_response_id=warm.id)
        await client.of(ev.InProgress, 2)
        began = time.monotonic()
        await client.line.close()
        assert time.monotonic() - began < 0.1
        await freed(service)
        cancelled = Client(service)
        warm = await cancelled.ask("word " * 999, generate=False)
        cancelled.send("cancel", response_id=warm.id)
        await asyncio.sleep(0.02)
        await freed(service)
        await cancelled.line.close()
        await service.close()

    run(work)


def test_a_connection_that_closes_frees_what_it_held() -> None:
    async def work() -> None:
        service = gateway(rules=[{"steps": [{"hang": True}]}], slots=4)
        client = Client(service)
        for n in range(20):
            client.create(stream_id=f"l{n % 10}")
        await client.of(ev.InProgress, 4)
        await client.of(ev.Queued, 6)
        began = time.monotonic()
        await asyncio.gather(client.line.close(), client.line.close())
        assert time.monotonic() - began < 0.1
        await freed(service)
        client.create()  # nobody is there any more
        while await client.line.ready():
            pass
        assert client.line.running == 0
        await service.close()

    run(work)


def test_cancel_and_what_is_no_event() -> None:
    async def work() -> None:
        service = gateway(rules=[{"steps": [{"text": "one two", "pause": 0.01}, {"hang": True}]}])
        client, other = Client(service), Client(service, Principal("somebody"))
        client.create(stream_id="a")
        created = await client.of(ev.Created)
        await client.of(ev.TextDelta)
        other.send("cancel", response_id=created.response.id)
        assert (await other.of(ev.ErrorEvent)).error.code == "response_not_found"
        client.send("cancel", response_id=created.response.id)
        ended = await client.end()
        assert ended.status == "cancelled"
        client.send("cancel", response_id=created.response.id, stream_id="a")
        late = await client.of(ev.ErrorEvent)
        assert (late.status, late.stream_id) == (404, "a")
        client.send("dance", stream_id="a")
        unknown = await client.of(ev.ErrorEvent, 2)
        assert (unknown.status, unknown.error.code, unknown.error.param) == (400, "unknown_event", "type")
        client.create(background=True)
        assert (await client.of(ev.ErrorEvent, 3)).error.param == "background"
        client.create(service_tier="nonsense", stream_id="a")
        wrong = await client.of(ev.ErrorEvent, 4)
        assert (wrong.status, wrong.error.param, wrong.stream_id) == (400, "service_tier", "a")
        check(client.by_response()[created.response.id])
        await client.line.close()
        await other.line.close()
        await service.close()

    run(work)


def test_limits_are_told_first_and_a_refusal_names_its_meter() -> None:
    async def work() -> None:
        plan = Plan("small", windows=[Window("requests", 18000, 1)])
        service = gateway(tiers=TierTable(TierFile(default_plan="small", plans=[plan])))
        client = Client(service)
        await client.ask()
        assert isinstance(client.events[0], ev.RateLimits)
        client.create(stream_id="b")
        refused = await client.of(ev.ErrorEvent)
        assert refused.status == 429 and refused.error.code == "rate_limit_exceeded"
        assert refused.headers is not None and refused.headers == refused.error.headers
        assert refused.headers["x-ratelimit-meter"] == "requests/5h/paced"
        assert int(refused.headers["retry-after"]) > 0
        assert refused.error.message.count("Please try again in") == 1
        await freed(service)
        await client.line.close()
        await service.close()

    run(work)


ACTIONS = st.one_of(
    st.tuples(
        st.just("create"), st.sampled_from([None, "a", "b", "c"]), st.sampled_from(["talk", "call", "fail", "warm"])
    ),
    st.tuples(st.just("continue"), st.integers(0, 9), st.sampled_from(["talk", "call"])),
    st.tuples(st.just("steer"), st.integers(0, 9), st.booleans()),
    st.tuples(st.just("cancel"), st.integers(0, 9)),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 0.002, 0.01])),
)
SCRIPT: list[dict[str, Any]] = [
    {
        "when": {"user": "call"},
        "steps": [{"text": "so"}, {"call": "shell", "arguments": {"cmd": "ls"}, "pause": 0.002}],
    },
    {"when": {"user": "fail"}, "steps": [{"text": "so", "pause": 0.003}, {"error": "server_error"}]},
    {"steps": [{"reasoning": "hm hm"}, {"text": "a b c d e f", "pause": 0.002}, {"call": "shell", "arguments": {}}]},
]


@settings(max_examples=120, deadline=None)
@given(st.lists(ACTIONS, min_size=1, max_size=25), st.sampled_from([1, 3, 64]), st.booleans())
def test_whatever_a_client_does(actions: list[tuple[Any, ...]], slots: int, closes: bool) -> None:
    """Each request that begins has one end and dense numbers, each steer a visible fate, and nothing is left held."""

    async def work() -> None:
        service = gateway(rules=SCRIPT, slots=slots)
        client = Client(service, ME)
        asked = 0
        began: list[str] = []

        async def read() -> None:
            while some := await client.line.ready():
                client.events.extend(some)
                began.extend(event.response.id for event in some if isinstance(event, ev.Created))

        reading = asyncio.create_task(read())
        for action in actions:
            match action:
                case ("create", lane, what):
                    asked += 1
                    client.create(what, tools=[SHELL], stream_id=lane, generate=what != "warm")
                case ("continue", n, what) if began:
                    asked += 1
                    client.create(what, tools=[SHELL], previous_response_id=began[n % len(began)])
                case ("steer", n, preempt) if began:
                    client.send("steer", previous_response_id=began[n % len(began)], input="talk", preempt=preempt)
                case ("cancel", n) if began:
                    client.send("cancel", response_id=began[n % len(began)])
                case ("wait", seconds):
                    await asyncio.sleep(seconds)
            for _ in range(6):  # so that what was asked has begun, where it can
                await asyncio.sleep(0)
        if not closes:
            async with asyncio.timeout(5):
                while client.line.running or client.line._behind:
                    client.line._behind = [turn for turn in client.line._behind if not turn.over]
                    await asyncio.sleep(0.002)
        await client.line.close()
        await reading
        await freed(service)
        by_response = {name: events for name, events in client.by_response().items() if name in began}
        for events in by_response.values():
            whole = [event for event in events if not (isinstance(event, STEERS) and _late(event))]
            check(whole, ended=not closes or any(isinstance(event, ENDS) for event in whole))
        if not closes:
            _fates(client.events, by_response)
            refused = [event for event in client.events if isinstance(event, ev.ErrorEvent)]
            successors = len(by_response) + sum(event.status != 404 for event in refused) - asked
            assert successors >= 0
        await service.close()

    run(work)


def _late(event: ev.Event) -> bool:
    """A refusal that came after the end: it is of no response's numbers."""
    return isinstance(event, ev.SteerFailed) and event.sequence_number == 0


def _fates(events: list[ev.Event], by_response: dict[str, list[ev.Event]]) -> None:
    """An accepted steer is in a successor, waits for an output (and is told so), or is given back."""
    accepted = [event.steer for event in events if isinstance(event, ev.SteerAccepted)]
    pending = {event.steer.id for event in events if isinstance(event, ev.SteerPending)}
    failed = {event.steer.id: event.steer.input for event in events if isinstance(event, ev.SteerFailed)}
    followed = {event.response.previous_response_id for event in events if isinstance(event, ev.Created)}
    for steer in accepted:
        ended = next(e.response for e in by_response[steer.previous_response_id] if isinstance(e, ENDS))
        calls = any(isinstance(item, it.FunctionCall) for item in ended.output)
        if steer.id in failed:
            assert failed[steer.id] == "talk"
        elif steer.id in pending:
            assert calls
        else:
            assert not calls
            assert steer.previous_response_id in followed

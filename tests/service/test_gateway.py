"""The service as a whole: tiers, quotas, compaction, and what each turn leaves behind."""

from __future__ import annotations

import asyncio
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.service.lines import ME, SHELL, Client, Database, Watched, answer, check, freed, gateway, last, request, run
from vivace.protocol import events as ev
from vivace.protocol import items as it
from vivace.protocol.contracts import ModelCard, Principal
from vivace.protocol.errors import BadRequest, Refused
from vivace.protocol.items import item_text
from vivace.service.plans import Plan, Window
from vivace.service.reading import SUMMARY
from vivace.service.registry import Backends
from vivace.service.summarising import SUMMARISE, SUMMARY_TOKENS
from vivace.service.tiers import BUILT_IN, Price, TierFile, TierTable

YOU = Principal("you")
COMPACT: list[dict[str, Any]] = [
    {"when": {"user": "^Write a summary"}, "steps": [{"reasoning": "hm"}, {"text": " It was about frogs. "}]},
    {"when": {"user": "call"}, "steps": [{"text": "so"}, {"call": "shell", "call_id": "c1"}]},
    {"steps": [{"text": "yes"}]},
]


def said(items: list[it.Item]) -> list[str]:
    return [item_text(item) for item in items]


async def refused(work: Any) -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        await work
    return caught.value


def test_cached_tokens_are_what_the_backend_found() -> None:
    async def work() -> None:
        service = gateway(rules=[{"steps": [{"text": "one two"}]}])
        first, _ = await answer(service, "a b c", tools=[SHELL])
        assert first.usage is not None and first.usage.input_tokens_details.cached_tokens == 0
        second, _ = await answer(service, "d", tools=[SHELL], previous_response_id=first.id)
        assert second.usage is not None
        assert (
            second.usage.input_tokens_details.cached_tokens == first.usage.total_tokens + 2
        )  # and the role of the answer
        other, _ = await answer(service, "d", previous_response_id=first.id)  # without the tools nothing is the same
        assert other.usage is not None and other.usage.input_tokens_details.cached_tokens == 0
        await service.close()

    run(work)


def test_a_resent_conversation_continues_its_chain() -> None:
    async def work() -> None:
        backend = Watched(
            [{"when": {"user": "go"}, "steps": [{"reasoning": "hm"}, {"text": "so"}]}, {"steps": [{"text": "x"}]}]
        )
        service = gateway(backend)
        await answer(service, "go", tools=[SHELL], instructions="Be good.", store=False)
        again = [
            {"role": "user", "content": [{"type": "input_text", "text": "go"}]},
            {"role": "assistant", "content": [{"type": "output_text", "text": "so"}]},
            {"role": "user", "content": "more"},
        ]
        second, _ = await answer(service, again, tools=[SHELL], instructions="Be good.", store=False)
        job = backend.jobs[-1]
        assert job.continuation is not None and job.known == 4
        assert said(job.items) == ["Be good.", "go", "hm", "so", "more"]  # what it thought is there again
        assert second.previous_response_id is None
        for fields in ({"instructions": "Be bad."}, {"principal": YOU}, {"tools": []}):
            await answer(service, again, **{"tools": [SHELL], "instructions": "Be good.", "store": False, **fields})
            assert backend.jobs[-1].continuation is None
        await service.close()

    run(work)


@pytest.mark.parametrize(
    ("asked", "served"),
    [(None, "default"), ("auto", "default"), ("fast", "priority"), ("scale", "default"), ("flex", "flex")],
)
def test_the_tier_that_serves_is_told(asked: str | None, served: str) -> None:
    async def work() -> None:
        backend = Watched()
        service = gateway(backend)
        response, events = await answer(service, service_tier=asked, priority=5, max_output_tokens=2)
        assert response.service_tier == served
        assert isinstance(events[0], ev.Created) and events[0].response.service_tier == served
        tier = service.tiers.tiers[served]
        assert backend.jobs[0].priority == tier.priority + 5
        await answer(service, principal=YOU, service_tier=asked, priority=5, max_output_tokens=2)
        assert backend.jobs[1].priority == tier.priority  # in front of others nobody gets by asking
        await answer(service, principal=YOU, service_tier=asked, priority=-5, max_output_tokens=2)
        assert backend.jobs[2].priority == tier.priority - 5
        await service.close()

    run(work)


def table(*windows: Window, concurrent: int | None = None) -> TierTable:
    plan = Plan("small", windows=list(windows), concurrent=concurrent)
    price = Price("*", Decimal(1), Decimal(2))
    return TierTable(TierFile(default_plan="small", plans=[plan], tiers=BUILT_IN, prices=[price]))


def test_a_quota_is_reserved_settled_and_refused_by_name() -> None:
    async def work() -> None:
        service = gateway(tiers=table(Window("output_tokens", 3600, 1500)), rules=[{"steps": [{"tokens": 600}]}])
        turn = await service.respond(request(), ME)
        assert turn.headers["x-service-tier"] == "default"
        assert turn.headers["x-ratelimit-limit-tokens"] == "1500"
        assert turn.headers["x-ratelimit-remaining-tokens"] == "476"
        error = await refused(service.respond(request(), ME))
        assert isinstance(error, Refused) and error.status == 429
        assert error.headers["x-ratelimit-meter"] == "output_tokens/1h/paced"
        assert "output tokens" in error.message and error.message.count("try again in") == 1
        async for _ in turn:
            pass
        after = await service.respond(request(max_output_tokens=900), ME)
        assert after.headers["x-ratelimit-remaining-tokens"] == "0"
        await after.stop("cancelled")
        await answer(service, max_output_tokens=1, principal=YOU)
        await freed(service)
        await service.close()

    run(work)


def test_a_reservation_ends_however_its_response_does() -> None:
    rules: list[dict[str, Any]] = [
        {"when": {"user": "fail"}, "steps": [{"error": "server_error"}]},
        {"when": {"user": "hang"}, "steps": [{"hang": True}]},
        {"steps": [{"text": "x"}]},
    ]

    async def work() -> None:
        service = gateway(tiers=table(concurrent=1), rules=rules)
        for given in ("x", "fail"):
            await answer(service, given)
            await freed(service)
        for reason in ("disconnect", "cancelled", "lost_race"):
            turn = await service.respond(request("hang"), ME)
            await refused(service.respond(request(), ME))
            await turn.stop(reason)  # type: ignore[arg-type]
            await freed(service)
        await answer(service, generate=False)
        await asyncio.sleep(0.02)
        await freed(service)
        for wrong in (
            {"service_tier": "no"},
            {"previous_response_id": "resp_no"},
            {"model": "no"},
            {"conversation": "c"},
        ):
            error = await refused(service.respond(request(**wrong), ME))
            assert error.status in (400, 404) and error.param == next(iter(wrong))
            await freed(service)
        assert await service.input_tokens(request()) > 0
        await freed(service)
        await service.close()

    run(work)


def test_a_compaction_trigger_makes_one_item_and_the_chain_goes_on() -> None:
    async def work() -> None:
        backend = Watched(COMPACT)
        service = gateway(backend)
        told = {"role": "developer", "content": "Be good."}
        first, _ = await answer(service, [told, {"role": "user", "content": "call"}], tools=[SHELL])
        output = {"type": "function_call_output", "call_id": "c1", "output": "frogs"}
        trigger = [output, {"type": "compaction_trigger"}]
        second, events = await answer(service, trigger, previous_response_id=first.id, tools=[SHELL])
        assert [type(event).__name__ for event in events] == [
            *["Created", "InProgress", "ItemAdded", "Compacting", "ItemDone", "Completed"]
        ]
        (item,) = second.output
        assert isinstance(item, it.Compaction)
        asked = backend.jobs[1]
        assert asked.continuation is not None and asked.tools.mode == "none"  # the same prefix, and no calls
        assert asked.tools.digest == backend.jobs[0].tools.digest
        assert said(asked.items)[-2:] == ["frogs", SUMMARISE]
        assert second.usage is not None and second.usage.input_tokens_details.cached_tokens > 0
        summary = SUMMARY + "It was about frogs."
        # By its id, as a new window, and on a server with the same key.
        await answer(service, "more", previous_response_id=second.id)
        assert said(backend.jobs[2].items) == ["Be good.", summary, "more"]
        window = [
            told,
            {"type": "compaction", "encrypted_content": item.encrypted_content},
            {"role": "user", "content": "x"},
        ]
        await answer(service, window)
        assert said(backend.jobs[3].items) == ["Be good.", summary, "x"]
        other = gateway(key=b"o" * 32)
        error = await refused(answer(other, window))
        assert (error.status, error.code, error.param) == (400, "invalid_compaction", "input[1]")
        await other.close()
        await service.close()

    run(work)


def test_a_summary_that_does_not_end_is_cut_off_and_counts() -> None:
    async def work() -> None:
        service = gateway(rules=[{"steps": [{"tokens": 10_000}]}], pace={"tok_s": 1e6})
        conversation = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "yes"}]
        response, _ = await answer(service, [*conversation, {"type": "compaction_trigger"}], max_output_tokens=5)
        assert (response.status, [type(item) for item in response.output]) == ("completed", [it.Compaction])
        assert response.usage is not None and response.usage.output_tokens == SUMMARY_TOKENS
        window, _ = await service.compact(request(conversation), ME)
        assert [type(item) for item in window] == [it.Message, it.Compaction]
        await service.close()

    run(work)


def test_a_conversation_beyond_its_threshold_is_compacted_in_its_stream(tmp_path: Path) -> None:
    database = Database(tmp_path)

    async def work() -> None:
        backend = Watched(COMPACT)
        service = database.gateway(backend)
        rules = {"context_management": [{"type": "compaction", "compact_threshold": 40}], "instructions": "I."}
        told = {"role": "developer", "content": "Be good."}
        first, _ = await answer(service, [told, {"role": "user", "content": "call " * 30}], tools=[SHELL], **rules)
        assert [type(item) for item in first.output] == [it.Message, it.FunctionCall]  # there is nothing to compact
        output = {"type": "function_call_output", "call_id": "c1", "output": "frogs"}
        second, events = await answer(service, [output], previous_response_id=first.id, tools=[SHELL], **rules)
        assert [type(item) for item in second.output] == [it.Compaction, it.Message]
        assert [event.output_index for event in events if isinstance(event, ev.ItemDone)] == [0, 1]
        summary = SUMMARY + "It was about frogs."
        # An output is nothing without its call.
        expected = ["I.", "Be good.", summary, "{}", "frogs"]
        assert said(backend.jobs[-1].items) == expected
        assert second.usage is not None and second.usage.output_tokens > 6
        await answer(service, "more", previous_response_id=second.id, instructions="I.")
        assert said(backend.jobs[-1].items) == [*expected, "yes", "more"]
        await service.close()
        backend = Watched(COMPACT)
        again = database.gateway(backend)
        await answer(again, "more", previous_response_id=second.id, instructions="I.")
        assert said(backend.jobs[-1].items) == [*expected, "yes", "more"]
        await again.close()

    run(work)
    database.close()


def test_a_window_is_compacted_on_demand() -> None:
    async def work() -> None:
        service = gateway(rules=COMPACT)
        conversation = [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "yes"},
            {"role": "user", "content": "b"},
        ]
        for known in (False, True):  # the service may know the conversation by what it says
            window, usage = await service.compact(request(conversation), ME)
            assert said(window)[:2] == ["a", "b"] and len(window) == 3
            assert isinstance(window[2], it.Compaction) and usage.output_tokens > 0
            if not known:
                await answer(service, conversation[:1])
        first, _ = await answer(service, "a")
        window, _ = await service.compact(request("b", previous_response_id=first.id), ME)
        assert said(window)[:2] == ["a", "b"] and len(window) == 3
        error = await refused(service.compact(request("x", model="no"), ME))
        assert error.status == 404
        broken = gateway(rules=[{"steps": [{"error": "rate_limit_exceeded", "message": "Slow down."}]}])
        assert (await refused(broken.compact(request(), ME))).message == "Slow down."
        silent = gateway(rules=[{"steps": [{"reasoning": "hm"}]}])
        assert "no summary" in (await refused(silent.compact(request(), ME))).message
        for each in (service, broken, silent):
            await freed(each)
            await each.close()

    run(work)


def test_thoughts_come_back_sealed_and_those_of_others_are_left_out() -> None:
    async def work() -> None:
        backend = Watched(
            [{"when": {"user": "go"}, "steps": [{"reasoning": "hm"}, {"text": "so"}]}, {"steps": [{"text": "x"}]}]
        )
        service = gateway(backend)
        response, _ = await answer(service, "go", include=["reasoning.encrypted_content"], store=False)
        thought = response.output[0]
        assert isinstance(thought, it.Reasoning)
        blob = {"type": "reasoning", "summary": [], "content": None, "encrypted_content": thought.encrypted_content}
        tail = [{"role": "assistant", "content": "so"}, {"role": "user", "content": "more"}]
        await answer(service, [{"role": "user", "content": "else"}, blob, *tail])
        assert said(backend.jobs[1].items) == ["else", "hm", "so", "more"]
        await answer(service, [{"role": "user", "content": "else2"}, {**blob, "encrypted_content": "gAAA"}, *tail])
        assert said(backend.jobs[2].items) == ["else2", "so", "more"]
        await service.close()

    run(work)


def test_a_reference_finds_what_was_put_out() -> None:
    async def work() -> None:
        backend = Watched([{"steps": [{"text": "so"}]}])
        service = gateway(backend)
        first, _ = await answer(service, "go")
        name = first.output[0].id  # type: ignore[union-attr]
        again = [
            {"role": "user", "content": "go"},
            {"type": "item_reference", "id": name},
            {"role": "user", "content": "x"},
        ]
        await answer(service, again)
        assert said(backend.jobs[1].items) == ["go", "so", "x"]
        assert backend.jobs[1].continuation is not None
        assert (await refused(answer(service, again, principal=YOU))).code == "item_not_found"
        await service.close()

    run(work)


def test_every_response_is_in_the_ledger_once_whole(tmp_path: Path) -> None:
    database = Database(tmp_path)

    async def work() -> None:
        service = database.gateway(tiers=table(), rules=[{"when": {"user": "fail"}, "steps": [{"error": "x"}]}])
        seen: list[str] = []
        service.observers.append(lambda turn: seen.append(turn.response_id))
        done, _ = await answer(service, max_output_tokens=5, service_tier="fast")
        rows = await database.ledger.latest()  # it is there when the client is told of the end
        assert [row["response"] for row in rows] == [done.id]
        assert done.usage is not None
        assert rows[0]["cost"] == 2 * (done.usage.input_tokens + 2 * done.usage.output_tokens)
        assert (rows[0]["tier"], rows[0]["status"], rows[0]["output_tokens"]) == ("priority", "incomplete", 5)
        failed, _ = await answer(service, "fail")
        warm, _ = await answer(service, "warm", generate=False)
        await asyncio.sleep(0.05)
        rows = await database.ledger.latest()
        assert [row["response"] for row in rows] == [warm.id, failed.id, done.id]
        assert rows[0]["input_tokens"] > 0 and rows[0]["output_tokens"] == 0
        assert seen == [done.id, failed.id, warm.id]
        await service.close()

    run(work)
    database.close()


def test_models_are_those_that_the_principal_may_use() -> None:
    async def work() -> None:
        plan = Plan("small", models=["pac*"])
        service = gateway(tiers=TierTable(TierFile(default_plan="small", plans=[plan])))
        opened: list[str] = []

        def make(name: str) -> Any:
            opened.append(name)
            return Watched(name=name) if name == "made" else None

        service.backends = Backends({"paced": Watched(), "other": Watched()}, make=make, makeable=lambda: ["made"])
        service.desk.backends = service.backends
        assert [card.name for card in await service.models(ME)] == ["paced"]
        assert opened == []  # listing them loads nothing
        error = await refused(answer(service, model="other"))
        assert (error.status, error.code) == (400, "model_not_allowed")
        error = await refused(answer(service, model="pacd"))
        assert (error.status, error.code) == (404, "model_not_found")
        assert "paced" in error.message
        await service.close()

    run(work)


def test_drain_lets_what_runs_end_and_takes_nothing_new() -> None:
    async def work() -> None:
        service = gateway(rules=[{"when": {"user": "long"}, "steps": [{"hang": True}]}, {"steps": [{"tokens": 100}]}])
        turns = [await service.respond(request(given), ME) for given in ("short", "long")]
        began = time.monotonic()
        await service.drain(0.3)
        assert 0.25 < time.monotonic() - began < 0.5
        assert turns[0].response.status == "completed"
        error = await refused(service.respond(request(), ME))
        assert (error.status, error.code) == (503, "server_error")
        await service.close()
        assert turns[1].response.status == "cancelled"
        await freed(service)

    run(work)


def test_start_tells_everything_as_events() -> None:
    async def work() -> None:
        service = gateway(rules=[{"steps": [{"text": "a"}]}])
        whole = [event async for event in service.start(request(), ME)]
        check(whole)
        assert last(whole).status == "completed"
        wrong = [event async for event in service.start(request(model="no"), ME)]
        assert isinstance(wrong[0], ev.Created) and isinstance(wrong[-1], ev.Failed)
        assert wrong[-1].response.error is not None and wrong[-1].response.error.code == "model_not_found"
        await service.close()

    run(work)


def test_opening_is_shared_and_outlives_who_asked_first() -> None:
    class Slow(Watched):
        ready = False

        opens = 0

        async def open(self, watch: Any) -> ModelCard:
            self.opens += 1
            await asyncio.sleep(0.1)
            return await super().open(watch)

    async def work() -> None:
        backend = Slow()
        service = gateway(backend)
        client = Client(service)
        client.create()
        await asyncio.sleep(0.02)
        waiting = asyncio.create_task(answer(service))
        await asyncio.sleep(0.02)
        await client.line.close()  # it was the first to ask
        response, _ = await waiting
        assert response.status == "completed" and backend.opens == 1
        await service.close()

    run(work)

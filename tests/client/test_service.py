"""A service over its connection: what comes, what ends it, and what a broken connection leaves."""

from __future__ import annotations

import asyncio
import gc
import json
import time
import weakref
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from websockets.asyncio.server import ServerConnection

from tests.client.serving import MODEL, delta, scripted, serving, text_of, told
from tests.protocol.strategies import items, optional_text, text
from vivace.backends.paced_tokens import DEFAULT_TOKENS
from vivace.client.generation import RemoteGeneration
from vivace.client.http import Answer
from vivace.client.line import LANES, Line
from vivace.client.service import RemoteService, _Entry, _read
from vivace.errors import VivaceError
from vivace.protocol import events as ev
from vivace.protocol.contracts import ModelCard, Principal
from vivace.protocol.requests import CreateFrame, Prediction, ResponseRequest, decode_frame

ME = Principal()


def asking(words: str = "hello", **fields: object) -> ResponseRequest:
    return ResponseRequest(model=MODEL, input=words, **fields)  # type: ignore[arg-type]


async def read(generation: RemoteGeneration) -> list[ev.Event]:
    """All events, with what holds for every stream."""
    events = [event async for event in generation]
    numbers = [event.sequence_number for event in events if event.sequence_number is not None]
    assert numbers == list(range(len(numbers)))
    assert isinstance(events[0], ev.Created) and isinstance(events[-1], ev.Completed | ev.Incomplete | ev.Failed)
    assert len({event.response.id for event in events if hasattr(event, "response")}) == 1
    assert all(event.stream_id is None for event in events)
    return events


def failure(events: list[ev.Event]) -> tuple[str, str]:
    end = events[-1]
    assert isinstance(end, ev.Failed) and end.response.error is not None
    return end.response.error.code, end.response.error.message


def test_an_answer_comes_as_it_was_made(tmp_path: Path) -> None:
    with serving(tmp_path) as server:

        async def main() -> None:
            service = RemoteService(server.address)
            events = await read(service.start(asking(), ME))
            assert isinstance(events[-1], ev.Completed) and events[-1].response.usage is not None
            assert events[-1].response.usage.output_tokens == DEFAULT_TOKENS
            assert text_of(events) == events[-1].response.output[0].content[0].text  # type: ignore[union-attr]
            assert await service.input_tokens(asking("one two three")) > await service.input_tokens(asking("one"))
            await service.close()

        asyncio.run(main())


def test_many_run_at_once_and_further_ones_wait(tmp_path: Path) -> None:
    with serving(tmp_path, tok_s=4000) as server:

        async def main() -> int:
            service = RemoteService(server.address)
            reading = [asyncio.create_task(read(service.start(asking(f"number {n}"), ME))) for n in range(40)]
            most = 0
            while not all(task.done() for task in reading):
                most = max(most, len(server.turns))
                await asyncio.sleep(0.005)
            ends = [task.result()[-1] for task in reading]
            assert all(isinstance(end, ev.Completed) for end in ends)
            assert len({end.response.id for end in ends}) == 40  # type: ignore[union-attr]
            await service.close()
            return most

        assert 2 < asyncio.run(main()) <= LANES


@pytest.mark.parametrize("after", [0.0, 0.02, 0.2])
def test_stop_ends_it_within_100_ms(tmp_path: Path, after: float) -> None:
    """At any moment: before it left, before its first event, in the middle. The lane is free again."""
    with serving(tmp_path, tok_s=100, ttft=0.05) as server:

        async def main() -> None:
            service = RemoteService(server.address)
            await read_first(service)
            generation = service.start(asking(), ME)
            await asyncio.sleep(after)
            began = time.perf_counter()
            final, again = await asyncio.gather(generation.stop("cancelled"), generation.stop("lost_race"))
            assert time.perf_counter() - began < 0.1
            assert final.status == again.status == "cancelled"
            events = await read(generation)
            assert isinstance(events[-1], ev.Incomplete) and events[-1].response.status == "cancelled"
            assert (await generation.stop("cancelled")) == final
            assert len(service.line._free) == LANES
            while server.turns:
                await asyncio.sleep(0.01)
            await service.close()

        asyncio.run(main())


async def read_first(service: RemoteService) -> None:
    """Connect, so that what is measured is not the import of a library."""
    first = service.start(asking(max_output_tokens=1), ME)
    assert isinstance((await read(first))[-1], ev.Incomplete)


def test_stop_of_those_that_wait_for_a_lane_and_of_ended_ones(tmp_path: Path) -> None:
    with serving(tmp_path, tok_s=50) as server:

        async def main() -> None:
            service = RemoteService(server.address)
            all_ = [service.start(asking(), ME) for _ in range(LANES + 8)]
            await asyncio.sleep(0.2)
            assert (await all_[-1].stop("cancelled")).status == "cancelled"
            assert len(await read(all_[-1])) == 2
            began = time.perf_counter()
            finals = await asyncio.gather(*(one.stop("cancelled") for one in all_))
            assert time.perf_counter() - began < 1.0
            assert {final.status for final in finals} == {"cancelled"}
            done = service.start(asking(max_output_tokens=1), ME)
            await read(done)
            assert (await done.stop("cancelled")).status == "incomplete"
            await service.close()

        asyncio.run(main())


def test_a_refused_request_fails_alone(tmp_path: Path) -> None:
    with serving(tmp_path) as server:

        async def main() -> None:
            service = RemoteService(server.address)
            other = service.start(asking(), ME)
            wrong = service.start(ResponseRequest(model="no-such-model", input="x"), ME)
            code, message = failure(await read(wrong))
            assert code == "model_not_found" and "no-such-model" in message
            assert (await wrong.stop("cancelled")).status == "failed"
            assert isinstance((await read(other))[-1], ev.Completed)
            await service.close()

        asyncio.run(main())


def test_a_connection_that_breaks_fails_what_had_begun_and_the_next_one_works(tmp_path: Path) -> None:
    with serving(tmp_path, tok_s=100) as server:

        async def main() -> None:
            service = RemoteService(server.address)
            generation = service.start(asking(), ME)
            stream = aiter(generation)
            while not isinstance(await anext(stream), ev.TextDelta):
                pass
            server.close_connections()
            rest = [event async for event in stream]
            code, message = failure(rest)
            assert code == "service_gone" and "broke in the middle of the answer" in message
            assert (await generation.stop("cancelled")).status == "failed"
            await read_first(service)
            await service.close()

        asyncio.run(main())


def test_what_had_no_event_is_sent_again_once(tmp_path: Path) -> None:
    frames: list[str] = []

    async def drop_first(connection: ServerConnection) -> None:
        frame = await connection.recv()
        assert isinstance(frame, str)
        frames.append(frame)
        if len(frames) == 1:
            connection.transport.abort()
            return
        lane = json.loads(frame)["stream_id"]
        await connection.send(told("response.created", lane, 0))
        await connection.send(told("response.completed", lane, 1, response={"status": "completed"}))
        await connection.wait_closed()

    async def main() -> None:
        async with scripted(tmp_path, drop_first) as service:
            assert isinstance((await read(service.start(asking(), ME)))[-1], ev.Completed)
        assert len(frames) == 2 and frames[0] == frames[1]

    asyncio.run(main())


def test_a_server_that_always_closes_is_not_asked_for_ever(tmp_path: Path) -> None:
    connections = 0

    async def refuse(connection: ServerConnection) -> None:
        nonlocal connections
        connections += 1
        await connection.recv()
        said = {"type": "error", "status": 400, "error": {"message": "The message is too large", "code": "too_large"}}
        await connection.send(json.dumps(said))
        await connection.close(1009)

    async def main() -> None:
        async with scripted(tmp_path, refuse) as service:
            code, message = failure(await read(service.start(asking(), ME)))
        assert code == "service_gone" and "The message is too large" in message and connections == 2

    asyncio.run(main())


def test_what_is_no_event_ends_the_connection(tmp_path: Path) -> None:
    async def babble(connection: ServerConnection) -> None:
        lane = json.loads(await connection.recv())["stream_id"]
        await connection.send(told("response.created", lane, 0))
        await connection.send("{]")
        await connection.wait_closed()

    async def main() -> None:
        async with scripted(tmp_path, babble) as service:
            assert "what it sent is no event" in failure(await read(service.start(asking(), ME)))[1]

    asyncio.run(main())


def test_an_error_after_the_end_is_not_the_next_responses(tmp_path: Path) -> None:
    """A cancel crosses the end of its response on the wire; the server's answer to it names no lane."""

    async def cross(connection: ServerConnection) -> None:
        lane = json.loads(await connection.recv())["stream_id"]
        await connection.send(told("response.created", lane, 0))
        await connection.send(delta(lane, 1, "a"))
        cancel = json.loads(await connection.recv())
        assert cancel["type"] == "response.cancel" and "stream_id" not in cancel
        await connection.send(told("response.completed", lane, 2, response={"status": "completed"}))
        lane = json.loads(await connection.recv())["stream_id"]
        error = {"message": "No response runs", "code": "response_not_found"}
        await connection.send(json.dumps({"type": "error", "status": 404, "error": error}))
        await connection.send(told("response.created", lane, 0))
        await connection.send(told("response.completed", lane, 1, response={"status": "completed"}))
        await connection.wait_closed()

    async def main() -> None:
        async with scripted(tmp_path, cross) as service:
            first = service.start(asking(), ME)
            stream = aiter(first)
            while not isinstance(await anext(stream), ev.TextDelta):
                pass
            assert (await first.stop("cancelled")).status == "completed"
            assert isinstance((await read(service.start(asking(), ME)))[-1], ev.Completed)

    asyncio.run(main())


def test_nobody_there(tmp_path: Path) -> None:
    async def main() -> None:
        service = RemoteService(f"unix:{tmp_path}/none.sock")
        code, message = failure(await read(service.start(asking(), ME)))
        assert code == "service_gone" and "none.sock cannot be reached: No such file" in message
        with pytest.raises(VivaceError, match="cannot be reached") as caught:
            await service.open(MODEL)
        assert caught.value.code == "service_gone" and "Does it run?" in caught.value.hint
        await service.close()

    asyncio.run(main())


def test_close_ends_what_runs(tmp_path: Path) -> None:
    with serving(tmp_path, tok_s=50) as server:

        async def main() -> None:
            service = RemoteService(server.address)
            running = service.start(asking(), ME)
            await anext(aiter(running))
            await service.close()
            assert (await running.stop("cancelled")).status == "failed"
            late = service.start(asking(), ME)
            assert failure(await read(late))[0] == "service_closed"
            for _ in range(200):
                if not server.turns:
                    break
                await asyncio.sleep(0.01)
            assert not server.turns

        asyncio.run(main())


def test_nothing_is_kept_of_what_has_ended(tmp_path: Path) -> None:
    with serving(tmp_path) as server:

        async def main() -> None:
            service = RemoteService(server.address)
            generation = service.start(asking("x" * 100_000, max_output_tokens=3), ME)
            await read(generation)
            assert generation.request is None
            gone = weakref.ref(generation)
            del generation
            await asyncio.sleep(0)
            gc.collect()
            assert gone() is None
            await service.close()

        asyncio.run(main())


def test_the_model_is_described_and_an_unknown_one_named(tmp_path: Path) -> None:
    with serving(tmp_path) as server:

        async def main() -> None:
            service = RemoteService(server.address)
            card = await service.open(MODEL)
            assert (card.name, card.context_window, card.owned_by) == (MODEL, 131_072, "vivace")
            with pytest.raises(VivaceError, match="no-such") as caught:
                await service.open("no-such")
            assert (caught.value.code, caught.value.param, caught.value.exit_code) == ("model_not_found", "model", 2)
            await service.close()

        asyncio.run(main())


def test_what_a_model_offers_is_read_from_its_entry() -> None:
    entry = b"""{"id": "m", "object": "model", "owned_by": "vivace", "max_model_len": 100, "dialect": "chatml",
        "takes_reference": true, "detail": "int8", "tools": true, "reasoning": true, "tiers": ["default"]}"""
    card = _read(Answer(200, entry), _Entry).card("here")
    assert card == ModelCard("m", 100, "chatml", True, "int8", True, True, "vivace", ("default",))
    with pytest.raises(VivaceError, match="does not say how long the window of m is"):
        _read(Answer(200, b'{"id": "m"}'), _Entry).card("here")
    with pytest.raises(VivaceError, match="cannot be read"):
        _read(Answer(200, b"<html>"), _Entry)


def test_a_key_is_shown_over_tcp(tmp_path: Path) -> None:
    async def authenticate(secret: str) -> Principal | None:
        return Principal("ann") if secret == "right" else None

    with serving(tmp_path, tcp=True, authenticate=authenticate) as server:

        async def main() -> None:
            service = RemoteService(server.address + "/v1", "right")
            assert await service.input_tokens(asking()) > 0
            await read_first(service)
            await service.close()
            assert {turn.asked.principal.id for turn in server.seen} == {"ann"}
            wrong = RemoteService(server.address, "wrong")
            with pytest.raises(VivaceError, match="not valid") as caught:
                await wrong.input_tokens(asking())
            assert caught.value.code == "invalid_api_key"
            code, message = failure(await read(wrong.start(asking(), ME)))
            assert code == "invalid_api_key" and "not valid" in message
            await wrong.close()

        asyncio.run(main())


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    st.builds(
        ResponseRequest,
        model=text,
        input=text | st.lists(items, max_size=3),
        instructions=optional_text,
        prediction=st.none() | st.builds(Prediction, text),
        seed=st.none() | st.integers(-(2**62), 2**62),
        stop=st.lists(text, max_size=2),
        max_seconds=st.none() | st.floats(0.01, 1e6),
        temperature=st.none() | st.floats(0, 2),
        priority=st.integers(-5, 5),
        stream_id=st.sampled_from([None, "mine"]),
        stream=st.sampled_from([None, True]),
    )
)
def test_a_frame_is_its_request(request: ResponseRequest) -> None:
    line = Line.__new__(Line)
    frame = decode_frame(RemoteGeneration(line, request).frame("7"))
    assert isinstance(frame, CreateFrame) and frame.stream_id == "7" and frame.stream is None
    for name in request.__struct_fields__:
        if name not in ("stream_id", "stream"):
            assert getattr(frame, name) == getattr(request, name), name

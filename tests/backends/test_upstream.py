"""The upstream backend against a real local server: streams, faults, retries, replicas, stops."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from tests.backends.asking import PATCH, SHELL, assembled, job, read, text_of
from tests.fakes.upstream import MODEL, FakeUpstream, Reply, Seen, chunk, error, saying, usage_chunk
from vivace.backends.base import CallEnd, CallStart, CallText, End, Piece, Reasoning, Text
from vivace.backends.replicas import Replica
from vivace.backends.upstream import Upstream, UpstreamBackend
from vivace.errors import VivaceError
from vivace.protocol.requests import Prediction


def quiet(stage: str, share: float) -> None:
    """Nobody watches."""


def upstream(*fakes: FakeUpstream, **fields: Any) -> UpstreamBackend:
    replicas = tuple(Replica(fake.base_url, "secret") for fake in fakes)
    return UpstreamBackend(Upstream(name="up", replicas=replicas, **fields))


def play(
    handler: Callable[[Seen], Reply] | list[Reply],
    do: Callable[[UpstreamBackend, FakeUpstream], Awaitable[None]],
    models: list[dict[str, Any]] | None = None,
    **fields: Any,
) -> None:
    """``do`` with a backend on a fake server."""

    async def main() -> None:
        async with FakeUpstream(handler, models) as fake:
            backend = upstream(fake, **fields)
            try:
                await do(backend, fake)
            finally:
                await backend.close()

    asyncio.run(main())


def answer(replies: list[Reply], given: Any = None, **fields: Any) -> tuple[list[Piece], End, FakeUpstream]:
    """What a job comes to, and the server that saw it."""
    found: list[Any] = []

    async def do(backend: UpstreamBackend, fake: FakeUpstream) -> None:
        await backend.open(quiet)
        found.extend([*await read(backend.start(given or job())), fake])

    play(replies, do, **fields)
    return found[0], found[1], found[2]


def test_text_thoughts_and_usage() -> None:
    reply = Reply(
        events=[
            chunk(role="assistant", content=""),
            chunk(reasoning_content="Hm. "),
            chunk(reasoning="Yes."),
            chunk(content="Hel"),
            chunk(content="lo"),
            chunk("stop"),
            usage_chunk(12, 5, 8),
            "[DONE]",
        ]
    )
    pieces, end, fake = answer([reply])
    assert "".join(piece.text for piece in pieces if isinstance(piece, Reasoning)) == "Hm. Yes."
    assert text_of(pieces) == "Hello"
    assert (end.reason, end.usage.input_tokens, end.usage.output_tokens) == ("stop", 12, 5)
    assert end.usage.input_tokens_details.cached_tokens == 8
    assert fake.bodies[0]["stream_options"] == {"include_usage": True}
    assert fake.seen[-1].headers["authorization"] == "Bearer secret"


def test_pieces_cut_anywhere() -> None:
    reply = saying("Grüße, ", "日本", "\u2028!")
    reply.pieces = lambda data: [data[n : n + 1] for n in range(len(data))]
    pieces, end, _ = answer([reply])
    assert text_of(pieces) == "Grüße, 日本\u2028!"
    assert end.reason == "stop"


def test_a_server_without_numbers_for_its_calls() -> None:
    """Ollama sends a call whole, with arguments as an object or a text, and no index."""
    call = {"id": "call_a", "function": {"name": "shell", "arguments": {"cmd": "ls"}}}
    other = {"id": "call_b", "function": {"name": "shell", "arguments": '{"cmd":"pwd"}'}}
    reply = Reply(events=[chunk(tool_calls=[call]), chunk(tool_calls=[other]), chunk("tool_calls"), "[DONE]"])
    pieces, end, _ = answer([reply], job(tools=[SHELL]))
    assert assembled(pieces) == [("shell", "call_a", '{"cmd":"ls"}', True), ("shell", "call_b", '{"cmd":"pwd"}', True)]
    assert end.reason == "stop"


def test_a_custom_tool_comes_back_as_raw_text() -> None:
    arguments = msgspec.json.encode({"input": '*** Begin Patch\n"é"\n'}).decode()
    half = len(arguments) // 2
    calls = [
        {"index": 0, "id": "call_p", "function": {"name": "apply_patch", "arguments": arguments[:half]}},
        {"index": 0, "function": {"arguments": arguments[half:]}},
    ]
    reply = Reply(events=[*(chunk(tool_calls=[call]) for call in calls), chunk("tool_calls"), "[DONE]"])
    pieces, _, fake = answer([reply], job(tools=[PATCH]))
    assert pieces[0] == CallStart("apply_patch", "call_p", raw=True)
    assert "".join(piece.text for piece in pieces if isinstance(piece, CallText)) == '*** Begin Patch\n"é"\n'
    assert pieces[-1] == CallEnd()
    function = fake.bodies[0]["tools"][0]["function"]
    assert "lark grammar" in function["description"]
    assert function["parameters"]["required"] == ["input"]


@pytest.mark.parametrize(
    ("printed", "dialect", "calls"),
    [
        ('```json\n{"name": "shell", "arguments": {"cmd": "ls"}}\n```', "hermes", 1),
        ('<tool_call>\n{"name": "shell", "arguments": {"cmd": "ls"}}\n</tool_call>', "hermes", 1),
        ("<tool_call>\n<function=shell>\n<parameter=cmd>\nls\n</parameter>\n</function>\n</tool_call>", "qwen-xml", 1),
        ('<tool_call>\n{"name": "shell", "arguments": {"cmd": "ls"}}\n</tool_call>', "none", 0),
        ('```json\n{"name": "else", "arguments": {"cmd": "ls"}}\n```', "hermes", 0),
    ],
)
def test_calls_that_a_server_leaves_in_the_text(printed: str, dialect: str, calls: int) -> None:
    reply = saying(*(printed[n : n + 3] for n in range(0, len(printed), 3)))
    pieces, end, _ = answer([reply], job(tools=[SHELL]), dialect=dialect)
    found = assembled(pieces)
    assert end.reason == "stop"
    assert [(name, json.loads(text), ended) for name, _, text, ended in found] == [
        ("shell", {"cmd": "ls"}, True)
    ] * calls
    assert text_of(pieces) == ("" if calls else printed)
    unasked, _, _ = answer([reply], job(), dialect=dialect)
    assert text_of(unasked) == printed, "no tool was offered"


def test_a_call_cut_by_the_limit_is_not_ended() -> None:
    call = {"index": 0, "id": "call_a", "function": {"name": "shell", "arguments": '{"cmd":"rm -r'}}
    reply = Reply(events=[chunk(tool_calls=[call]), chunk("length"), "[DONE]"])
    pieces, end, _ = answer([reply], job(tools=[SHELL]))
    assert pieces[0] == CallStart("shell", "call_a")
    assert CallEnd() not in pieces
    assert end.reason == "length"


def test_a_broken_stream_is_an_error_and_its_call_is_not_ended() -> None:
    call = {"index": 0, "id": "call_a", "function": {"name": "shell", "arguments": '{"cmd":'}}
    pieces, end, fake = answer(
        [Reply(events=[chunk(content="Well"), chunk(tool_calls=[call])], cut=True)], job(tools=[SHELL])
    )
    assert (end.reason, end.code) == ("error", "server_error")
    assert "lost" in end.message
    assert CallEnd() not in pieces
    assert len(fake.bodies) == 1, "a stream that had begun was asked for again"
    assert end.usage.output_tokens > 0


def test_an_error_in_the_stream() -> None:
    told = {"error": {"message": "maximum context length is 4096 tokens", "code": 400}}
    _, end, _ = answer([Reply(events=[told])])
    assert (end.reason, end.code) == ("error", "context_length_exceeded")


def test_retries_before_the_first_piece() -> None:
    replies = [error(500, "hiccup"), error(429, "slow down", retry_after_ms="20"), saying("ok")]
    pieces, end, fake = answer(replies)
    assert (text_of(pieces), end.reason, len(fake.bodies)) == ("ok", "stop", 3)


def test_retries_are_bounded() -> None:
    _, end, fake = answer([error(500, "always")], retries=1)
    assert (end.reason, end.code, len(fake.bodies)) == ("error", "server_error", 2)
    assert "always" in end.message


def test_a_long_rest_is_passed_on_instead_of_waited_for() -> None:
    began = time.perf_counter()
    _, end, fake = answer([error(429, "quota of the minute", retry_after="55")])
    assert (end.code, end.retry_after, len(fake.bodies)) == ("rate_limit_exceeded", 55.0, 1)
    assert time.perf_counter() - began < 5


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (error(400, "This model's maximum context length is 4096 tokens."), "context_length_exceeded"),
        (error(400, "too long", "context_length_exceeded"), "context_length_exceeded"),
        (error(400, "the request exceeds the available context size"), "context_length_exceeded"),
        (Reply(400, {"error": {"message": "x", "type": "exceed_context_size_error"}}), "context_length_exceeded"),
        (error(400, "temperature is odd", param="temperature"), "invalid_prompt"),
        (error(429, "no money", "insufficient_quota"), "insufficient_quota"),
        (error(404, "The model `x` does not exist."), "model_not_found"),
        (error(401, "bad key"), "server_error"),
        (Reply(422, {"detail": [{"loc": ["body"], "msg": "bad"}]}), "invalid_prompt"),
        (Reply(400, b"<html>no</html>"), "invalid_prompt"),
    ],
)  # fmt: skip
def test_refusals_in_openai_words(reply: Reply, code: str) -> None:
    _, end, fake = answer([reply])
    assert (end.reason, end.code, len(fake.bodies)) == ("error", code, 1)
    assert end.usage.total_tokens == 0


def test_stop_closes_the_connection_within_100_ms() -> None:
    async def do(backend: UpstreamBackend, fake: FakeUpstream) -> None:
        await backend.open(quiet)
        run = backend.start(job())
        pieces = aiter(run)
        assert await anext(pieces) == Text("begin")
        began = time.perf_counter()
        end = await run.stop()
        stopped = time.perf_counter() - began
        while not fake.left and time.perf_counter() - began < 1:
            await asyncio.sleep(0.001)
        assert fake.left[0] - began < 0.1
        assert stopped < 0.1
        assert end.reason == "aborted"
        assert end.usage.output_tokens == 2, "five characters, four a token"
        assert await anext(pieces) == end
        assert await run.stop() == end

    play([Reply(events=[chunk(content="begin")], hang=True)], do)


def test_stop_before_anything_happened_and_during_a_pause() -> None:
    async def do(backend: UpstreamBackend, fake: FakeUpstream) -> None:
        await backend.open(quiet)
        run = backend.start(job())
        assert (await run.stop()).reason == "aborted"
        assert not fake.bodies
        run = backend.start(job())
        while not fake.bodies:
            await asyncio.sleep(0.001)
        assert (await run.stop()).reason == "aborted"
        assert [end async for end in run] == [await run.stop()]

    play([error(429, "later", retry_after="5")], do)


def test_closing_ends_what_runs() -> None:
    async def do(backend: UpstreamBackend, fake: FakeUpstream) -> None:
        await backend.open(quiet)
        reading = asyncio.gather(*(read(backend.start(job())) for _ in range(3)))
        while len(fake.bodies) < 3:
            await asyncio.sleep(0.001)
        await backend.close()
        assert [end.reason for _, end in await reading] == ["aborted"] * 3
        assert not backend.runs

    play([Reply(events=[chunk(content="begin")], hang=True)], do)


def test_a_time_limit() -> None:
    began = time.perf_counter()
    pieces, end, _ = answer([Reply(events=[chunk(content="begin")], hang=True)], job(max_seconds=0.1))
    assert (text_of(pieces), end.reason) == ("begin", "time")
    assert time.perf_counter() - began < 2


def test_lessons_are_remembered_and_meaning_is_never_dropped() -> None:
    def strict(seen: Seen) -> Reply:
        roles = [message["role"] for message in seen.body["messages"]]
        if "developer" in roles:
            return error(400, "Unexpected message role.")
        if "system" in roles[1:]:
            return error(500, "System message must be at the beginning.")
        if "prediction" in seen.body:
            return error(400, "Unrecognized request argument supplied: prediction", param="prediction")
        if "stream_options" in seen.body:
            return Reply(
                422, {"detail": [{"loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted"}]}
            )
        if "top_k" in seen.body:
            return error(400, "Unrecognized request argument supplied: top_k", param="top_k")
        return saying("fine")

    items = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": "Again"},
    ]

    async def do(backend: UpstreamBackend, fake: FakeUpstream) -> None:
        card = await backend.open(quiet)
        assert card.takes_reference
        pieces, end = await read(backend.start(job(items, prediction=Prediction("fine"))))
        assert (text_of(pieces), end.reason) == ("fine", "stop")
        last = fake.bodies[-1]["messages"]
        assert [message["role"] for message in last] == ["system", "user", "assistant", "user"]
        assert last[-1]["content"] == "[system]\nBe kind.\n\nAgain"
        before = len(fake.bodies)
        await read(backend.start(job(items)))
        assert len(fake.bodies) == before + 1, "what was learned was asked again"
        assert not (await backend.open(quiet)).takes_reference
        _, end = await read(backend.start(job(top_k=5)))
        assert (end.reason, end.code) == ("error", "invalid_prompt")
        assert "top_k" in end.message

    play(strict, do, developer="developer")


def test_failover_before_the_first_piece_and_back() -> None:
    async def main() -> None:
        async with FakeUpstream([saying("one")]) as one, FakeUpstream([saying("two")]) as two:
            backend = upstream(one, two, probe_every=0.2)
            await backend.open(quiet)
            first, _ = await read(backend.start(job(affinity="a")))
            same = {text_of((await read(backend.start(job(affinity="a"))))[0]) for _ in range(4)}
            assert same == {text_of(first)}, "a conversation moved without a reason"
            home, other = (one, two) if text_of(first) == "one" else (two, one)
            await home.__aexit__(None, None, None)
            moved, end = await read(backend.start(job(affinity="a")))
            assert end.reason == "stop"
            assert text_of(moved) != text_of(first)
            for _ in range(3):
                await read(backend.start(job(affinity="a")))
            health = next(h for h in backend.replicas.all if h.replica.base_url == home.base_url)
            assert health.open
            assert "cannot be reached" in health.reason
            await other.__aexit__(None, None, None)
            _, end = await read(backend.start(job(affinity="a")))
            assert (end.reason, end.code) == ("error", "server_error")
            await home.__aenter__()
            began = time.perf_counter()
            while health.open and time.perf_counter() - began < 5:
                await asyncio.sleep(0.02)
            again, end = await read(backend.start(job(affinity="a")))
            assert text_of(again) == text_of(first), "the conversation did not come home"
            await backend.close()

    asyncio.run(main())


def test_a_server_that_comes_back_is_asked_who_it_is() -> None:
    async def main() -> None:
        fake = FakeUpstream([saying("x")])
        async with fake:
            backend = upstream(fake, probe_every=0.05, retries=0)
            assert (await backend.open(quiet)).context_window == 32768
        assert (await read(backend.start(job())))[1].reason == "error"
        fake.models[0]["max_model_len"] = 4096
        async with fake:
            began = time.perf_counter()
            while (await backend.open(quiet)).context_window != 4096 and time.perf_counter() - began < 5:
                await asyncio.sleep(0.02)
            assert (await backend.open(quiet)).context_window == 4096
            assert (await read(backend.start(job())))[1].reason == "stop"
            await backend.close()

    asyncio.run(main())


def test_an_overloaded_replica_passes_on() -> None:
    async def main() -> None:
        async def slow(seen: Seen) -> Reply:
            await asyncio.sleep(0.2)
            return saying("x")

        async with FakeUpstream(slow) as one, FakeUpstream(slow) as two:
            backend = upstream(one, two)
            await backend.open(quiet)
            runs = [backend.start(job(affinity="same")) for _ in range(8)]
            await asyncio.gather(*(read(run) for run in runs))
            assert sorted(len(fake.bodies) for fake in (one, two)) == [3, 5]
            assert all(health.active == 0 for health in backend.replicas.all)
            await backend.close()

    asyncio.run(main())


def test_a_window_is_never_guessed() -> None:
    async def do(backend: UpstreamBackend, fake: FakeUpstream) -> None:
        with pytest.raises(VivaceError, match=r"window.*tiny.*") as raised:
            await backend.open(quiet)
        assert "[backends.up]" in raised.value.hint

    play([saying("x")], do, models=[{"id": MODEL, "owned_by": "someone"}])

    async def smaller(backend: UpstreamBackend, fake: FakeUpstream) -> None:
        assert (await backend.open(quiet)).context_window == 32768

    play([saying("x")], smaller, window=1_000_000)


@pytest.mark.parametrize(
    ("owner", "route", "said"),
    [
        ("llamacpp", "/props", {"default_generation_settings": {"n_ctx": 8192}}),
        ("library", "/api/ps", {"models": [{"name": MODEL, "context_length": 8192}]}),
        ("library", "/api/show", {"parameters": "stop  <end>\nnum_ctx   8192"}),
        ("organization_owner", "/api/v0/models", {"data": [{"id": MODEL, "loaded_context_length": 8192}]}),
    ],
)
def test_windows_of_servers_that_say_it_elsewhere(owner: str, route: str, said: dict[str, Any]) -> None:
    async def do(backend: UpstreamBackend, fake: FakeUpstream) -> None:
        fake.routes[route] = Reply(body=said)
        assert (await backend.open(quiet)).context_window == 8192

    play([saying("x")], do, models=[{"id": MODEL, "owned_by": owner}])


def test_which_model() -> None:
    async def unknown(backend: UpstreamBackend, fake: FakeUpstream) -> None:
        with pytest.raises(VivaceError, match="no model 'tiny-2'") as raised:
            await backend.open(quiet)
        assert "tiny" in raised.value.hint
        assert raised.value.code == "model_not_found"

    play([saying("x")], unknown, model="tiny-2")

    async def several(backend: UpstreamBackend, fake: FakeUpstream) -> None:
        with pytest.raises(VivaceError, match="not said") as raised:
            await backend.open(quiet)
        assert "a, b" in raised.value.hint

    play([saying("x")], several, models=[{"id": "a"}, {"id": "b"}])


def test_counting() -> None:
    async def do(backend: UpstreamBackend, fake: FakeUpstream) -> None:
        await backend.open(quiet)
        assert await backend.count(job("x" * 41)) == 11, "four characters a token, rounded up"
        fake.routes["/tokenize"] = Reply(body={"count": 77, "max_model_len": 32768, "tokens": []})
        assert await backend.count(job("x" * 41)) == 77

    play([saying("x")], do)

    async def llama(backend: UpstreamBackend, fake: FakeUpstream) -> None:
        fake.routes["/props"] = Reply(body={"default_generation_settings": {"n_ctx": 512}})
        fake.routes["/apply-template"] = Reply(body={"prompt": "<|user|>hello"})
        fake.routes["/tokenize"] = Reply(body={"tokens": [1, 2, 3]})
        await backend.open(quiet)
        assert await backend.count(job()) == 3
        assert fake.seen[-1].body["content"] == "<|user|>hello"

    play([saying("x")], llama, models=[{"id": MODEL, "owned_by": "llamacpp"}])


def test_only_the_prompt_is_made_ready() -> None:
    pieces, end, fake = answer([Reply(events=[chunk(content="x"), chunk("length"), "[DONE]"])], job(prefill_only=True))
    assert (pieces, end.reason, fake.bodies[0]["max_tokens"]) == ([], "stop", 1)


def test_a_kept_connection_that_was_closed_is_no_failure() -> None:
    async def do(backend: UpstreamBackend, fake: FakeUpstream) -> None:
        fake.stale = True
        await backend.open(quiet)
        for _ in range(3):
            assert (await read(backend.start(job())))[1].reason == "stop"
            await backend.count(job())
        assert fake.connections > 3
        assert backend.replicas.all[0].reason == ""

    play([saying("x")], do, retries=0)


def test_what_breaks_after_the_last_event_is_no_failure() -> None:
    reply = saying("x")
    reply.cut = True
    pieces, end, _ = answer([reply])
    assert (text_of(pieces), end.reason, end.usage.input_tokens) == ("x", "stop", 7)


def test_connections_are_used_again() -> None:
    async def do(backend: UpstreamBackend, fake: FakeUpstream) -> None:
        await backend.open(quiet)
        for _ in range(5):
            _, end = await read(backend.start(job()))
            assert end.reason == "stop"
        assert fake.connections == 1

    play([saying("x")], do)

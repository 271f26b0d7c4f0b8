"""Completions of upstream servers: text that goes on, and gaps, as each kind of server has them filled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.backends.asking import job, read, text_of
from tests.backends.test_upstream import play, quiet
from tests.fakes.upstream import MODEL, FakeUpstream, Handler, Reply, Seen, error, usage_chunk
from vivace.backends.base import End, Job
from vivace.backends.configured import backend_from_config
from vivace.backends.upstream import UpstreamBackend
from vivace.errors import UsageError

GAP = {"fim": {"prefix": "a = ", "suffix": "\nb = 2"}}
QWEN = {"<|fim_prefix|>": 1, "<|fim_suffix|>": 2, "<|fim_middle|>": 3, "<|fim_pad|>": 4, "<|endoftext|>": 5}


def says(*texts: str, finish: str = "stop") -> Reply:
    def chunk(text: str, finish: str | None = None) -> dict[str, Any]:
        return {"object": "text_completion", "choices": [{"index": 0, "text": text, "finish_reason": finish}]}

    return Reply(events=[*map(chunk, texts), chunk("", finish), usage_chunk(9, len(texts), 4), "[DONE]"])


def models(kind: str, window: int = 4096) -> list[dict[str, Any]]:
    owner = {"llama-server": "llamacpp", "ollama": "library", "lm-studio": "organization_owner"}.get(kind, kind)
    return [{"id": MODEL, "owned_by": owner, "max_model_len": window}]


def tokenizer(known: dict[str, int]) -> Handler:
    """A route that knows these texts as one token; of any other a token is a character."""

    def tokenize(seen: Seen) -> Reply:
        text = seen.body.get("prompt", seen.body.get("content"))
        return Reply(body={"tokens": [known[text]] if text in known else [100] * len(text)})

    return tokenize


def ask(
    given: Job, reply: Reply | list[Reply], kind: str = "openai", known: dict[str, int] | None = None, **fields: Any
) -> tuple[str, End, list[Any]]:
    """What a job comes to, and the bodies that the server was asked with."""
    found: list[Any] = []

    async def do(backend: UpstreamBackend, fake: FakeUpstream) -> None:
        if known is not None:
            fake.routes["/tokenize"] = tokenizer(known)
        await backend.open(quiet)
        pieces, end = await read(backend.start(given))
        found.extend([text_of(pieces), end, fake.bodies, await backend.count(given)])

    play(reply if isinstance(reply, list) else [reply], do, models(kind), **fields)
    return found[0], found[1], found[2]


def test_a_text_goes_on() -> None:
    given = job([], prompt={"raw": "Once"}, max_output_tokens=7, temperature=0.5, top_k=3, seed=1, stop=["\n"])
    text, end, (body,) = ask(given, says(" upon", " a"))
    assert text == " upon a"
    assert (end.reason, end.usage.input_tokens, end.usage.input_tokens_details.cached_tokens) == ("stop", 9, 4)
    assert body == {
        "model": MODEL,
        "prompt": "Once",
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 7,
        "temperature": 0.5,
        "top_k": 3,
        "seed": 1,
        "stop": ["\n"],
    }


@pytest.mark.parametrize("kind", ["openai", "ollama", "vivace"])
def test_a_server_with_a_suffix(kind: str) -> None:
    text, end, (body,) = ask(job([], prompt=GAP, max_output_tokens=7), says("1", finish="length"), kind)
    assert (text, end.reason) == ("1", "length")
    assert (body["prompt"], body["suffix"]) == ("a = ", "\nb = 2")


@pytest.mark.parametrize("kind", ["vllm", "sglang", "llama-server"])
def test_marks_that_the_tokenizer_has(kind: str) -> None:
    _, _, (body,) = ask(job([], prompt=GAP), says("1"), kind, QWEN, window=4096)
    assert body["prompt"] == "<|fim_prefix|>a = <|fim_suffix|>\nb = 2<|fim_middle|>"
    assert "suffix" not in body
    assert body["stop_token_ids"] == [1, 2, 3, 4, 5]


def test_marks_are_looked_for_once_and_again_after_a_failure() -> None:
    async def do(backend: UpstreamBackend, fake: FakeUpstream) -> None:
        await backend.open(quiet)
        _, end = await read(backend.start(job([], prompt=GAP)))
        assert end.reason == "error"
        fake.routes["/tokenize"] = tokenizer(QWEN)
        for _ in range(3):
            _, end = await read(backend.start(job([], prompt=GAP)))
            assert end.reason == "stop"
        asked = [seen.body["prompt"] for seen in fake.seen if seen.path == "/tokenize"]
        assert asked.count("<|fim_prefix|>") == 2

    play([says("1")], do, models("vllm"))


def test_marks_of_the_configuration() -> None:
    for kind in ("vllm", "lm-studio"):
        _, _, (body,) = ask(job([], prompt=GAP), says("1"), kind, fim=("<P>", "<S>", "<M>"), window=4096)
        assert body["prompt"] == "<P>a = <S>\nb = 2<M>"
        assert "stop_token_ids" not in body
    table = {"kind": "upstream", "base_url": "http://h/v1", "fim": ["<P>", "<S>", "<M>"]}
    backend = backend_from_config(table, "up")
    assert isinstance(backend, UpstreamBackend) and backend.upstream.fim == ("<P>", "<S>", "<M>")
    for wrong in (["<P>"], ["<P>", "", "<M>"]):
        with pytest.raises(UsageError) as caught:
            backend_from_config({**table, "fim": wrong}, "up")
        assert caught.value.param == "fim"


@pytest.mark.parametrize(
    ("kind", "known", "said"),
    [("lm-studio", None, "takes no 'suffix'"), ("vllm", {}, "has no tokens for filling a gap")],
)
def test_a_server_that_fills_no_gaps_is_not_asked(kind: str, known: dict[str, int] | None, said: str) -> None:
    text, end, bodies = ask(job([], prompt=GAP), says("1"), kind, known, window=4096)
    assert (text, end.reason, end.code, bodies) == ("", "error", "invalid_request_error", [])
    assert said in end.message
    assert "fim = [...]" in end.message


@pytest.mark.parametrize(
    ("reply", "code", "said"),
    [
        (Reply(404, {"detail": "Not Found"}), "invalid_request_error", "up has no /completions (HTTP 404)"),
        (error(404, "The model does not exist", "model_not_found"), "model_not_found", "does not exist"),
        (error(400, "suffix is not currently supported"), "invalid_prompt", "suffix is not currently supported"),
        (error(400, "This model's maximum context length is 10"), "context_length_exceeded", "maximum context"),
    ],
)
def test_a_refusal_says_why(reply: Reply, code: str, said: str) -> None:
    _, end, bodies = ask(job([], prompt=GAP), reply)
    assert (end.reason, end.code, len(bodies)) == ("error", code, 1)
    assert said in end.message


def test_a_server_that_knows_no_usage_option() -> None:
    _, end, bodies = ask(job([], prompt={"raw": "x"}), [error(400, "unknown field stream_options"), says("1")])
    assert end.reason == "stop"
    assert ["stream_options" in body for body in bodies] == [True, False]


def test_conversations_still_go_to_chat() -> None:
    """A server without Completions is not thought to be without Chat Completions."""
    paths: list[str] = []

    def handler(seen: Seen) -> Reply:
        paths.append(seen.path)
        return Reply(404, {"detail": "Not Found"})

    async def do(backend: UpstreamBackend, fake: FakeUpstream) -> None:
        await backend.open(quiet)
        await read(backend.start(job([], prompt={"raw": "x"})))
        assert not backend.responses
        await read(backend.start(job("hello")))

    play(handler, do)
    assert paths == ["/v1/completions", "/v1/chat/completions", "/v1/responses"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Reply(events=[{"choices": [{"text": "1"}]}]),
        lambda: Reply(events=[{"choices": [{"text": "1"}]}, "{"]),
        lambda: Reply(events=[{"choices": [{"text": "1"}]}, {"error": {"message": "no"}}]),
    ],
)
def test_an_answer_that_breaks_off_is_no_answer(make: Callable[[], Reply]) -> None:
    text, end, bodies = ask(job([], prompt={"raw": "x"}), make())
    assert (text, end.reason, len(bodies)) == ("1", "error", 1)


def test_what_was_not_counted_is_estimated() -> None:
    reply = Reply(events=[{"choices": [{"text": "1234", "finish_reason": "content_filter"}]}, "[DONE]"])
    _, end, _ = ask(job([], prompt={"raw": "x" * 40}), reply)
    assert (end.code, end.usage.input_tokens, end.usage.output_tokens) == ("content_filter", 10, 1)

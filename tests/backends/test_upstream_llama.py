"""The upstream backend against a server that was not written for it: llama.cpp's, on a real model."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.backends.asking import SHELL, job, read, text_of
from vivace.backends.discovery import find_servers
from vivace.backends.replicas import Replica
from vivace.backends.upstream import Api, Upstream, UpstreamBackend

pytestmark = pytest.mark.model
ITEMS = [{"role": "developer", "content": "Answer briefly."}, {"role": "user", "content": "Say hello."}]


GAP = job(
    [],
    prompt={"fim": {"prefix": "def add(a, b):\n    return", "suffix": "\n\nprint(add(1, 2))\n"}},
    max_output_tokens=4,
    temperature=0.0,
)


def serving(model: Path) -> Any:
    """The server, on a free port, as long as the object lives."""
    xllamacpp = pytest.importorskip("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = str(model)
    params.port = 0
    params.n_ctx, params.n_parallel = 1024, 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1  # more of them spin for a busy core
    params.warmup = params.fit_params = params.ui = False
    params.verbosity = -1
    return xllamacpp.Server(params)


def test_a_gap(model_file: Callable[[str], Path]) -> None:
    server = serving(model_file("coder-0.5b"))

    async def main(address: str) -> None:
        backend = UpstreamBackend(Upstream(name="llama", replicas=(Replica(f"{address}/v1"),)))
        await backend.open(lambda stage, share: None)
        pieces, end = await read(backend.start(GAP))
        assert text_of(pieces).startswith(" a + b")
        assert end.usage.input_tokens == await backend.count(GAP) + 3, "a mark is no token of its own"
        await backend.close()

    asyncio.run(main(server.listening_address))


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_a_conversation(model_file: Callable[[str], Path], api: Api) -> None:
    server = serving(model_file("smollm2-135m"))

    async def main(address: str) -> None:
        found = await find_servers({int(address.rsplit(":", 1)[1]): "vllm"})
        assert [one.kind for one in found] == ["llama-server"]
        backend = UpstreamBackend(Upstream(name="llama", replicas=(Replica(f"{address}/v1"),), api=api))
        card = await backend.open(lambda stage, share: None)
        assert card.context_window == found[0].window == 1024
        asked = job(ITEMS, max_output_tokens=12, temperature=0.0)
        pieces, end = await read(backend.start(asked))
        assert text_of(pieces)
        assert end.reason in ("stop", "length")
        assert end.usage.input_tokens == await backend.count(asked)
        assert 0 < end.usage.output_tokens <= 12
        more = [*ITEMS, {"role": "assistant", "content": text_of(pieces)}, {"role": "user", "content": "Again."}]
        _, end = await read(backend.start(job(more, max_output_tokens=4, temperature=0.0)))
        assert end.usage.input_tokens_details.cached_tokens >= await backend.count(asked), "the prefix was lost"
        _, end = await read(backend.start(job("word " * 2000, [SHELL])))
        assert (end.reason, end.code) == ("error", "context_length_exceeded")
        _, end = await read(backend.start(GAP))
        assert end.code == "invalid_request_error", "this model has no marks for a gap"
        asked = job([], prompt={"raw": "One, two, three,"}, max_output_tokens=3, temperature=0.0)
        pieces, end = await read(backend.start(asked))
        assert "four" in text_of(pieces)
        assert (end.reason, end.usage.output_tokens) == ("length", 3)
        run = backend.start(job("Count to a thousand.", max_output_tokens=900))
        assert not isinstance(await anext(aiter(run)), type(end))
        began = time.perf_counter()
        assert (await run.stop()).reason == "aborted"
        assert time.perf_counter() - began < 0.1
        await backend.close()

    asyncio.run(main(server.listening_address))

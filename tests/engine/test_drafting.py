"""Drafting changes speed and nothing else, on models that compute."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engine import tinymodels
from tests.engine.asking import Answer, ask, opened, real_config
from tests.engine.edits import edits, start_of
from tests.engine.stepping import answer
from tests.engine.teacher import load
from vivace.engine import native
from vivace.engine.kv import BLOCK
from vivace.engine.messages import Sampling, Start
from vivace.engine.runner import AbortFlag, Likeliest, Runner, Span
from vivace.engine.scheduler import Limits
from vivace.engine.torch_runner import TorchRunner
from vivace.engine.weights import load_weights
from vivace.models.tokenizer import Tokenizer
from vivace.settings import Settings

needs_native = pytest.mark.skipif(not native.available(), reason="the native kernels are not built here")

BLOCKS = 48
WINDOW = 512


@cache
def tiny(kind: str) -> Runner:
    """A tiny random model: exact per row in native int8, to a rounding in PyTorch's fp32."""
    folder = Path(mkdtemp())
    _, path = tinymodels.make("qwen2", folder, seed=5, tied=True)
    if kind == "torch":
        return TorchRunner(load_weights(path, folder, "fp32", lambda stage, share: None), BLOCKS)
    from vivace.engine.native_runner import NativeRunner, packer

    weights = load_weights(path, folder, "int8", lambda stage, share: None, packer())
    return NativeRunner(weights, BLOCKS, Limits().most_rows, threads=1)


@dataclass
class Case:
    """Requests with true, edited and foreign references, and how the engine slices them."""

    requests: list[Start]
    limits: Limits


@st.composite
def cases(draw: st.DrawFn, kind: str) -> Case:
    vocabulary = st.integers(0, 319)
    base = draw(st.lists(vocabulary, min_size=1, max_size=60))
    requests = []
    for number in range(draw(st.integers(1, 4))):
        prompt = base[: draw(st.integers(0, len(base)))] + draw(st.lists(vocabulary, min_size=1, max_size=20))
        length = draw(st.integers(1, 40))
        sampling = draw(st.sampled_from([Sampling(), Sampling(temperature=0.7, seed=draw(st.integers(0, 99)))]))
        plain = Start(id=number, tokens=prompt, max_tokens=length, sampling=sampling)
        truth = answer(tiny(kind), [plain], WINDOW)[number][0]
        cut, drop = draw(st.integers(0, length)), draw(st.integers(0, 6))
        reference = {
            "true": truth,
            "edited": truth[:cut] + draw(st.lists(vocabulary, max_size=6)) + truth[cut + drop :],
            "repeated": truth[:cut] * 3,
            "foreign": draw(st.lists(vocabulary, max_size=50)),
        }[draw(st.sampled_from(["true", "edited", "repeated", "foreign"]))]
        requests.append(msgspec.structs.replace(plain, reference=reference))
    rows = draw(st.integers(1, 64))
    return Case(requests, Limits(slice_alone=rows, slice_beside=rows, draft=draw(st.integers(0, 60))))


@pytest.fixture
def one_thread() -> Iterator[None]:
    """So small a model has nothing to share out."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@needs_native
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases("native"))
def test_any_reference_gives_the_same_tokens_on_the_native_kernels(case: Case) -> None:
    together = answer(tiny("native"), case.requests, WINDOW, case.limits)
    for request in case.requests:
        alone = msgspec.structs.replace(request, draft=False)
        assert together[request.id][0] == answer(tiny("native"), [alone], WINDOW)[request.id][0]


@pytest.mark.usefixtures("one_thread")
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases("torch"))
def test_any_reference_gives_the_same_tokens_in_pytorch_but_for_ties(case: Case) -> None:
    runner = tiny("torch")
    together = answer(runner, case.requests, WINDOW, case.limits)
    for request in case.requests:
        alone = msgspec.structs.replace(request, draft=False)
        mine, other = together[request.id][0], answer(runner, [alone], WINDOW)[request.id][0]
        if mine != other:
            assert request.sampling.temperature == 0 and gap_at_divergence(runner, request.tokens, mine, other) < 1e-3


def gap_at_divergence(runner: Runner, prompt: list[int], mine: list[int], other: list[int]) -> float:
    """How far apart the logits of two answers' first different tokens are."""
    at = next(i for i, (a, b) in enumerate(zip(mine, other, strict=False)) if a != b)
    context = prompt + mine[:at]
    rows = runner.forward([Span(context, 0, list(range(-(-len(context) // BLOCK))), 1, logits=True)], AbortFlag())
    assert rows is not None
    return abs(float(rows[0][0][mine[at]]) - float(rows[0][0][other[at]]))


@needs_native
@pytest.mark.model
@pytest.mark.slow
def test_fifty_edits_are_the_same_drafted_alone_and_undrafted_in_a_batch(model_file: Callable[[str], Path]) -> None:
    """The native kernels compute a row to the same bits whatever is beside it, so there are no ties to excuse."""
    path = model_file("coder-0.5b")
    tokenizer = Tokenizer.load(path, Settings())
    config = msgspec.structs.replace(real_config(path), kernels="native")
    drafted, plain = (
        [start_of(tokenizer, *edit, draft=draft, room=100) for edit in edits(50)] for draft in (True, False)
    )

    async def both() -> tuple[list[Answer], list[Answer]]:
        # Processes apart, so that neither finds the other's KV memory.
        async with opened(config) as engine:
            alone = await ask(engine, drafted, 1)
        async with opened(config) as engine:
            return alone, await ask(engine, plain, 8)

    with_draft, without = asyncio.run(both())
    assert [tokens for tokens, _ in with_draft] == [tokens for tokens, _ in without]
    assert all(finish.drafted == 0 for _, finish in without)
    accepted = sum(finish.accepted for _, finish in with_draft)
    written = sum(finish.output_tokens for _, finish in with_draft)
    print(f"{written} tokens, {accepted} from drafts, {sum(finish.steps for _, finish in with_draft)} passes")
    assert accepted > written / 3, "hardly a draft was accepted, so hardly anything was compared"


@pytest.mark.model
@pytest.mark.slow
def test_edits_in_pytorch_int8_differ_at_ties_only(model_file: Callable[[str], Path]) -> None:
    path = model_file("coder-0.5b")
    tokenizer = Tokenizer.load(path, Settings())
    runner = load(path, "torch", "int8")
    chosen = [(instruction, text) for instruction, text in edits(50) if len(text) < 500][:6]
    requests = [start_of(tokenizer, *edit, draft=True, room=40) for edit in chosen]
    requests = [msgspec.structs.replace(request, id=number) for number, request in enumerate(requests)]
    vocab = tokenizer.vocab_size
    plain = answer(runner, [msgspec.structs.replace(r, draft=False) for r in requests], 2048, vocab=vocab)
    ties = []
    accepted = 0
    for request in requests:
        mine, finish = answer(runner, [request], 2048, vocab=vocab)[request.id]
        accepted += finish.accepted
        if mine != plain[request.id][0]:
            ties.append(gap_at_divergence(runner, request.tokens, mine, plain[request.id][0]))
    print(f"{len(ties)} of {len(requests)} answers differ, at gaps of {np.round(ties, 3).tolist()}")
    assert accepted > 30
    # A last bit of attention moves int8 steps downstream: what is within their noise is a tie.
    assert len(ties) <= 2 and max(ties, default=0.0) < 0.3


@needs_native
def test_the_logits_of_a_sampled_row_are_those_that_it_would_have_alone() -> None:
    """Written down along the way, or computed anew where a draft has many rows."""
    runner = tiny("native")

    def forward(*spans: Span) -> list[Any]:
        results = runner.forward(list(spans), AbortFlag())
        assert results is not None
        return list(results)

    wanted = forward(Span([3, 1, 4, 1, 5], 0, [0], outputs=1, logits=True))[0][0].copy()
    greedy, one, draft = forward(
        Span([2, 7, 1], 0, [2], outputs=1),
        Span([3, 1, 4, 1, 5], 0, [0], outputs=1, temperature=0.8),
        Span([3, 1, 4, 1, 5], 0, [1], outputs=3, temperature=0.8),
    )
    assert isinstance(one, Likeliest) and isinstance(draft, Likeliest) and greedy.shape == (1,)
    assert np.array_equal(one.logits(0), wanted) and np.array_equal(draft.logits(2), wanted)
    assert one.tokens[0] == draft.tokens[2] == wanted.argmax()

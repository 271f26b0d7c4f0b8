"""Steps over static buffers against plain passes: on a CPU with a capture that only repeats, on a GPU with graphs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.engine import tinymodels
from tests.engine.test_torch_runner import TOKENS
from vivace.engine.cuda_graphs import CONTEXTS, MOST_ROWS, GraphedSteps, Shape, Step
from vivace.engine.runner import AbortFlag, Span
from vivace.engine.torch_runner import TorchRunner
from vivace.engine.weights import Weights, load_weights

BLOCKS = 40


def eager(step: Step) -> tuple[Callable[[], object], tuple[Tensor, Tensor]]:
    """As a captured graph: results always in the same memory, inputs from wherever the step looks."""
    results = step()

    def replay() -> None:
        for held, fresh in zip(results, step(), strict=True):
            held.copy_(fresh)

    return replay, results


def weights_of(architecture: str, folder: Path) -> Weights:
    _, path = tinymodels.make(architecture, folder)
    return load_weights(path, folder, "fp32", lambda stage, share: None)


def pair(architecture: str, folder: Path) -> tuple[TorchRunner, TorchRunner]:
    weights = weights_of(architecture, folder)
    return TorchRunner(weights, BLOCKS), TorchRunner(weights, BLOCKS, capture=eager)


def passes() -> list[list[Span]]:
    """A prompt in slices, decoding, verification, and three sequences of different lengths at once."""
    one, two, three = [7, 3, 30, 12, 5, 6], [0, 1, 2], [39, 20]
    return [
        [Span(TOKENS[:70], 0, one, 1)],
        [Span(TOKENS[70:71], 70, one, 1)],
        [Span(TOKENS[71:100], 71, one, 29, logits=True)],
        [Span(TOKENS[:40], 0, two, 2), Span(TOKENS[9:10], 0, three, 1, logits=True)],
        [Span(TOKENS[100:103], 100, one, 3), Span(TOKENS[40:41], 40, two, 0), Span(TOKENS[10:18], 1, three, 8)],
        [Span(TOKENS[103:104], 103, one, 1, logits=True), Span(TOKENS[41:42], 41, two, 1)],
        [Span(TOKENS[71:90], 71, one, 19, logits=True)],  # Back to an earlier place: what follows is overwritten.
    ]


@pytest.mark.parametrize("architecture", ["qwen2", "qwen3", "llama"])
def test_static_steps_equal_plain_passes(architecture: str, tmp_path: Path) -> None:
    plain, graphed = pair(architecture, tmp_path)
    assert graphed.graphs is not None
    for spans in passes():
        wanted, got = plain.forward(spans, AbortFlag()), graphed.forward(spans, AbortFlag())
        assert wanted is not None and got is not None
        for one, two in zip(wanted, got, strict=True):
            assert one.shape == two.shape and one.dtype == two.dtype
            assert np.abs(one - two).max(initial=0) < 1e-4
    shapes = set(graphed.graphs.steps)
    assert {Shape(1, 128, 1024), Shape(1, 1, 1024), Shape(1, 32, 1024), Shape(4, 8, 1024)} <= shapes
    assert len(shapes) < len(passes()), "shapes are captured once and used again"


def test_a_sequence_does_not_see_what_fills_the_shape_up(tmp_path: Path) -> None:
    plain, graphed = pair("qwen2", tmp_path)
    for runner in (plain, graphed):
        runner.kv[:, :, :, : BLOCKS * 32] = 1e4  # What earlier sequences left, where no row may look.
    spans = [Span(TOKENS[:5], 0, [9], 5, logits=True), Span(TOKENS[:3], 0, [8], 3), Span(TOKENS[:1], 0, [2], 1)]
    wanted, got = plain.forward(spans, AbortFlag()), graphed.forward(spans, AbortFlag())
    assert wanted is not None and got is not None
    assert np.abs(wanted[0] - got[0]).max() < 1e-4
    others = [block for block in range(BLOCKS) if block not in (9, 8, 2)]
    kept = graphed.kv.view(*graphed.kv.shape[:3], -1, 32, graphed.spec.head_dim)[:, :, :, others]
    assert bool((kept == 1e4).all()), "no block of others was written"


def test_wide_or_long_passes_are_not_captured(tmp_path: Path) -> None:
    _, graphed = pair("qwen2", tmp_path)
    steps = graphed.graphs
    assert isinstance(steps, GraphedSteps)
    assert steps.shape_of([Span([0] * 129, 0, [0], 1)]) is None
    assert steps.shape_of([Span([0], CONTEXTS[-1], [0], 1)]) is None
    assert steps.shape_of([Span([0], 0, [0], 1)] * 65) is None
    assert steps.shape_of([Span([0] * 128, 0, [0], 1)] * 4) is None
    widest = steps.shape_of([Span([0] * 100, 1000, [0], 1), Span([0], 0, [0], 1)])
    assert widest == Shape(2, 128, 4096)
    assert widest.spans * widest.rows <= MOST_ROWS


def test_a_set_abort_flag_keeps_the_step_from_running(tmp_path: Path) -> None:
    _, graphed = pair("qwen2", tmp_path)
    flag = AbortFlag()
    flag.set()
    assert graphed.forward([Span([1], 0, [0], 1)], flag) is None
    assert graphed.graphs is not None and not graphed.graphs.steps


def test_blocks_are_copied_beside_the_spare_one(tmp_path: Path) -> None:
    _, graphed = pair("qwen2", tmp_path)
    graphed.forward([Span(TOKENS[:32], 0, [4], 0)], AbortFlag())
    graphed.copy_block(4, BLOCKS - 1)
    assert torch.equal(graphed.kv[:, :, :, 4 * 32 : 5 * 32], graphed.kv[:, :, :, (BLOCKS - 1) * 32 : BLOCKS * 32])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
@pytest.mark.parametrize("architecture", ["qwen2", "qwen3", "llama"])
def test_graphs_on_a_gpu_equal_plain_passes_there(architecture: str, tmp_path: Path) -> None:
    weights = weights_of(architecture, tmp_path)
    plain, graphed = TorchRunner(weights, BLOCKS, "cuda"), TorchRunner(weights, BLOCKS, "cuda")
    plain.graphs = None
    for _ in range(2):
        for spans in passes():
            wanted, got = plain.forward(spans, AbortFlag()), graphed.forward(spans, AbortFlag())
            assert wanted is not None and got is not None
            for one, two in zip(wanted, got, strict=True):
                assert np.abs(one - two).max(initial=0) < 1e-3

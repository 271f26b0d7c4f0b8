"""The PyTorch runner against transformers, and against itself in other batch shapes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine import tinymodels
from vivace.engine.kv import BLOCK
from vivace.engine.runner import AbortFlag, Span
from vivace.engine.torch_runner import TorchRunner
from vivace.engine.weights import Kind, load_weights
from vivace.errors import VivaceError

TOKENS = [int(t) for t in np.random.default_rng(1).integers(0, 320, 150)]


def runner_of(path: Path, folder: Path, kind: Kind = "fp32", blocks: int = 16) -> TorchRunner:
    return TorchRunner(load_weights(path, folder, kind, lambda stage, share: None), blocks)


def logits_of(runner: TorchRunner, tokens: list[int], slices: list[int], blocks: list[int]) -> np.ndarray:
    """Logits of every row, computed in slices of the given lengths."""
    rows = []
    start = 0
    for length in slices:
        part = tokens[start : start + length]
        result = runner.forward([Span(part, start, blocks, len(part), logits=True)], AbortFlag())
        assert result is not None
        rows.append(result[0])
        start += length
    return np.concatenate(rows)


@pytest.mark.parametrize("architecture", ["qwen2", "llama", "qwen3", "qwen3moe"])
@pytest.mark.parametrize("tied", [False, True])
def test_logits_equal_transformers_in_fp32(architecture: str, tied: bool, tmp_path: Path) -> None:
    model, path = tinymodels.make(architecture, tmp_path, tied=tied)
    with torch.no_grad():
        wanted = model(torch.tensor([TOKENS])).logits[0].numpy()
    got = logits_of(runner_of(path, tmp_path), TOKENS, [70, 1, 1, 33, 45], list(range(5)))
    assert np.abs(got - wanted).max() < 1e-4
    assert wanted.std() > 0.5, "the model must not be flat, or nothing is compared"


@pytest.mark.parametrize("kind", ["int8", "bf16"])
def test_reduced_precision_stays_near(kind: Kind, tmp_path: Path) -> None:
    model, path = tinymodels.make("qwen2", tmp_path)
    with torch.no_grad():
        wanted = torch.log_softmax(model(torch.tensor([TOKENS])).logits[0], -1).numpy()
    got = logits_of(runner_of(path, tmp_path, kind), TOKENS, [len(TOKENS)], list(range(5)))
    got = torch.log_softmax(torch.from_numpy(got), -1).numpy()
    assert 0 < np.abs(got - wanted).mean() < 0.1


def test_scattered_blocks_and_batches_give_the_same_rows(tmp_path: Path) -> None:
    _, path = tinymodels.make("qwen2", tmp_path)
    runner = runner_of(path, tmp_path)
    plain = logits_of(runner, TOKENS, [len(TOKENS)], list(range(5)))
    scattered = logits_of(runner, TOKENS, [64, 86], [9, 3, 15, 1, 7])
    assert np.abs(plain - scattered).max() < 1e-4
    one, two = [0, 1, 2, 3, 4], [11, 8, 10, 12, 6]
    for start in range(0, 150, 50):
        spans = [
            Span(TOKENS[start : start + 50], start, one, 50, True),
            Span(TOKENS[start : start + 50], start, two, 1),
        ]
        result = runner.forward(spans, AbortFlag())
        assert result is not None
        assert np.abs(result[0] - plain[start : start + 50]).max() < 1e-4
        assert result[1].tolist() == [plain[start + 49].argmax()]


def test_only_wanted_rows_come_back(tmp_path: Path) -> None:
    _, path = tinymodels.make("llama", tmp_path)
    runner = runner_of(path, tmp_path)
    result = runner.forward([Span(TOKENS[:40], 0, [0, 1], 0), Span(TOKENS[:40], 0, [2, 3], 2)], AbortFlag())
    assert result is not None
    assert [len(rows) for rows in result] == [0, 2]


def test_a_set_abort_flag_ends_the_pass(tmp_path: Path) -> None:
    _, path = tinymodels.make("qwen2", tmp_path)
    runner = runner_of(path, tmp_path)
    flag = AbortFlag()
    flag.set()
    assert runner.forward([Span(TOKENS, 0, list(range(5)), 1)], flag) is None


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=6))
def test_any_slicing_gives_the_same_choices(slices: list[int]) -> None:
    runner = _shared_runner()
    length = sum(slices)
    tokens = (TOKENS * 2)[:length]
    blocks = list(range(-(-length // BLOCK)))
    whole = logits_of(runner, tokens, [length], blocks)
    parts = logits_of(runner, tokens, slices, blocks)
    assert np.abs(whole - parts).max() < 1e-3


_shared: list[TorchRunner] = []


def _shared_runner() -> TorchRunner:
    if not _shared:
        import tempfile

        folder = Path(tempfile.mkdtemp())
        _, path = tinymodels.make("qwen2", folder, seed=3)
        _shared.append(runner_of(path, folder))
    return _shared[0]


def test_a_file_that_contradicts_itself_is_refused(tmp_path: Path) -> None:
    model, path = tinymodels.make("qwen2", tmp_path)
    model.config.num_key_value_heads = 4
    tinymodels.write(model, "qwen2", path)
    with pytest.raises(VivaceError, match=r"attn_k\.weight"):
        load_weights(path, tmp_path, "fp32", lambda stage, share: None)


def test_an_unknown_architecture_is_named(tmp_path: Path) -> None:
    model, path = tinymodels.make("qwen2", tmp_path)
    tinymodels.write(model, "mamba", path)
    with pytest.raises(VivaceError, match="mamba"):
        load_weights(path, tmp_path, "fp32", lambda stage, share: None)

"""Bytes, numbers and experts against published tables, and the laws between them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.plan.library import Library
from vivace.plan.model import Shape, active_parameters, total_parameters
from vivace.plan.setup import make_setup
from vivace.plan.step import kv_bytes_per_token
from vivace.plan.traffic import cache, distinct_experts, head_part, layer_parts

KV_BYTES = {
    "llama-3.1-8b": 131_072,
    "mixtral-8x7b": 131_072,
    "llama-3.1-70b": 327_680,
    "llama-3.1-405b": 516_096,
    "qwen3-235b-a22b": 192_512,
    "qwen3-coder-480b-a35b": 253_952,
    "qwen3-32b": 262_144,
    "deepseek-r1": 70_272,
    "kimi-k2.6": 70_272,
    "glm-5": 89_856,
    "gpt-oss-120b": 36_864,
    "llama-2-7b": 524_288,
}


@pytest.mark.parametrize(("name", "wanted"), KV_BYTES.items())
def test_kv_bytes_of_a_token(library: Library, name: str, wanted: int) -> None:
    setup = make_setup(library, library.model(name), library.device("gb300"), context=1024)
    assert kv_bytes_per_token(setup) == wanted


def test_a_window_bounds_the_cache(library: Library) -> None:
    shape = library.model("gpt-oss-120b").shape
    beyond = cache(shape, 100_000).numbers - 18 * 100_000 * 1024
    assert beyond == 18 * 128 * 1024  # 4.5 MiB in bf16


@pytest.mark.parametrize(
    ("experts", "chosen", "row"),
    [
        (128, 4, {1: 4, 4: 15.3, 8: 28.7, 16: 51.0, 32: 81.7, 64: 111, 128: 126}),
        (256, 8, {1: 8, 4: 30.5, 8: 57.4, 16: 102, 32: 163, 64: 222, 128: 252}),
        (384, 8, {1: 8, 4: 31.0, 8: 59.5, 16: 110, 32: 188, 64: 284, 128: 358}),
        (160, 8, {1: 8, 4: 29.7, 8: 53.9, 16: 89.6, 32: 129, 64: 154, 128: 160}),
    ],
)
def test_distinct_experts(experts: int, chosen: int, row: dict[int, float]) -> None:
    for tokens, wanted in row.items():
        assert distinct_experts(experts, chosen, tokens) == pytest.approx(wanted, rel=0.01)


@given(st.integers(2, 1024), st.integers(1, 16), st.integers(1, 500))
def test_experts_are_between_those_of_one_token_and_all(experts: int, chosen: int, rows: int) -> None:
    chosen = min(chosen, experts)
    found = distinct_experts(experts, chosen, rows)
    assert chosen - 1e-9 <= found <= experts + 1e-9
    assert found <= rows * chosen + 1e-9
    assert distinct_experts(experts, chosen, rows + 1) >= found - 1e-9


def test_one_row_multiplies_the_active_weights_and_reads_them(library: Library) -> None:
    for name in ("llama-3.1-8b", "mixtral-8x7b", "deepseek-r1", "qwen3.5-397b-a17b"):
        shape = library.model(name).shape
        parts = [*layer_parts(shape, 1), head_part(shape, 1)]
        assert sum(part.multiplied for part in parts) == pytest.approx(active_parameters(shape))
        assert sum(part.read for part in parts) == pytest.approx(active_parameters(shape))


def test_many_rows_read_all_but_the_embedding(library: Library) -> None:
    shape = library.model("mixtral-8x7b").shape
    read = sum(part.read for part in [*layer_parts(shape, 10_000), head_part(shape, 1)])
    assert read == pytest.approx(total_parameters(shape) - shape.hidden * shape.vocab)


@given(st.integers(1, 60), st.integers(1, 8))
def test_layers_add_up(layers: int, rows: int) -> None:
    shape = Shape(layers=60, hidden=512, heads=8, vocab=1000, kv_heads=2, head_dim=64, ffn=2048)
    whole = sum(part.read for part in layer_parts(shape, rows))
    share = sum(part.read for part in layer_parts(shape, rows, layers))
    assert share == pytest.approx(whole * layers / 60)
    assert cache(shape, 100, layers).numbers == pytest.approx(cache(shape, 100).numbers * layers / 60)

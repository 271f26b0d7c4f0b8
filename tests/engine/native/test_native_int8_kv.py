"""int8 KV memory: its arithmetic against plain numpy, half the memory, and bits that depend on nobody else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from native_reference import Decoder, blocks_for, run, tokens_for
from test_native_forward import BASE, ISAS, SHAPES, close

from vivace.engine import native

pytestmark = pytest.mark.skipif(not native.available(), reason="the native kernels are not built")


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("shape", SHAPES)
def test_logits_match_the_reference(shape: str, isa: int) -> None:
    config, options = SHAPES[shape]
    config = replace(config, layers=1)
    decoder = Decoder(config, **options)
    tokens = tokens_for(config, 70)
    model = decoder.model(threads=2, isa=isa)
    mine = run(model, native.KV(model, 8, int8=True), tokens)
    expected = decoder.logits(tokens, int8_kv=True)
    close(mine, expected, 1)
    # The two arithmetics differ by more than the kernels differ from either.
    bf16 = run(model, native.KV(model, 8), tokens)
    assert np.abs(mine - expected).mean() < np.abs(mine - bf16).mean() / 3


def test_a_large_key_bias_of_slow_rotation_costs_nothing() -> None:
    """As some layers of Qwen2.5 have it: 100 times the rest of the key, and the same at every position."""
    config = replace(BASE, layers=1, head_dim=64, heads=2, kv_heads=1, rope_theta=1e6)
    tokens = tokens_for(config, 200)
    apart = []
    for large in (0.0, 100.0):
        decoder = Decoder(config, bias=True)
        _, qkv, *_ = decoder.layers[0]
        assert qkv.bias is not None and qkv.linear.bias is not None
        for bias in (qkv.bias, qkv.linear.bias):
            bias[128 + 30] += large
            bias[128 + 63] -= large
        model = decoder.model(threads=2)
        exact = decoder.logits(tokens)
        apart.append(np.abs(run(model, native.KV(model, 8, int8=True), tokens) - exact).mean() / exact.std())
    assert apart[1] < 2 * apart[0]


@pytest.mark.parametrize("isa", ISAS)
def test_long_context_matches_the_reference(isa: int) -> None:
    config, options = SHAPES["qwen2"]
    config = replace(config, layers=1)
    decoder = Decoder(config, **options)
    tokens = tokens_for(config, 300)
    model = decoder.model(threads=2, isa=isa)
    close(run(model, native.KV(model, 16, int8=True), tokens), decoder.logits(tokens, int8_kv=True), 2)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("shape", ["qwen2", "qwen3", "partial-rope"])
def test_a_row_is_the_same_bits_in_any_company(shape: str, isa: int) -> None:
    """280 rows of 7 heads make tasks of several query tiles, one row never does."""
    config, options = SHAPES[shape]
    decoder = Decoder(config, **options)
    tokens = tokens_for(config, 280)
    one, two = decoder.model(threads=1, isa=isa), decoder.model(threads=2, isa=isa)
    whole = run(one, native.KV(one, 16, int8=True), tokens)
    assert np.array_equal(whole, run(two, native.KV(two, 16, int8=True), tokens)), "threads"

    kv = native.KV(two, 16, int8=True)
    at, parts = 0, []
    for rows in (1, 2, 5, 70, 16, 17, 1, 1, 33, 64, 70):
        parts.append(run(two, kv, tokens[at : at + rows], start=at))
        at += rows
    assert at == len(tokens)
    assert np.array_equal(whole, np.concatenate(parts)), "slices"


@pytest.mark.parametrize("isa", ISAS)
def test_spans_of_several_sequences_and_permuted_blocks(isa: int) -> None:
    config, options = SHAPES["qwen2"]
    decoder = Decoder(config, **options)
    model = decoder.model(threads=2, isa=isa)
    lengths, fresh = [150, 40, 97, 33], [1, 40, 64, 2]
    texts = [tokens_for(config, n, seed=n) for n in lengths]
    alone = [run(model, native.KV(model, 16, int8=True), text) for text in texts]

    order = np.random.default_rng(3).permutation(32).astype(np.int32)
    kv = native.KV(model, 32, int8=True)
    tables = np.split(order, np.cumsum([-(-n // native.KV_BLOCK) for n in lengths]))[:4]
    for text, table, new in zip(texts, tables, fresh, strict=True):
        if len(text) > new:
            run(model, kv, text[:-new], blocks=table)
    spans = [native.Span(t, n - new, new) for t, n, new in zip(tables, lengths, fresh, strict=True)]
    joined = np.concatenate([text[-new:] for text, new in zip(texts, fresh, strict=True)])
    out = model.forward(kv, joined, spans, logit_rows=np.arange(len(joined), dtype=np.int32))
    assert np.array_equal(out.logits, np.concatenate([a[-new:] for a, new in zip(alone, fresh, strict=True)]))


@pytest.mark.parametrize("isa", ISAS)
def test_stale_keys_and_values_do_not_leak(isa: int) -> None:
    config, options = SHAPES["qwen2"]
    decoder = Decoder(config, **options)
    model = decoder.model(threads=2, isa=isa)
    tokens = tokens_for(config, 100)
    clean, used = native.KV(model, 4, int8=True), native.KV(model, 4, int8=True)
    run(model, used, tokens_for(config, 128, seed=9))
    assert np.array_equal(run(model, clean, tokens), run(model, used, tokens))


def test_copied_and_dropped_blocks() -> None:
    model = Decoder(BASE).model(threads=2)
    tokens = tokens_for(BASE, 90)
    kv = native.KV(model, 8, int8=True)
    whole = run(model, kv, tokens)
    kv.copy_block(0, 5)
    kv.copy_block(1, 6)
    fork = run(model, kv, tokens[64:], start=64, blocks=np.array([5, 6, 7], np.int32))
    assert np.array_equal(whole[64:], fork)
    kv.drop_blocks(0, 8)
    assert np.array_equal(run(model, kv, tokens), whole)
    with pytest.raises(native.NativeError, match="block"):
        kv.copy_block(0, 8)


@pytest.mark.parametrize("shape", ["qwen2", "qwen3"])
def test_a_block_takes_about_half_the_memory(shape: str) -> None:
    config, options = SHAPES[shape]
    model = Decoder(config, **options).model()
    values = config.layers * config.kv_heads * 2 * native.KV_BLOCK
    bf16, int8 = native.KV(model, 2), native.KV(model, 2, int8=True)
    assert bf16.block_bytes == values * config.head_dim * 2
    assert int8.block_bytes == values * (config.head_dim + 4)
    assert int8.block_bytes < bf16.block_bytes * 0.54


def test_both_kinds_serve_one_model_in_turns() -> None:
    model = Decoder(BASE).model(threads=2)
    tokens = tokens_for(BASE, 90)
    alone = [run(model, native.KV(model, 4, int8), tokens) for int8 in (False, True)]
    kinds = [native.KV(model, 4, int8) for int8 in (False, True)]
    for first in range(0, 90, 30):
        for kv, whole in zip(kinds, alone, strict=True):
            part = run(model, kv, tokens[first : first + 30], first, blocks_for(90))
            assert np.array_equal(part, whole[first : first + 30])

"""The native forward step against plain numpy, and against itself: a row's bits never depend on its company."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
from native_reference import Decoder, blocks_for, run, tokens_for

from vivace.engine import native

pytestmark = pytest.mark.skipif(not native.available(), reason="the native kernels are not built")

ISAS = [i for i in range(5) if native.available() and native.isa_name(i)]
BASE = native.Config(
    layers=2, hidden=128, heads=4, kv_heads=2, head_dim=32, ffn=192, vocab=331, rope_theta=1e4, rms_eps=1e-6,
    max_rows=320, max_positions=2048,
)  # fmt: skip
SHAPES = {
    "qwen2": (replace(BASE, hidden=448, heads=7, kv_heads=1, head_dim=64), {"bias": True}),
    "qwen2-grouped": (replace(BASE, hidden=224, heads=14, kv_heads=2, head_dim=16, rope_theta=1e6), {"bias": True}),
    "qwen3": (replace(BASE, hidden=256, heads=4, kv_heads=2, head_dim=128), {"qk_norm": True}),
    "llama": (replace(BASE, heads=4, kv_heads=4, head_dim=32, rope_interleaved=True), {}),
    "partial-rope": (replace(BASE, head_dim=48, rope_dim=32, heads=6, kv_heads=2, hidden=144, ffn=80), {}),
}


def close(actual: np.ndarray, expected: np.ndarray, layers: int) -> None:
    """A sum that differs in its last bit can move one activation by a step of 1/127, which the next layers' rounding
    spreads over the row. So one layer must agree almost everywhere; more layers, within the noise of the steps."""
    scale = expected.std()
    error = np.abs(actual - expected) / scale
    assert np.median(error) < (1e-4 if layers == 1 else 2e-2)
    assert error.mean() < (1e-3 if layers == 1 else 2e-2)
    assert error.max() < 0.15
    top = np.sort(expected, axis=1)[:, -2:]
    clear = top[:, 1] - top[:, 0] > 0.2 * scale
    assert (actual.argmax(1) == expected.argmax(1))[clear].all()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("shape", SHAPES)
def test_logits_match_the_reference(shape: str, layers: int, isa: int) -> None:
    config, options = SHAPES[shape]
    config = replace(config, layers=layers)
    decoder = Decoder(config, **options)
    tokens = tokens_for(config, 70)
    model = decoder.model(threads=2, isa=isa)
    close(run(model, native.KV(model, 8), tokens), decoder.logits(tokens), layers)


@pytest.mark.parametrize("isa", ISAS)
def test_long_context_matches_the_reference(isa: int) -> None:
    config, options = SHAPES["qwen2"]
    config = replace(config, layers=1)
    decoder = Decoder(config, **options)
    tokens = tokens_for(config, 300)
    model = decoder.model(threads=2, isa=isa)
    close(run(model, native.KV(model, 16), tokens), decoder.logits(tokens), 2)


def test_scaled_frequencies() -> None:
    config = replace(BASE, layers=1, inv_freq=1e4 ** -(np.arange(16) / 16) / 8)
    decoder = Decoder(config)
    tokens = tokens_for(config, 70)
    model = decoder.model()
    close(run(model, native.KV(model, 8), tokens), decoder.logits(tokens), 1)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("shape", ["qwen2", "qwen3", "partial-rope"])
def test_a_row_is_the_same_bits_in_any_company(shape: str, isa: int) -> None:
    config, options = SHAPES[shape]
    decoder = Decoder(config, **options)
    tokens = tokens_for(config, 280)
    one, two = decoder.model(threads=1, isa=isa), decoder.model(threads=2, isa=isa)
    whole = run(one, native.KV(one, 16), tokens)
    assert np.array_equal(whole, run(two, native.KV(two, 16), tokens)), "threads"

    kv = native.KV(two, 16)
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
    alone = []
    for text in texts:
        kv = native.KV(model, 16)
        alone.append(run(model, kv, text))
        kv.close()

    order = np.random.default_rng(3).permutation(32).astype(np.int32)
    kv = native.KV(model, 32)
    tables, used = [], 0
    for n in lengths:
        need = -(-n // native.KV_BLOCK)
        tables.append(order[used : used + need].copy())
        used += need
    for text, table, new in zip(texts, tables, fresh, strict=True):
        if len(text) > new:
            run(model, kv, text[:-new], blocks=table)
    spans = [native.Span(t, n - new, new) for t, n, new in zip(tables, lengths, fresh, strict=True)]
    joined = np.concatenate([text[-new:] for text, new in zip(texts, fresh, strict=True)])
    rows = np.arange(len(joined), dtype=np.int32)
    out = model.forward(kv, joined, spans, argmax_rows=rows, logit_rows=rows)
    expected = np.concatenate([a[-new:] for a, new in zip(alone, fresh, strict=True)])
    assert np.array_equal(out.logits, expected)
    assert np.array_equal(out.argmax, expected.argmax(1))
    assert np.array_equal(out.argmax_logit, expected.max(1))


@pytest.mark.parametrize("isa", ISAS)
def test_only_the_wanted_rows_and_the_lowest_of_equals(isa: int) -> None:
    decoder = Decoder(BASE)
    # Every row of the vocabulary twice: the lower of two equal logits must win.
    half = decoder.head.q[: BASE.vocab // 2]
    q = np.concatenate([half, half, half[:1]])
    scale = np.full(BASE.vocab, 0.01, np.float32)
    decoder.weights = replace(decoder.weights, head=native.pack(q, scale))
    model = decoder.model(threads=2, isa=isa)
    tokens = tokens_for(BASE, 40)
    span = [native.Span(blocks_for(40), 0, 40)]
    everything = run(model, native.KV(model, 4), tokens)
    best, full = np.array([39, 3, 3, 17], np.int32), np.array([5, 39], np.int32)
    out = model.forward(native.KV(model, 4), tokens, span, argmax_rows=best, logit_rows=full)
    assert np.array_equal(out.logits, everything[full])
    assert np.array_equal(out.argmax, everything[best].argmax(1))
    assert (out.argmax < BASE.vocab // 2).all()
    nothing = model.forward(native.KV(model, 4), tokens, span)
    assert nothing.argmax.size == 0 and nothing.logits.size == 0


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("threads", [1, 2])
def test_the_probability_of_the_best_and_logits_fetched_afterwards(threads: int, isa: int) -> None:
    decoder = Decoder(BASE)
    decoder.weights.head.scale[:] *= 20  # sharp enough that temperatures matter, far enough apart to underflow
    model = decoder.model(threads=threads, isa=isa)
    tokens = tokens_for(BASE, 40)
    span = [native.Span(blocks_for(40), 0, 40)]
    best, full = np.array([39, 3, 17, *range(18, 38)], np.int32), np.array([5, 39], np.int32)
    temperatures = np.tile(np.array([0.6, 1.0, 0.1, 0.0], np.float32), 6)[: best.size]
    sharpness = np.divide(1, temperatures, out=np.zeros_like(temperatures), where=temperatures > 0)
    out = model.forward(
        native.KV(model, 4), tokens, span, argmax_rows=best, logit_rows=full, argmax_sharpness=sharpness
    )
    rows = [model.logits(i) for i in range(best.size + full.size)]
    assert np.array_equal(rows[-2:], out.logits)
    assert np.array_equal([row.argmax() for row in rows[:-2]], out.argmax)
    for row, weight, by in zip(rows, out.argmax_weight, sharpness, strict=False):
        expected = np.exp((row.astype(np.float64) - row.max()) * by).sum() if by else 0.0
        assert weight == pytest.approx(expected, rel=2e-5)
    with pytest.raises(native.NativeError, match="no row 25"):
        model.logits(25)


def test_stale_keys_and_values_do_not_leak() -> None:
    config, options = SHAPES["qwen2"]
    decoder = Decoder(config, **options)
    model = decoder.model(threads=2)
    tokens = tokens_for(config, 100)
    clean, used = native.KV(model, 4), native.KV(model, 4)
    run(model, used, tokens_for(config, 128, seed=9))
    assert np.array_equal(run(model, clean, tokens), run(model, used, tokens))


def test_copied_and_dropped_blocks() -> None:
    decoder = Decoder(BASE)
    model = decoder.model(threads=2)
    tokens = tokens_for(BASE, 90)
    kv = native.KV(model, 8)
    whole = run(model, kv, tokens)
    kv.copy_block(0, 5)
    kv.copy_block(1, 6)
    fork = run(model, kv, tokens[64:], start=64, blocks=np.array([5, 6, 7], np.int32))
    assert np.array_equal(whole[64:], fork)
    kv.drop_blocks(0, 8)
    assert np.array_equal(run(model, kv, tokens), whole)
    with pytest.raises(native.NativeError, match="block"):
        kv.copy_block(0, 8)


def test_abort_returns_at_once_and_the_model_lives_on() -> None:
    config = replace(BASE, layers=40, hidden=512, heads=16, kv_heads=4, ffn=1024, vocab=20000)
    decoder = Decoder(config)
    model = decoder.model(threads=2)
    tokens = tokens_for(config, 300)
    kv = native.KV(model, 16)
    whole = run(model, kv, tokens)
    span, rows = [native.Span(blocks_for(300), 0, 300)], np.arange(300, dtype=np.int32)
    start = time.perf_counter()
    full = model.forward(kv, tokens, span, argmax_rows=rows)
    middle = time.perf_counter()
    stopped = model.forward(kv, tokens, span, argmax_rows=rows, abort=np.ones(1, np.int32))
    end = time.perf_counter()
    assert stopped.aborted and not full.aborted
    assert end - middle < (middle - start) / 3
    assert np.array_equal(run(model, kv, tokens), whole)


def test_ten_thousand_steps_leak_nothing() -> None:
    config = replace(BASE, layers=1)
    model = Decoder(config).model(threads=2)
    kv = native.KV(model, 4)
    tokens, span = tokens_for(config, 3), [native.Span(blocks_for(3), 0, 3)]
    rows = np.arange(3, dtype=np.int32)

    def resident() -> int:
        with open("/proc/self/statm") as f:  # noqa: PTH123
            return int(f.read().split()[1]) * 4096

    def steps(n: int) -> None:
        for _ in range(n):
            model.forward(kv, tokens, span, argmax_rows=rows)

    steps(500)
    before = resident()
    steps(10_000)
    assert resident() - before < 2 << 20


@pytest.mark.parametrize(
    ("tokens", "span", "message"),
    [
        ([5, 331], (0, 2), "vocabulary"),
        ([5, -1], (0, 2), "vocabulary"),
        ([5], (0, 2), "rows"),
        ([5], (-1, 1), "span"),
        ([5], (2048, 1), "span"),
    ],
)
def test_bad_batches_are_refused(tokens: list[int], span: tuple[int, int], message: str) -> None:
    model = Decoder(BASE).model()
    kv = native.KV(model, 80)
    blocks = np.arange(80, dtype=np.int32)
    with pytest.raises(native.NativeError, match=message):
        model.forward(kv, np.array(tokens, np.int32), [native.Span(blocks, *span)])


def test_bad_rows_blocks_and_shapes_are_refused() -> None:
    decoder = Decoder(BASE)
    model = decoder.model()
    kv = native.KV(model, 2)
    one = np.array([1], np.int32)
    with pytest.raises(native.NativeError, match="row"):
        model.forward(kv, one, [native.Span(blocks_for(1), 0, 1)], argmax_rows=np.array([1], np.int32))
    with pytest.raises(native.NativeError, match="block"):
        model.forward(kv, one, [native.Span(np.array([2], np.int32), 0, 1)])
    with pytest.raises(ValueError, match="cover"):
        model.forward(kv, one, [native.Span(blocks_for(32), 32, 1)])
    decoder.config = replace(BASE, ffn=208)
    with pytest.raises(native.NativeError, match="gate_up"):
        decoder.model()

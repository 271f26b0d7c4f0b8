"""The int8 product of every ISA is exact."""

from __future__ import annotations

import numpy as np
import pytest

from vivace.engine import native

pytestmark = pytest.mark.skipif(not native.available(), reason="the native kernels are not built")

ISAS = [i for i in range(5) if native.available() and native.isa_name(i)]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("n", "k"), [(16, 64), (1, 1), (17, 65), (40, 100), (331, 200), (48, 1024), (96, 4864)])
def test_sums_are_exact(isa: int, n: int, k: int) -> None:
    rng = np.random.default_rng(n * k)
    w = rng.integers(-127, 128, (n, k), dtype=np.int8)
    a = rng.integers(-127, 128, (70, k), dtype=np.int8)
    linear = native.pack(w, np.ones(n, np.float32))
    expected = (a.astype(np.float64) @ w.T.astype(np.float64)).astype(np.int32)
    for rows in [*range(1, 36), 47, 48, 49, 63, 64, 65, 70]:
        assert np.array_equal(native.gemm_int32(isa, a[:rows], linear), expected[:rows]), rows


@pytest.mark.parametrize("isa", ISAS)
def test_extreme_values_do_not_saturate(isa: int) -> None:
    w = np.full((32, 8960), 127, np.int8)
    w[1::2] = -127
    a = np.full((18, 8960), -127, np.int8)
    a[::3] = 127
    expected = (a.astype(np.float64) @ w.T.astype(np.float64)).astype(np.int32)
    assert np.array_equal(native.gemm_int32(isa, a, native.pack(w, np.ones(32, np.float32))), expected)


def test_quantisation_is_symmetric_and_rounds_to_even() -> None:
    q, scale = native.quantize(np.array([[127, -127, 0.5, 1.5, -2.5, 126.6], [0] * 6], np.float32))
    assert q.tolist() == [[127, -127, 0, 2, -2, 127], [0] * 6]
    assert scale.tolist() == [1, 0]


def test_interleave_takes_turns_of_sixteen() -> None:
    gate, up = np.arange(32), np.arange(32) + 100
    assert native.interleave(gate, up).tolist() == [
        *range(16), *range(100, 116), *range(16, 32), *range(116, 132),
    ]  # fmt: skip


def test_probes_measure_something() -> None:
    assert native.probe(0, 1, 1 << 26, 0.05) > 1e8
    if native.isa_best() == native.ISA_AMX:
        assert native.probe(1, 2, seconds=0.05) > 1e11
        assert native.probe(2, 2, seconds=0.05) > 1e11

"""Milliseconds a step at the shapes of real models, random weights: python bench_native.py [0.5b|1.5b] [isa]"""

from __future__ import annotations

import sys
import time

import numpy as np

from vivace.engine import native

SHAPES = {
    "0.5b": native.Config(24, 896, 14, 2, 64, 4864, 151936, 1e6, 1e-6, 512, 40000, profile=True),
    "1.5b": native.Config(28, 1536, 12, 2, 128, 8960, 151936, 1e6, 1e-6, 512, 40000, profile=True),
}


def linear(rng: np.random.Generator, n: int, k: int, bias: bool = False) -> native.Linear:
    # Packed bytes drawn at random: no need to pack, the speed is the same. colsum then does not fit, which only
    # changes the numbers of the AVX-512 path.
    padded = -(-n // 16) * 16
    w = rng.integers(-100, 101, padded * (-(-k // 64) * 64), dtype=np.int8)
    scale = np.full(padded, 1 / (58 * np.sqrt(k)), np.float32)
    return native.Linear(w, scale, np.zeros(padded, np.int32), np.zeros(padded, np.float32) if bias else None, n, k)


def build(name: str, isa: int, threads: int) -> native.Model:
    c, rng = SHAPES[name], np.random.default_rng(0)
    one = np.ones(c.hidden, np.float32)
    layers = [
        native.Layer(
            one,
            linear(rng, (c.heads + 2 * c.kv_heads) * c.head_dim, c.hidden, True),
            linear(rng, c.hidden, c.heads * c.head_dim),
            one,
            linear(rng, 2 * c.ffn, c.hidden),
            linear(rng, c.hidden, c.ffn),
        )
        for _ in range(c.layers)
    ]
    embed = (rng.standard_normal((c.vocab, c.hidden), np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return native.Model(c, native.Weights(embed, layers, one, linear(rng, c.vocab, c.hidden)), threads, isa)


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else "0.5b"
    isa = int(sys.argv[2]) if len(sys.argv) > 2 else -1
    threads = int(sys.argv[3]) if len(sys.argv) > 3 else 2
    repeats = int(sys.argv[4]) if len(sys.argv) > 4 else 9
    model = build(name, isa, threads)
    kv = native.KV(model, 1100)
    blocks = np.arange(1100, dtype=np.int32)
    tokens = np.random.default_rng(1).integers(0, 150000, 512).astype(np.int32)
    for start in range(0, 1024, 256):
        model.forward(kv, tokens[:256], [native.Span(blocks, start, 256)])
    cases = [(r, 1000, True) for r in (1, 4, 8, 16, 32, 64, 128)] + [(256, 1000, False), (1, 8000, True)]
    cases += [(1, 32000, True), (64, 8000, True)]
    times: dict[tuple[int, int, bool], list[float]] = {c: [] for c in cases}
    phases: dict[tuple[int, int, bool], dict[str, float]] = {}
    for turn in range(repeats + 1):
        for case in cases:
            rows, context, every = case
            wanted = np.arange(rows, dtype=np.int32) if every else np.array([rows - 1], np.int32)
            model.profile_reset()
            t = time.perf_counter()
            model.forward(kv, tokens[:rows], [native.Span(blocks, context, rows)], argmax_rows=wanted)
            t = time.perf_counter() - t
            if turn and (not times[case] or t < min(times[case])):
                phases[case] = model.profile()
            if turn:
                times[case].append(t)
    print(name, native.isa_name(native.isa_best() if isa < 0 else isa), threads, "threads")
    print(f"{'rows':>5} {'ctx':>6} {'median':>7} {'best':>7}  phases of the best, ms")
    for (rows, context, _), ts in times.items():
        split = " ".join(f"{k}={v * 1e3:.1f}" for k, v in phases[(rows, context, _)].items())
        print(f"{rows:5} {context:6} {np.median(ts) * 1e3:7.1f} {min(ts) * 1e3:7.1f}  {split}")


if __name__ == "__main__":
    main()

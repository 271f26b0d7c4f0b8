// Attention of up to 32 stacked query rows (rows x heads that share a kv head) over the paged keys, softmax online in
// steps of 128 keys. The including unit provides
//
//   void scores(const uint16_t* q, int rows, int d_pad, const uint16_t* const* k, int n, float* s)
//   void values(const uint16_t* p, int rows, const uint16_t* const* v, int n, int d_pad, float* o)
//
// the first writing s[32][kKeyStep] for n blocks of K, the second adding p[32][kKeyStep] times n blocks of V to
// o[32][d_pad].
//
// Keys beyond a row's limit give p = 0 exactly, and 0 * v adds nothing: a row's result is the same in any batch.
#pragma once

namespace VV_NS {

struct Softmax {
    float* s;
    uint16_t* p;
    float* m;      // [32] running maximum, times scale
    float* l;      // [32][16] running sum, by lane
    float* alpha;  // [32]
    const int* limit;  // [32] last position that a row sees
    const float *k_scale, *v_scale;  // int8: [kKeyStep] of the step's keys, those of K times scale_log2e
};

// One step of `keys` (a multiple of 32) keys from position `base`; returns whether any row's maximum moved. Int8 scales
// the scores by key, and the probabilities that meet the values.
template <bool Int8>
VV_INLINE bool softmax_step(const Softmax& t, float scale_log2e, int rows, int base, int keys) {
    static const int32_t counted[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const vi lanes = loadi(counted);
    const vf scale = splat(Int8 ? 1.0f : scale_log2e);
    alignas(64) float top[kQueryRows];
    for (int r = 0; r < kQueryRows; r++) top[r] = kMasked;
    const int vectors = keys / 16;
    for (int r = 0; r < rows; r++) {
        float* s = t.s + r * kKeyStep;
        const int limit = t.limit[r] - base;
        if constexpr (Int8) multiply(s, t.k_scale, keys);
        if (limit < keys - 1)
            for (int i = limit < 0 ? 0 : limit / 16; i < vectors; i++)
                store(s + i * 16, select(lanes <= splati(limit - i * 16), load(s + i * 16), splat(kMasked)));
        vf m0 = load(s), m1 = load(s + 16);
        for (int i = 2; i < vectors; i += 2) {
            m0 = max(m0, load(s + i * 16));
            m1 = max(m1, load(s + i * 16 + 16));
        }
        top[r] = reduce_max(max(m0, m1));
    }
    bool moved = false;
    for (int r = 0; r < rows; r += 16) {
        vf old = load(t.m + r), now = max(old, load(top + r) * scale);
        store(t.alpha + r, exp2_fast(old - now));
        store(t.m + r, now);
        moved |= any_differs(old, now);
    }
    for (int r = 0; r < rows; r++) {
        const float* s = t.s + r * kKeyStep;
        uint16_t* p = t.p + r * kKeyStep;
        const vf m = splat(t.m[r]);
        vf l0 = load(t.l + r * 16) * splat(t.alpha[r]), l1{};
        for (int i = 0; i < vectors; i += 2) {
            vf e0 = exp2_fast(load(s + i * 16) * scale - m), e1 = exp2_fast(load(s + i * 16 + 16) * scale - m);
            l0 = l0 + e0;
            l1 = l1 + e1;
            if constexpr (Int8) {
                e0 = times(e0, t.v_scale + i * 16);
                e1 = times(e1, t.v_scale + i * 16 + 16);
            }
            store_bf16_pair(p + i * 16, e0, e1);
        }
        store(t.l + r * 16, l0 + l1);
    }
    return moved;
}

VV_INLINE void rescale(float* o, const float* alpha, int rows, int d_pad) {
    for (int r = 0; r < rows; r++)
        for (int j = 0; alpha[r] != 1.0f && j < d_pad; j += 16)
            store(o + r * d_pad + j, load(o + r * d_pad + j) * splat(alpha[r]));
}

// The sums of a tile's rows to their places
VV_INLINE void put_rows(const Attention& a, int row0, int rows, const float* o, const float* l) {
    for (int r = 0; r < rows; r++) {
        const int row = (row0 + r) / a.group, head = (row0 + r) % a.group;
        const float inv = 1.0f / reduce_add(load(l + r * 16));
        float* out = a.out + row * a.ld + head * a.head_dim;
        for (int j = 0; j < a.head_dim; j += 16) store(out + j, load(o + r * a.d_pad + j) * inv);
    }
}

static void attention(const Attention& a, int row0, int row1, void* scratch) {
    const int rows = row1 - row0;
    float* s = (float*)(((uintptr_t)scratch + 63) & ~uintptr_t(63));
    float* o = s + kQueryRows * kKeyStep;
    float* l = o + kQueryRows * a.d_pad;
    float* m = l + kQueryRows * 16;
    float* alpha = m + kQueryRows;
    uint16_t* p = (uint16_t*)(alpha + kQueryRows);
    int limit[kQueryRows];
    for (int r = 0; r < rows; r++) limit[r] = a.start + (row0 + r) / a.group;
    const Softmax t{s, p, m, l, alpha, limit, nullptr, nullptr};
    std::memset(o, 0, size_t(kQueryRows) * a.d_pad * 4);
    std::memset(l, 0, kQueryRows * 16 * 4);
    for (int r = 0; r < kQueryRows; r++) m[r] = kMasked;

    const uint16_t* q = a.q + int64_t(row0) * a.d_pad;
    const int v_offset = kKvBlock * a.d_pad;
    const int end = limit[rows - 1] + 1;  // one past the last key that any row sees
    const uint16_t* v[2][kKeyStep / kKvBlock];
    auto score = [&](int base, const uint16_t** values_of) {
        const int n = int(ceil_div(end - base < kKeyStep ? end - base : kKeyStep, kKvBlock));
        const uint16_t* k[kKeyStep / kKvBlock];
        for (int j = 0; j < n; j++) {
            k[j] = (const uint16_t*)(a.kv + a.blocks[base / kKvBlock + j] * a.block_stride);
            values_of[j] = k[j] + v_offset;
        }
        scores(q, rows, a.d_pad, k, n, s);
        return n;
    };
    // The next step's scores come between a step's softmax and its values: they need nothing that was just stored,
    // and give the probabilities time to reach the cache, from which alone tiles can be loaded.
    int n = score(0, v[0]);
    for (int base = 0, i = 0; base < end; base += kKeyStep, i ^= 1) {
        const int count = n;
        const bool moved = softmax_step<false>(t, a.scale_log2e, rows, base, count * kKvBlock);
        if (moved && base) rescale(o, alpha, rows, a.d_pad);  // a factor of exactly 1 otherwise
        if (base + kKeyStep < end) n = score(base + kKeyStep, v[i ^ 1]);
        values(p, rows, v[i], count, a.d_pad, o);
    }
    put_rows(a, row0, rows, o, l);
}

}  // namespace VV_NS

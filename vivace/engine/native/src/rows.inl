// Per-row work between the products: embedding, RMSNorm, quantisation, RoPE and the KV write. One row at a time and
// in one order, so a row's bits do not depend on its neighbours.
#pragma once

namespace VV_NS {

// One 64-byte group of a row in the packed activations of this ISA; `at` counts groups.
#if VV_A_ELEM == 2
typedef int16_t a_elem;
#else
typedef int8_t a_elem;
#endif

VV_INLINE void store_a(a_elem* p, vf scaled) {
    vi q = as_int(scaled + kRound);
#if defined(__AVX512F__) && VV_A_ELEM == 1
    _mm_storeu_si128((__m128i*)p, _mm512_cvtepi32_epi8((__m512i)(q ^ VV_A_XOR)));
#else
    int32_t t[16];
    std::memcpy(t, &q, 64);
    for (int i = 0; i < 16; i++) p[i] = a_elem(int8_t(t[i]) ^ VV_A_XOR);
#endif
}

static inline void quantize_into(const float* x, int n, int k_steps, float absmax, void* a, float* scale) {
    *scale = absmax / 127.0f;
    vf inv = splat(absmax > 0.0f ? 127.0f / absmax : 0.0f);
    a_elem* out = (a_elem*)a;
    int i = 0;
    for (int s = 0; s < k_steps; s++, out += 16 * kStepK)
        for (int j = 0; j < kStepK; j += 16, i += 16) store_a(out + j, i < n ? load(x + i) * inv : vf{});
}

static void quant(const float* x, int n, int k_steps, void* a, float* scale) {
    vf m0{}, m1{};
    int i = 0;
    for (; i + 32 <= n; i += 32) {
        m0 = max(m0, abs(load(x + i)));
        m1 = max(m1, abs(load(x + i + 16)));
    }
    if (i < n) m0 = max(m0, abs(load(x + i)));
    quantize_into(x, n, k_steps, reduce_max(max(m0, m1)), a, scale);
}

template <int R>
VV_INLINE void quant_groups_of(const float* x, int64_t ld, int n, int k_steps, a_elem* a, float* scale) {
    vf m[R] = {};
    for (int i = 0; i < n / 16; i++)
        for (int r = 0; r < R; r++) {
            __builtin_prefetch(x + (i + 4) * ld + r * 16);  // half of it is in another core's cache
            m[r] = max(m[r], abs(load(x + i * ld + r * 16)));
        }
    vf inv[R];
    for (int r = 0; r < R; r++) {
        const float top = reduce_max(m[r]);
        scale[r] = top / 127.0f;
        inv[r] = splat(top > 0.0f ? 127.0f / top : 0.0f);
    }
    for (int i = 0; i < k_steps * 4; i++) {
        a_elem* out = a + (i / 4) * 16 * kStepK + (i % 4) * 16;
        for (int r = 0; r < R; r++)
            store_a(out + r * kStepK, i * 16 < n ? load(x + i * ld + r * 16) * inv[r] : vf{});
    }
}

static void quant_groups(const float* x, int64_t ld, int rows, int n, int k_steps, void* a, float* scale) {
    a_elem* out = (a_elem*)a;
    int r = 0;
    for (; r + 8 <= rows; r += 8) quant_groups_of<8>(x + r * 16, ld, n, k_steps, out + r * kStepK, scale + r);
    for (; r < rows; r++) quant_groups_of<1>(x + r * 16, ld, n, k_steps, out + r * kStepK, scale + r);
}

static void norm_quant(const float* x, const float* w, int n, int k_steps, float eps, void* a, float* scale, float* tmp) {
    vf s0{}, s1{};
    int i = 0;
    for (; i + 32 <= n; i += 32) {
        vf u = load(x + i), v = load(x + i + 16);
        s0 = s0 + u * u;
        s1 = s1 + v * v;
    }
    if (i < n) {
        vf u = load(x + i);
        s0 = s0 + u * u;
    }
    vf r = splat(1.0f / __builtin_sqrtf(reduce_add(s0 + s1) / float(n) + eps));
    vf m{};
    for (i = 0; i < n; i += 16) {
        vf y = load(x + i) * r * load(w + i);
        store(tmp + i, y);
        m = max(m, abs(y));
    }
    quantize_into(tmp, n, k_steps, reduce_max(m), a, scale);
}

static void pack_row(const int8_t* x, int n, int k_steps, void* a) {
    a_elem* out = (a_elem*)a;
    for (int s = 0; s < k_steps; s++, out += 16 * kStepK)
        for (int j = 0; j < kStepK; j++) {
            int i = s * kStepK + j;
            out[j] = a_elem((i < n ? x[i] : 0) ^ VV_A_XOR);
        }
}

static void embed(const uint16_t* row, float* x, int n) {
    for (int i = 0; i < n; i += 16) store(x + i, load_bf16(row + i));
}

VV_INLINE void rope(float* x, const Rope& r) {
    const float* c = r.cos;
    const float* s = r.sin;
    int h = r.half;
    if (r.interleaved) {
        for (int i = 0; i < h; i++) {
            float u = x[2 * i], v = x[2 * i + 1];
            x[2 * i] = u * c[i] - v * s[i];
            x[2 * i + 1] = v * c[i] + u * s[i];
        }
        return;
    }
    int i = 0;
    for (; i + 16 <= h; i += 16) {
        vf u = load(x + i), v = load(x + h + i), cc = load(c + i), ss = load(s + i);
        store(x + i, u * cc - v * ss);
        store(x + h + i, v * cc + u * ss);
    }
    for (; i < h; i++) {
        float u = x[i], v = x[h + i];
        x[i] = u * c[i] - v * s[i];
        x[h + i] = v * c[i] + u * s[i];
    }
}

VV_INLINE void head_norm(float* x, const float* w, int n, float eps) {
    vf t{};
    for (int i = 0; i < n; i += 16) t = t + load(x + i) * load(x + i);
    const vf r = splat(1.0f / __builtin_sqrtf(reduce_add(t) / float(n) + eps));
    for (int i = 0; i < n; i += 16) store(x + i, load(x + i) * r * load(w + i));
}

// A NaN or infinity in V would leak into rows that do not even see the position, as 0 * NaN.
VV_INLINE vf finite(vf v) { return min(max(v, splat(-3e38f)), splat(3e38f)); }

// q of every head; then k and v of every kv head, 64-byte aligned and with zeros up to d_pad, to the two functions
template <class K, class V>
VV_INLINE void head_row_to(const HeadRow& h, K&& put_k, V&& put_v) {
    alignas(64) float x[1024] = {};
    const int group = h.heads / h.kv_heads, d = h.head_dim;
    const float* src = h.qkv;
    for (int i = 0; i < h.heads; i++, src += d) {
        std::memcpy(x, src, size_t(d) * 4);
        if (h.q_norm) head_norm(x, h.q_norm, d, h.eps);
        rope(x, h.rope);
        uint16_t* q = h.q + (i / group) * h.q_head_stride + (i % group) * h.d_pad;
        for (int j = 0; j < h.d_pad; j += 16) store_bf16(q + j, load(x + j));
    }
    for (int i = 0; i < h.kv_heads; i++, src += d) {
        std::memcpy(x, src, size_t(d) * 4);
        if (h.k_norm) head_norm(x, h.k_norm, d, h.eps);
        rope(x, h.rope);
        put_k(i, x);
    }
    for (int i = 0; i < h.kv_heads; i++, src += d) {
        std::memcpy(x, src, size_t(d) * 4);
        for (int j = 0; j < h.d_pad; j += 16) store(x + j, finite(load(x + j)));
        put_v(i, x);
    }
}

static void head_row(const HeadRow& h) {
    alignas(64) uint16_t b[1024];
    const int half = h.slot / 16, lane = h.slot % 16, words = h.d_pad / 32 * 256;
    uint16_t* kv = (uint16_t*)h.kv;
    head_row_to(
        h,
        [&](int i, const float* x) {
            for (int j = 0; j < h.d_pad; j += 16) store_bf16(b + j, load(x + j));
            uint32_t* k = (uint32_t*)(kv + int64_t(i) * 2 * kKvBlock * h.d_pad) + half * words + lane;
            for (int j = 0; j < h.d_pad / 2; j++) std::memcpy(k + j * 16, b + 2 * j, 4);
        },
        [&](int i, const float* x) {
            for (int j = 0; j < h.d_pad; j += 16) store_bf16(b + j, load(x + j));
            uint16_t* v = kv + (int64_t(i) * 2 + 1) * kKvBlock * h.d_pad + (h.slot / 2) * 32 + (h.slot & 1);
            for (int j = 0; j < h.d_pad; j++) v[(j / 16) * 512 + (j % 16) * 2] = b[j];
        });
}

// absmax / 127 of n values, and their steps of it, to the nearest even
VV_INLINE float quantize_head(const float* x, int n, int8_t* out) {
    vf top{};
    for (int j = 0; j < n; j += 16) top = max(top, abs(load(x + j)));
    const float absmax = reduce_max(top);
    const vf inv = splat(absmax > 0.0f ? 127.0f / absmax : 0.0f);
    for (int j = 0; j < n; j += 16) {
        const vi q = as_int(load(x + j) * inv + kRound);
        int32_t t[16];
        std::memcpy(t, &q, 64);
        for (int i = 0; i < 16; i++) out[j + i] = int8_t(t[i]);
    }
    return absmax / 127.0f;
}

static void head_row_int8(const HeadRow& h) {
    alignas(64) int8_t b[1024];
    const int64_t plane = int64_t(kKvBlock) * h.d_pad, head = kv_head_bytes(h.d_pad, true);
    head_row_to(
        h,
        [&](int i, float* x) {
            int8_t* k = (int8_t*)h.kv + i * head;
            const float* centre = h.k_centre + i * h.d_pad;
            for (int j = 0; j < h.d_pad; j += 16) store(x + j, load(x + j) - load(centre + j));
            ((float*)(k + 2 * plane))[h.slot] = quantize_head(x, h.d_pad, b);
            k += h.slot / 16 * (plane / 2) + h.slot % 16;
            for (int j = 0; j < h.d_pad; j++) k[j * 16] = b[j];
        },
        [&](int i, const float* x) {
            int8_t* v = (int8_t*)h.kv + i * head + plane;
            ((float*)(v + plane))[kKvBlock + h.slot] = quantize_head(x, h.d_pad, b);
            for (int j = 0; j < h.d_pad; j += 16) std::memcpy(v + (j / 16) * 512 + h.slot * 16, b + j, 16);
        });
}

}  // namespace VV_NS

// Sixteen lanes in the compiler's vector extension: one source, lowered to AVX-512, AVX2, SSE or NEON by the flags of
// the translation unit that includes it. Include inside that unit's namespace only (see kernels.h).
#pragma once
#include <cstdint>
#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define VV_INLINE static inline __attribute__((always_inline))

namespace VV_NS {

typedef float vf __attribute__((vector_size(64)));
typedef int32_t vi __attribute__((vector_size(64)));
typedef uint32_t vu __attribute__((vector_size(64)));
typedef int8_t vb __attribute__((vector_size(16)));
typedef uint16_t vh __attribute__((vector_size(32)));
typedef int16_t vs __attribute__((vector_size(32)));

VV_INLINE vf load(const float* p) {
    vf v;
    std::memcpy(&v, p, 64);
    return v;
}
VV_INLINE vi loadi(const int32_t* p) {
    vi v;
    std::memcpy(&v, p, 64);
    return v;
}
VV_INLINE void store(float* p, vf v) { std::memcpy(p, &v, 64); }
VV_INLINE vf splat(float x) { return x - vf{}; }
VV_INLINE vi splati(int32_t x) { return x - vi{}; }
VV_INLINE vf to_float(vi v) { return __builtin_convertvector(v, vf); }
VV_INLINE vf as_float(vi v) { return (vf)v; }
VV_INLINE vi as_int(vf v) { return (vi)v; }
VV_INLINE vf select(vi mask, vf a, vf b) { return as_float((mask & as_int(a)) | (~mask & as_int(b))); }
VV_INLINE vf abs(vf v) { return as_float(as_int(v) & 0x7fffffff); }

#if defined(__AVX512F__)
VV_INLINE vf max(vf a, vf b) { return (vf)_mm512_max_ps((__m512)a, (__m512)b); }
VV_INLINE vf min(vf a, vf b) { return (vf)_mm512_min_ps((__m512)a, (__m512)b); }
VV_INLINE float reduce_max(vf v) { return _mm512_reduce_max_ps((__m512)v); }
#else
VV_INLINE vf max(vf a, vf b) { return a > b ? a : b; }
VV_INLINE vf min(vf a, vf b) { return a < b ? a : b; }
VV_INLINE float reduce_max(vf v) {
    float t[16];
    store(t, v);
    for (int w = 8; w; w >>= 1)
        for (int i = 0; i < w; i++) t[i] = t[i] > t[i + w] ? t[i] : t[i + w];
    return t[0];
}
#endif

VV_INLINE float reduce_add(vf v) {
    float t[16];
    store(t, v);
    for (int w = 8; w; w >>= 1)
        for (int i = 0; i < w; i++) t[i] += t[i + w];
    return t[0];
}

// 1.5 * 2^23: adding it rounds to the nearest even integer, which is then in the low mantissa bits.
constexpr float kRound = 12582912.0f;

// 2^x for x <= 0; exp2(0) is exactly 1 and everything below -150 exactly 0. Relative error 5e-6: enough for
// probabilities that become bf16.
VV_INLINE vf exp2_fast(vf x) {
#if defined(__AVX512F__)
    // scalef multiplies by 2^floor(x), so only the fraction is left for the polynomial.
    vf f = (vf)_mm512_reduce_ps((__m512)x, 1);
    vf p = f * 0.0134266875f + 0.0522424689f;
    p = p * f + 0.241280207f;
    p = p * f + 0.693044845f;
    p = p * f + 1.0f;
    return (vf)_mm512_scalef_ps((__m512)p, (__m512)x);
#else
    vi alive = x >= -126.0f;
    x = max(x, splat(-126.0f));
    vf t = x + kRound;
    vf f = x - (t - kRound);
    vf p = f * 0.00958285345f + 0.0559064276f;
    p = p * f + 0.240240986f;
    p = p * f + 0.693124193f;
    p = p * f + 1.0f;
    vi e = (as_int(t) - 0x4b400000) << 23;
    return as_float((as_int(p) + e) & alive);
#endif
}

// e^x within about 2 ulp; clamped to +-87.
VV_INLINE vf exp_precise(vf x) {
    x = min(max(x, splat(-87.0f)), splat(87.0f));
    vf t = x * 1.44269504f + kRound;
    vf n = t - kRound;
    vf f = x - n * 0.693359375f;
    f = f + n * 2.12194440e-4f;
    vf p = f * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * f + 8.3334519073e-3f;
    p = p * f + 4.1665795894e-2f;
    p = p * f + 1.6666665459e-1f;
    p = p * f + 5.0000001201e-1f;
    p = p * f * f + f + 1.0f;
    return as_float(as_int(p) + ((as_int(t) - 0x4b400000) << 23));
}

VV_INLINE vf reciprocal(vf x) {
#if defined(__AVX512F__)
    vf r = (vf)_mm512_rcp14_ps((__m512)x);
    return r * (2.0f - x * r);
#else
    return 1.0f / x;
#endif
}

VV_INLINE vf silu(vf g) { return g * reciprocal(1.0f + exp_precise(-g)); }

VV_INLINE uint16_t bf16(float x) {
    uint32_t u;
    std::memcpy(&u, &x, 4);
    return uint16_t((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

VV_INLINE void store_bf16(uint16_t* p, vf v) {
#if defined(__AVX512BF16__)
    __m256bh h = _mm512_cvtneps_pbh((__m512)v);
    std::memcpy(p, &h, 32);
#else
    vu u = (vu)v;
    u = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
    vh h = __builtin_convertvector(u, vh);
    std::memcpy(p, &h, 32);
#endif
}

// Two vectors as 32 neighbours, in one store: a tile load of the row then needs only one earlier store.
VV_INLINE void store_bf16_pair(uint16_t* p, vf a, vf b) {
#if defined(__AVX512BF16__)
    __m512bh h = _mm512_cvtne2ps_pbh((__m512)b, (__m512)a);
    std::memcpy(p, &h, 64);
#else
    store_bf16(p, a);
    store_bf16(p + 16, b);
#endif
}

VV_INLINE bool any_differs(vf a, vf b) {
#if defined(__AVX512F__)
    return _mm512_cmpneq_ps_mask((__m512)a, (__m512)b) != 0;
#else
    bool differs = false;
    for (int i = 0; i < 16; i++) differs |= a[i] != b[i];
    return differs;
#endif
}

VV_INLINE vf load_bf16(const uint16_t* p) {
    vh h;
    std::memcpy(&h, p, 32);
    return (vf)(__builtin_convertvector(h, vu) << 16);
}

}  // namespace VV_NS

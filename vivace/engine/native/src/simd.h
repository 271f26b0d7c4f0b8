// Sixteen lanes: one source, compiled to AVX-512, AVX2, SSE or NEON by the flags of the translation unit that includes
// it. Include inside that unit's namespace only (see kernels.h).
//
// With AVX-512 a vf is a compiler vector. Elsewhere it is an array of native ones: the compiler takes 64-byte vectors on
// narrower machines too, but scalarises half of the operations.
#pragma once
#include <cstdint>
#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define VV_INLINE static inline __attribute__((always_inline))

namespace VV_NS {

#if defined(__AVX512F__)
constexpr int kNative = 64;
#elif defined(__AVX2__)
constexpr int kNative = 32;
#else
constexpr int kNative = 16;
#endif
typedef float nf __attribute__((vector_size(kNative)));
typedef int32_t ni __attribute__((vector_size(kNative)));

VV_INLINE nf native_max(nf a, nf b) {
#if defined(__AVX512F__)
    return (nf)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (nf)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(__x86_64__)
    return (nf)_mm_max_ps((__m128)a, (__m128)b);
#else
    return a > b ? a : b;
#endif
}
VV_INLINE nf native_min(nf a, nf b) {
#if defined(__AVX512F__)
    return (nf)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (nf)_mm256_min_ps((__m256)a, (__m256)b);
#elif defined(__x86_64__)
    return (nf)_mm_min_ps((__m128)a, (__m128)b);
#else
    return a < b ? a : b;
#endif
}

#if defined(__AVX512F__)
typedef nf vf;
typedef ni vi;
VV_INLINE vf to_float(vi v) { return __builtin_convertvector(v, vf); }
VV_INLINE vf as_float(vi v) { return (vf)v; }
VV_INLINE vi as_int(vf v) { return (vi)v; }
VV_INLINE vf max(vf a, vf b) { return native_max(a, b); }
VV_INLINE vf min(vf a, vf b) { return native_min(a, b); }
VV_INLINE vf splat(float x) { return x - vf{}; }
VV_INLINE vi splati(int32_t x) { return x - vi{}; }
#else
constexpr int kParts = 64 / kNative;
struct vi {
    ni v[kParts];
};
struct vf {
    nf v[kParts];
};
#define VV_EACH(out, expression)                     \
    out r;                                           \
    for (int i = 0; i < kParts; i++) r.v[i] = expression; \
    return r
VV_INLINE vf splat(float x) { VV_EACH(vf, x - nf{}); }
VV_INLINE vi splati(int32_t x) { VV_EACH(vi, x - ni{}); }
#define VV_FLOAT(op)                                                       \
    VV_INLINE vf operator op(vf a, vf b) { VV_EACH(vf, a.v[i] op b.v[i]); } \
    VV_INLINE vf operator op(vf a, float b) { VV_EACH(vf, a.v[i] op b); }   \
    VV_INLINE vf operator op(float a, vf b) { VV_EACH(vf, a op b.v[i]); }
VV_FLOAT(+) VV_FLOAT(-) VV_FLOAT(*) VV_FLOAT(/)
#define VV_INT(op)                                                         \
    VV_INLINE vi operator op(vi a, vi b) { VV_EACH(vi, a.v[i] op b.v[i]); } \
    VV_INLINE vi operator op(vi a, int32_t b) { VV_EACH(vi, a.v[i] op b); }
VV_INT(+) VV_INT(-) VV_INT(&) VV_INT(|) VV_INT(^) VV_INT(<<) VV_INT(>>) VV_INT(<=)
VV_INLINE vf operator-(vf a) { VV_EACH(vf, -a.v[i]); }
VV_INLINE vi operator~(vi a) { VV_EACH(vi, ~a.v[i]); }
VV_INLINE vi operator>=(vf a, float b) { VV_EACH(vi, a.v[i] >= b); }
VV_INLINE vf to_float(vi a) { VV_EACH(vf, __builtin_convertvector(a.v[i], nf)); }
VV_INLINE vf as_float(vi a) { VV_EACH(vf, (nf)a.v[i]); }
VV_INLINE vi as_int(vf a) { VV_EACH(vi, (ni)a.v[i]); }
VV_INLINE vf max(vf a, vf b) { VV_EACH(vf, native_max(a.v[i], b.v[i])); }
VV_INLINE vf min(vf a, vf b) { VV_EACH(vf, native_min(a.v[i], b.v[i])); }
#endif

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
// 16 int8 as fp32
VV_INLINE vf load_int8(const int8_t* p) {
#if defined(__AVX512F__)
    return (vf)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)p)));
#elif defined(__AVX2__)
    vf v;
    for (int i = 0; i < 2; i++)
        v.v[i] = (nf)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)(p + i * 8))));
    return v;
#else
    float t[16];
    for (int i = 0; i < 16; i++) t[i] = p[i];
    return load(t);
#endif
}
// a times the 16 at p. Native loads: a whole vf from memory passes over the stack on narrow machines.
VV_INLINE vf times(vf a, const float* p) {
#if defined(__AVX512F__)
    return a * load(p);
#else
    for (int i = 0; i < kParts; i++) {
        nf b;
        std::memcpy(&b, p + i * (kNative / 4), kNative);
        a.v[i] *= b;
    }
    return a;
#endif
}
// p[i] *= by[i] for n (a multiple of 16) values
VV_INLINE void multiply(float* p, const float* by, int n) {
    for (int i = 0; i < n; i += kNative / 4) {
        nf a, b;
        std::memcpy(&a, p + i, kNative);
        std::memcpy(&b, by + i, kNative);
        a *= b;
        std::memcpy(p + i, &a, kNative);
    }
}
VV_INLINE void store(float* p, vf v) { std::memcpy(p, &v, 64); }
VV_INLINE vf select(vi mask, vf a, vf b) { return as_float((mask & as_int(a)) | (~mask & as_int(b))); }
VV_INLINE vf abs(vf v) { return as_float(as_int(v) & 0x7fffffff); }

VV_INLINE float reduce_max(vf v) {
#if defined(__AVX512F__)
    return _mm512_reduce_max_ps((__m512)v);
#else
    nf m = v.v[0];
    for (int i = 1; i < kParts; i++) m = native_max(m, v.v[i]);
    float t[kNative / 4];
    std::memcpy(t, &m, kNative);
    for (int w = kNative / 8; w; w >>= 1)
        for (int i = 0; i < w; i++) t[i] = t[i] > t[i + w] ? t[i] : t[i + w];
    return t[0];
#endif
}

VV_INLINE float reduce_add(vf v) {
    float t[16];
    store(t, v);
    for (int w = 8; w; w >>= 1)
        for (int i = 0; i < w; i++) t[i] += t[i + w];
    return t[0];
}

constexpr float kMasked = -1e30f;  // as good as minus infinity, and finite

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
    uint32_t u[16];
    std::memcpy(u, &v, 64);
    for (int i = 0; i < 16; i++) p[i] = uint16_t((u[i] + 0x7fff + ((u[i] >> 16) & 1)) >> 16);
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
    float x[16], y[16];
    store(x, a);
    store(y, b);
    bool differs = false;
    for (int i = 0; i < 16; i++) differs |= x[i] != y[i];
    return differs;
#endif
}

VV_INLINE vf load_bf16(const uint16_t* p) {
    uint32_t u[16];
    for (int i = 0; i < 16; i++) u[i] = uint32_t(p[i]) << 16;
    vf v;
    std::memcpy(&v, u, 64);
    return v;
}

}  // namespace VV_NS

// scores() and values() of attention.inl without matrix tiles: both are a row of bf16 pairs times a B tile, whose
// 32-bit lane holds the two bf16 that meet the pair.
#pragma once

namespace VV_NS {

VV_INLINE vf dot_pair(vf acc, uint32_t a, const uint16_t* b) {
    vi w;
    std::memcpy(&w, b, 64);
#if defined(__AVX512BF16__)
    return (vf)_mm512_dpbf16_ps((__m512)acc, (__m512bh)_mm512_set1_epi32(int(a)), (__m512bh)w);
#else
    uint32_t lo = a << 16, hi = a & 0xffff0000u;
    float flo, fhi;
    std::memcpy(&flo, &lo, 4);
    std::memcpy(&fhi, &hi, 4);
    acc = acc + as_float(w << 16) * flo;
    return acc + as_float(w & int32_t(0xffff0000u)) * fhi;
#endif
}

VV_INLINE uint32_t pair(const uint16_t* p) {
    uint32_t u;
    std::memcpy(&u, p, 4);
    return u;
}

template <int R>
VV_INLINE void scores_rows(const uint16_t* q, int d_pad, const uint16_t* k, float* s) {
    vf acc[R][2] = {};
    const int half = d_pad / 32 * 512;
    for (int i = 0; i < d_pad / 2; i++)
        for (int r = 0; r < R; r++) {
            uint32_t a = pair(q + r * d_pad + 2 * i);
            acc[r][0] = dot_pair(acc[r][0], a, k + i * 32);
            acc[r][1] = dot_pair(acc[r][1], a, k + half + i * 32);
        }
    for (int r = 0; r < R; r++)
        for (int t = 0; t < 2; t++) store(s + r * kKeyStep + t * 16, acc[r][t]);
}

static void scores(const uint16_t* q, int rows, int d_pad, const uint16_t* k, float* s) {
    int r = 0;
    for (; r + 4 <= rows; r += 4) scores_rows<4>(q + r * d_pad, d_pad, k, s + r * kKeyStep);
    for (; r < rows; r++) scores_rows<1>(q + r * d_pad, d_pad, k, s + r * kKeyStep);
}

template <int R>
VV_INLINE void values_rows(const uint16_t* p, const uint16_t* const* v, int n, int d_pad, float* o) {
    for (int t = 0; t < d_pad / 16; t++) {
        vf acc[R];
        for (int r = 0; r < R; r++) acc[r] = load(o + r * d_pad + t * 16);
        for (int j = 0; j < n; j++)
            for (int i = 0; i < 16; i++)
                for (int r = 0; r < R; r++)
                    acc[r] = dot_pair(acc[r], pair(p + r * kKeyStep + j * 32 + 2 * i), v[j] + t * 512 + i * 32);
        for (int r = 0; r < R; r++) store(o + r * d_pad + t * 16, acc[r]);
    }
}

static void values(const uint16_t* p, int rows, const uint16_t* const* v, int n, int d_pad, float* o) {
    int r = 0;
    for (; r + 4 <= rows; r += 4) values_rows<4>(p + r * kKeyStep, v, n, d_pad, o + r * d_pad);
    for (; r < rows; r++) values_rows<1>(p + r * kKeyStep, v, n, d_pad, o + r * d_pad);
}

}  // namespace VV_NS

// scores() and values() of attention.inl without matrix tiles. Both are rows of bf16 pairs times B tiles, whose 32-bit
// lane holds the two bf16 that meet a pair: the rows are widened to fp32 once, the tiles as they pass.
#pragma once

namespace VV_NS {

constexpr int kLanes = kNative / 4, kDotRows = kNative == 64 ? 8 : 4, kDotMax = 512;

VV_INLINE void widen(const uint16_t* p, int n, float* out) {
    for (int i = 0; i < n; i += 16) store(out + i, load_bf16(p + i));
}

// acc[r][c] += a[r] . B over `pairs` pairs, for two native vectors of columns
template <int R>
VV_INLINE void dot(nf (&acc)[R][2], const float* a, int64_t lda, int pairs, const uint16_t* b0, const uint16_t* b1) {
    for (int i = 0; i < pairs; i++, b0 += 32, b1 += 32) {
        ni w0, w1;
        std::memcpy(&w0, b0, kNative);
        std::memcpy(&w1, b1, kNative);
        const nf lo0 = (nf)(w0 << 16), hi0 = (nf)(w0 & int32_t(0xffff0000u));
        const nf lo1 = (nf)(w1 << 16), hi1 = (nf)(w1 & int32_t(0xffff0000u));
        for (int r = 0; r < R; r++) {
            const float lo = a[r * lda + 2 * i], hi = a[r * lda + 2 * i + 1];
            acc[r][0] += lo0 * lo;
            acc[r][0] += hi0 * hi;
            acc[r][1] += lo1 * lo;
            acc[r][1] += hi1 * hi;
        }
    }
}

template <int R>
VV_INLINE void scores_rows(const float* q, int d_pad, const uint16_t* k, float* s) {
    const int tile = d_pad / 32 * 512;
    for (int c = 0; c < kKvBlock; c += 2 * kLanes) {
        const int c1 = c + kLanes;
        nf acc[R][2] = {};
        dot<R>(acc, q, d_pad, d_pad / 2, k + c / 16 * tile + c % 16 * 2, k + c1 / 16 * tile + c1 % 16 * 2);
        for (int r = 0; r < R; r++) {
            std::memcpy(s + r * kKeyStep + c, &acc[r][0], kNative);
            std::memcpy(s + r * kKeyStep + c1, &acc[r][1], kNative);
        }
    }
}

static void scores(const uint16_t* q, int rows, int d_pad, const uint16_t* const* k, int n, float* s) {
    alignas(64) float wide[kDotRows * kDotMax];
    for (int r = 0; r < rows;) {
        const int count = rows - r >= kDotRows ? kDotRows : 1;
        widen(q + r * d_pad, count * d_pad, wide);
        for (int j = 0; j < n; j++) {
            float* out = s + r * kKeyStep + j * kKvBlock;
            count == 1 ? scores_rows<1>(wide, d_pad, k[j], out) : scores_rows<kDotRows>(wide, d_pad, k[j], out);
        }
        r += count;
    }
}

template <int R>
VV_INLINE void values_rows(const float* p, const uint16_t* const* v, int n, int d_pad, float* o) {
    for (int c = 0; c < d_pad; c += 2 * kLanes) {
        const int c1 = c + kLanes;
        nf acc[R][2];
        for (int r = 0; r < R; r++) {
            std::memcpy(&acc[r][0], o + r * d_pad + c, kNative);
            std::memcpy(&acc[r][1], o + r * d_pad + c1, kNative);
        }
        for (int j = 0; j < n; j++)
            dot<R>(acc, p + j * kKvBlock, kKeyStep, kKvBlock / 2, v[j] + c / 16 * 512 + c % 16 * 2,
                   v[j] + c1 / 16 * 512 + c1 % 16 * 2);
        for (int r = 0; r < R; r++) {
            std::memcpy(o + r * d_pad + c, &acc[r][0], kNative);
            std::memcpy(o + r * d_pad + c1, &acc[r][1], kNative);
        }
    }
}

static void values(const uint16_t* p, int rows, const uint16_t* const* v, int n, int d_pad, float* o) {
    alignas(64) float wide[kDotRows * kKeyStep];
    for (int r = 0; r < rows;) {
        const int count = rows - r >= kDotRows ? kDotRows : 1;
        widen(p + r * kKeyStep, count * kKeyStep, wide);
        float* out = o + r * d_pad;
        count == 1 ? values_rows<1>(wide, v, n, d_pad, out) : values_rows<kDotRows>(wide, v, n, d_pad, out);
        r += count;
    }
}

}  // namespace VV_NS

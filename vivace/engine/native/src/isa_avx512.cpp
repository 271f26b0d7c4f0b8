// AVX-512 VNNI: vpdpbusd wants unsigned activations, so they are stored as value + 128 and 128 * sum(w) is taken off
// the sums at the start.
#include "kernels.h"
#if defined(__AVX512VNNI__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#define VV_NS vv::avx512
#define VV_ISA_NAME "avx512"
#define VV_A_ELEM 1
#define VV_A_XOR 0x80
#include "simd.h"
#include "rows.inl"
#include "block.inl"
#include "gemm.inl"

namespace VV_NS {

static void thread_begin() {}
static void thread_end() {}

// R rows x NT panels: 8 x 2 accumulators, so that each weight vector is used eight times
template <int R, int NT>
VV_INLINE void product_rows(const Block& blk, const a_elem* a, int32_t* c, Ahead& ahead, int per_step) {
    __m512i acc[R][NT];
    for (int t = 0; t < NT; t++) {
        __m512i start = _mm512_slli_epi32(_mm512_loadu_si512(blk.colsum + t * 16), 7);
        for (int r = 0; r < R; r++)
            acc[r][t] = blk.first ? _mm512_sub_epi32(_mm512_setzero_si512(), start)
                                  : _mm512_loadu_si512(c + r * 32 + t * 16);
    }
    const int8_t* b = blk.b;
    for (int s = 0; s < blk.steps; s++, a += 16 * kStepK, b += kTileBytes) {
        ahead.some(per_step);
        for (int g = 0; g < 16; g++) {
            __m512i w[NT];
            for (int t = 0; t < NT; t++) w[t] = _mm512_loadu_si512(b + t * blk.b_next + g * 64);
            for (int r = 0; r < R; r++) {
                int four;
                std::memcpy(&four, a + r * kStepK + 4 * g, 4);
                __m512i av = _mm512_set1_epi32(four);
                for (int t = 0; t < NT; t++) acc[r][t] = _mm512_dpbusd_epi32(acc[r][t], av, w[t]);
            }
        }
    }
    for (int r = 0; r < R; r++)
        for (int t = 0; t < NT; t++) _mm512_storeu_si512(c + r * 32 + t * 16, acc[r][t]);
}

template <int NT>
static void product(const Block& blk, int32_t* c, Pending& before) {
    before.some(before.left);
    const int rows = blk.rows, passes = rows / 8 + (rows % 8 >= 4) + rows % 4;
    Ahead ahead = blk.ahead;
    const int per_step = int(ceil_div(ahead.left, int64_t(blk.steps) * passes));
    for (int r = 0; r < rows;) {
        const a_elem* a = blk.a + (r / 16) * blk.a_next + (r % 16) * kStepK;
        int32_t* cr = c + r * 32;
        if (rows - r >= 8) {
            product_rows<8, NT>(blk, a, cr, ahead, per_step);
            r += 8;
        } else if (rows - r >= 4) {
            product_rows<4, NT>(blk, a, cr, ahead, per_step);
            r += 4;
        } else {
            product_rows<1, NT>(blk, a, cr, ahead, per_step);
            r += 1;
        }
    }
}

}  // namespace VV_NS

#include "bf16_dot.inl"
#include "attention.inl"
#include "attention_int8.inl"
#include "table.inl"

const vv::Kernels* vv::kernels_avx512() { return &VV_NS::table; }
#else
const vv::Kernels* vv::kernels_avx512() { return nullptr; }
#endif

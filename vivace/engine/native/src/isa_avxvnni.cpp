// AVX-VNNI: the 256-bit vpdpbusd of client CPUs without AVX-512. As in isa_avx512.cpp, activations are stored as
// value + 128 and 128 * sum(w) is taken off at the start.
#include "kernels.h"
#if defined(__AVXVNNI__) && defined(__AVX2__) && defined(__FMA__)
#define VV_NS vv::avxvnni
#define VV_ISA_NAME "avxvnni"
#define VV_A_ELEM 1
#define VV_A_XOR 0x80
#include "simd.h"
#include "rows.inl"
#include "block.inl"
#include "gemm.inl"

namespace VV_NS {

static void thread_begin() {}
static void thread_end() {}

// R rows x one panel: 4 x 2 accumulators
template <int R>
VV_INLINE void product_rows(const Block& blk, const a_elem* a, int t, int32_t* c, Ahead& ahead, int per_step) {
    __m256i acc[R][2];
    for (int h = 0; h < 2; h++) {
        const __m256i start = _mm256_slli_epi32(_mm256_loadu_si256((const __m256i*)(blk.colsum + t * 16 + h * 8)), 7);
        for (int r = 0; r < R; r++)
            acc[r][h] = blk.first ? _mm256_sub_epi32(_mm256_setzero_si256(), start)
                                  : _mm256_loadu_si256((const __m256i*)(c + r * 32 + h * 8));
    }
    const int8_t* b = blk.b + t * blk.b_next;
    for (int s = 0; s < blk.steps; s++, a += 16 * kStepK, b += kTileBytes) {
        ahead.some(per_step);
        for (int g = 0; g < 16; g++) {
            const __m256i w0 = _mm256_loadu_si256((const __m256i*)(b + g * 64));
            const __m256i w1 = _mm256_loadu_si256((const __m256i*)(b + g * 64 + 32));
            for (int r = 0; r < R; r++) {
                int four;
                std::memcpy(&four, a + r * kStepK + 4 * g, 4);
                const __m256i av = _mm256_set1_epi32(four);
                acc[r][0] = _mm256_dpbusd_avx_epi32(acc[r][0], av, w0);
                acc[r][1] = _mm256_dpbusd_avx_epi32(acc[r][1], av, w1);
            }
        }
    }
    for (int r = 0; r < R; r++)
        for (int h = 0; h < 2; h++) _mm256_storeu_si256((__m256i*)(c + r * 32 + h * 8), acc[r][h]);
}

template <int NT>
static void product(const Block& blk, int32_t* c, Pending& before) {
    before.some(before.left);
    Ahead ahead = blk.ahead;
    const int passes = NT * (blk.rows / 4 + blk.rows % 4);
    const int per_step = int(ceil_div(ahead.left, int64_t(blk.steps) * passes));
    for (int t = 0; t < NT; t++)
        for (int r = 0; r < blk.rows;) {
            const a_elem* a = blk.a + (r / 16) * blk.a_next + (r % 16) * kStepK;
            int32_t* cr = c + r * 32 + t * 16;
            if (blk.rows - r >= 4) {
                product_rows<4>(blk, a, t, cr, ahead, per_step);
                r += 4;
            } else {
                product_rows<1>(blk, a, t, cr, ahead, per_step);
                r += 1;
            }
        }
}

}  // namespace VV_NS

#include "bf16_dot.inl"
#include "attention.inl"
#include "attention_int8.inl"
#include "table.inl"

const vv::Kernels* vv::kernels_avxvnni() { return &VV_NS::table; }
#else
const vv::Kernels* vv::kernels_avxvnni() { return nullptr; }
#endif

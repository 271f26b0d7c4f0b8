// AVX2: both operands widened to 16 bit, vpmaddwd. vpmaddubsw would be twice as fast a step but saturates.
#include "kernels.h"
#if defined(__AVX2__) && defined(__FMA__)
#define VV_NS vv::avx2
#define VV_ISA_NAME "avx2"
#define VV_A_ELEM 2
#define VV_A_XOR 0
#include "simd.h"
#include "rows.inl"
#include "block.inl"
#include "gemm.inl"

namespace VV_NS {

static void thread_begin() {}
static void thread_end() {}

// R rows x 16 columns; a lane of acc[r][i] holds half of the sum of column 4i + lane / 2
template <int R>
VV_INLINE void product_rows(const Block& blk, const a_elem* a, const int8_t* b, int32_t* c, Ahead& ahead, int per_step) {
    __m256i acc[R][4];
    for (int r = 0; r < R; r++)
        for (int i = 0; i < 4; i++) acc[r][i] = _mm256_setzero_si256();
    for (int s = 0; s < blk.steps; s++, a += 16 * kStepK, b += kTileBytes) {
        ahead.some(per_step);
        for (int g = 0; g < 16; g++) {
            __m256i av[R];
            for (int r = 0; r < R; r++) {
                long long four;
                std::memcpy(&four, a + r * kStepK + 4 * g, 8);
                av[r] = _mm256_set1_epi64x(four);
            }
            for (int i = 0; i < 4; i++) {
                __m256i w = _mm256_cvtepi8_epi16(_mm_load_si128((const __m128i*)(b + g * 64 + i * 16)));
                for (int r = 0; r < R; r++) acc[r][i] = _mm256_add_epi32(acc[r][i], _mm256_madd_epi16(av[r], w));
            }
        }
    }
    for (int r = 0; r < R; r++)
        for (int i = 0; i < 4; i += 2) {
            // hadd works within 128-bit halves; the permutation puts the eight columns back in order
            __m256i h = _mm256_hadd_epi32(acc[r][i], acc[r][i + 1]);
            h = _mm256_permute4x64_epi64(h, 0xd8);
            __m256i* out = (__m256i*)(c + r * 32 + i * 4);
            _mm256_storeu_si256(out, blk.first ? h : _mm256_add_epi32(h, _mm256_loadu_si256(out)));
        }
}

template <int NT>
static void product(const Block& blk, int32_t* c, Pending& before) {
    before.some(before.left);
    Ahead ahead = blk.ahead;
    const int per_step = int(ceil_div(ahead.left, int64_t(blk.steps) * NT * ceil_div(blk.rows, 2)));
    for (int t = 0; t < NT; t++)
        for (int r = 0; r < blk.rows; r += 2) {
            const a_elem* a = blk.a + (r / 16) * blk.a_next + (r % 16) * kStepK;
            const int8_t* b = blk.b + t * blk.b_next;
            int32_t* cr = c + r * 32 + t * 16;
            if (r + 1 < blk.rows)
                product_rows<2>(blk, a, b, cr, ahead, per_step);
            else
                product_rows<1>(blk, a, b, cr, ahead, per_step);
        }
}

}  // namespace VV_NS

#include "bf16_dot.inl"
#include "attention.inl"
#include "attention_int8.inl"
#include "table.inl"

const vv::Kernels* vv::kernels_avx2() { return &VV_NS::table; }
#else
const vv::Kernels* vv::kernels_avx2() { return nullptr; }
#endif

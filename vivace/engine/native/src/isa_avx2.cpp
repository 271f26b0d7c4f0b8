// AVX2: both operands widened to 16 bit, vpmaddwd. vpmaddubsw would be twice as fast a step but saturates.
#include "kernels.h"
#if defined(__AVX2__) && defined(__FMA__)
#define VV_NS vv::avx2
#define VV_ISA_NAME "avx2"
#define VV_A_ELEM 2
#define VV_A_XOR 0
#include "simd.h"
#include "rows.inl"

namespace VV_NS {

static void thread_begin() {}
static void thread_end() {}

VV_INLINE void prefetch_lines(const char*& ahead, int& lines, int count) {
    for (int i = 0; i < count && lines > 0; i++, lines--, ahead += 64) _mm_prefetch(ahead, _MM_HINT_T1);
}

// R rows x 16 columns; a lane of acc[r][i] holds half of the sum of column 4i + lane / 2
template <int R>
VV_INLINE void product_rows(const a_elem* a, int k_steps, const int8_t* b, int32_t* c, const char*& ahead, int& lines,
                            int per_step) {
    __m256i acc[R][4];
    for (int r = 0; r < R; r++)
        for (int i = 0; i < 4; i++) acc[r][i] = _mm256_setzero_si256();
    for (int s = 0; s < k_steps; s++, a += 16 * kStepK, b += kTileBytes) {
        prefetch_lines(ahead, lines, per_step);
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
            _mm256_storeu_si256((__m256i*)(c + r * 32 + i * 4), h);
        }
}

template <int NT>
static void product(const a_elem* a, int k_steps, int rows, const int8_t* b, int64_t b_next, const int32_t*, int32_t* c,
                    const char* ahead, int lines) {
    const int per_step = int(ceil_div(lines, int64_t(k_steps) * NT * ceil_div(rows, 2)));
    for (int t = 0; t < NT; t++)
        for (int r = 0; r < rows; r += 2) {
            const a_elem* ar = a + int64_t(r / 16) * k_steps * 16 * kStepK + (r % 16) * kStepK;
            int32_t* cr = c + r * 32 + t * 16;
            if (r + 1 < rows)
                product_rows<2>(ar, k_steps, b + t * b_next, cr, ahead, lines, per_step);
            else
                product_rows<1>(ar, k_steps, b + t * b_next, cr, ahead, lines, per_step);
        }
}

}  // namespace VV_NS

#include "gemm.inl"
#include "bf16_dot.inl"
#include "attention.inl"
#include "table.inl"

const vv::Kernels* vv::kernels_avx2() { return &VV_NS::table; }
#else
const vv::Kernels* vv::kernels_avx2() { return nullptr; }
#endif

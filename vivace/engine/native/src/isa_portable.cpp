// Any architecture: plain C++ that the compiler vectorises as it can.
#define VV_NS vv::portable
#define VV_ISA_NAME "portable"
#define VV_A_ELEM 1
#define VV_A_XOR 0
#include "kernels.h"
#include "simd.h"
#include "rows.inl"

namespace VV_NS {

static void thread_begin() {}
static void thread_end() {}

template <int NT>
static void product(const a_elem* a, int k_steps, int rows, const int8_t* b, int64_t b_next, const int32_t*, int32_t* c,
                    const char*, int) {
    for (int t = 0; t < NT; t++)
        for (int r = 0; r < rows; r++) {
            int32_t acc[16] = {};
            const a_elem* ar = a + int64_t(r / 16) * k_steps * 16 * kStepK + (r % 16) * kStepK;
            const int8_t* bt = b + t * b_next;
            for (int s = 0; s < k_steps; s++, ar += 16 * kStepK, bt += kTileBytes)
                for (int g = 0; g < 16; g++) {
                    const int32_t a0 = ar[4 * g], a1 = ar[4 * g + 1], a2 = ar[4 * g + 2], a3 = ar[4 * g + 3];
                    const int8_t* w = bt + g * 64;
                    for (int n = 0; n < 16; n++)
                        acc[n] += a0 * w[4 * n] + a1 * w[4 * n + 1] + a2 * w[4 * n + 2] + a3 * w[4 * n + 3];
                }
            std::memcpy(c + r * 32 + t * 16, acc, 64);
        }
}

}  // namespace VV_NS

#include "gemm.inl"
#include "bf16_dot.inl"
#include "attention.inl"
#include "table.inl"

const vv::Kernels* vv::kernels_portable() { return &VV_NS::table; }

// Any architecture: plain C++ that the compiler vectorises as it can.
#define VV_NS vv::portable
#define VV_ISA_NAME "portable"
#define VV_A_ELEM 1
#define VV_A_XOR 0
#include "kernels.h"
#include "simd.h"
#include "rows.inl"
#include "block.inl"
#include "gemm.inl"

namespace VV_NS {

static void thread_begin() {}
static void thread_end() {}

template <int NT>
static void product(const Block& blk, int32_t* c, Pending& before) {
    before.some(before.left);
    for (int t = 0; t < NT; t++)
        for (int r = 0; r < blk.rows; r++) {
            int32_t acc[16] = {};
            int32_t* out = c + r * 32 + t * 16;
            if (!blk.first) std::memcpy(acc, out, 64);
            const a_elem* a = blk.a + (r / 16) * blk.a_next + (r % 16) * kStepK;
            const int8_t* b = blk.b + t * blk.b_next;
            for (int s = 0; s < blk.steps; s++, a += 16 * kStepK, b += kTileBytes)
                for (int g = 0; g < 16; g++) {
                    const int32_t a0 = a[4 * g], a1 = a[4 * g + 1], a2 = a[4 * g + 2], a3 = a[4 * g + 3];
                    const int8_t* w = b + g * 64;
                    for (int n = 0; n < 16; n++)
                        acc[n] += a0 * w[4 * n] + a1 * w[4 * n + 1] + a2 * w[4 * n + 2] + a3 * w[4 * n + 3];
                }
            std::memcpy(out, acc, 64);
        }
}

}  // namespace VV_NS

#include "bf16_dot.inl"
#include "attention.inl"
#include "attention_int8.inl"
#include "table.inl"

const vv::Kernels* vv::kernels_portable() { return &VV_NS::table; }

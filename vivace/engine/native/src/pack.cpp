// Packing, quantisation, and the bare product for tests.
#include <cmath>
#include <cstring>
#include <memory>

#include "kernels.h"
#include "model.h"
#include "vivace_native.h"

using namespace vv;

extern "C" int64_t vv_packed_size(int64_t n, int64_t k) { return round_up(n, kPanel) * round_up(k, kStepK); }

extern "C" int32_t vv_pack(const int8_t* w, int64_t n, int64_t k, int8_t* out, int32_t* colsum) {
    if (!w || !out || !colsum || n < 1 || k < 1) return fail("vv_pack: bad shape or array"), VV_EINVAL;
    const int64_t steps = ceil_div(k, kStepK);
    for (int64_t p = 0; p < ceil_div(n, kPanel); p++) {
        int8_t* panel = out + p * steps * kTileBytes;
        std::memset(panel, 0, size_t(steps) * kTileBytes);
        for (int64_t j = 0; j < kPanel; j++) {
            const int64_t column = p * kPanel + j;
            colsum[column] = 0;
            if (column >= n) continue;
            const int8_t* row = w + column * k;
            int32_t sum = 0;
            for (int64_t i = 0; i < k; i++) {
                panel[i / 4 * 64 + j * 4 + i % 4] = row[i];
                sum += row[i];
            }
            colsum[column] = sum;
        }
    }
    return VV_OK;
}

extern "C" int32_t vv_quantize(const float* w, int64_t n, int64_t k, int8_t* out, float* scale) {
    if (!w || !out || !scale || n < 1 || k < 1) return fail("vv_quantize: bad shape or array"), VV_EINVAL;
    constexpr float round = 12582912.0f;  // rounds to nearest even, see simd.h
    for (int64_t i = 0; i < n; i++, w += k, out += k) {
        float top = 0;
        for (int64_t j = 0; j < k; j++) top = std::fmax(top, std::fabs(w[j]));
        scale[i] = top / 127.0f;
        const float inv = top > 0 ? 127.0f / top : 0;
        for (int64_t j = 0; j < k; j++) {
            const float r = w[j] * inv + round;
            int32_t bits;
            std::memcpy(&bits, &r, 4);
            out[j] = int8_t(bits & 0xff);
        }
    }
    return VV_OK;
}

extern "C" int32_t vv_gemm_int32(int32_t isa, const int8_t* a, int32_t m, const int8_t* packed, const int32_t* colsum,
                                 int32_t n, int32_t k, int32_t* out) {
    const Kernels* kernels = kernels_for(isa);
    if (!kernels) return fail("this machine cannot run ISA %d", isa), VV_EINVAL;
    if (!a || !packed || !colsum || !out || m < 1 || n < 1 || k < 1) return fail("vv_gemm_int32: bad shape"), VV_EINVAL;
    const int steps = int(ceil_div(k, kStepK));
    Memory rows(size_t(round_up(m, kBlockRows) * steps * kStepK * kernels->a_elem));
    if (!rows.data()) return fail("out of memory"), VV_ENOMEM;
    for (int r = 0; r < m; r++) {
        const int64_t lane = int64_t(r / 16) * steps * 16 + r % 16;
        kernels->pack_row(a + int64_t(r) * k, k, steps, rows.data() + lane * kStepK * kernels->a_elem);
    }
    Gemm g{};
    g.a = rows.data();
    g.rows = m;
    g.w = packed;
    g.colsum = colsum;
    g.k_steps = steps;
    g.n = n;
    g.panels = int(ceil_div(n, kPanel));
    g.kind = Epilogue::raw;
    g.raw = out;
    g.ld = round_up(n, kPanel);
    kernels->thread_begin();
    kernels->gemm(g, 0, g.panels, nullptr, Best{});
    kernels->thread_end();
    return VV_OK;
}

// AMX: tdpbssd for the int8 products, tdpbf16ps for attention.
#include "kernels.h"
#if defined(__AMX_INT8__) && defined(__AMX_BF16__) && defined(__AVX512BF16__)
#define VV_NS vv::amx
#define VV_ISA_NAME "amx"
#define VV_A_ELEM 1
#define VV_A_XOR 0
#include "simd.h"
#include "rows.inl"
#include "block.inl"
#include "gemm.inl"

namespace VV_NS {

// Every tile is 16 rows of 64 bytes. Rows of a tile that hold no data cost nothing that matters (a product takes 16
// cycles either way) and never mix with others, so the configuration is loaded once per step and never changed.
static void thread_begin() {
    alignas(64) struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } config = {};
    config.palette = 1;
    for (int i = 0; i < 8; i++) {
        config.bytes[i] = 64;
        config.rows[i] = 16;
    }
    // GCC 12 declares only 8 bytes as read by the next intrinsic and drops the stores above without this.
    __asm__ volatile("" ::: "memory");
    _tile_loadconfig(&config);
}

static void thread_end() { _tile_release(); }

// The tile loads carry no memory operand either: stores before them must not move past.
#define VV_TILE_FENCE() __asm__ volatile("" ::: "memory")

template <int NT>
static void product(const Block& blk, int32_t* c, Pending& before) {
    const a_elem *a = blk.a, *a1 = a + blk.a_next;
    const int8_t *b = blk.b, *b1 = b + blk.b_next;
    Ahead ahead = blk.ahead;
    const int per_step = (ahead.left + blk.steps - 1) / blk.steps;
    const int rows_per_step = (before.left + blk.steps - 1) / blk.steps;
    const bool two = blk.rows > 16;
    VV_TILE_FENCE();
    if (blk.first) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    } else {
        _tile_loadd(0, c, 128);
        if (NT == 2) _tile_loadd(1, c + 16, 128);
        _tile_loadd(2, c + 16 * 32, 128);
        if (NT == 2) _tile_loadd(3, c + 16 * 32 + 16, 128);
    }
    // Activations are loaded as a passing stream (the hint keeps the panels in the first-level cache).
    if (two) {
        for (int s = 0; s < blk.steps; s++, a += kTileBytes, a1 += kTileBytes, b += kTileBytes, b1 += kTileBytes) {
            _tile_loadd(4, b, 64);
            _tile_stream_loadd(6, a, 64);
            _tile_dpbssd(0, 6, 4);
            if (NT == 2) {
                _tile_loadd(5, b1, 64);
                _tile_dpbssd(1, 6, 5);
            }
            _tile_stream_loadd(7, a1, 64);
            _tile_dpbssd(2, 7, 4);
            if (NT == 2) _tile_dpbssd(3, 7, 5);
            ahead.some(per_step);
            before.some(rows_per_step);
        }
        _tile_stored(2, c + 16 * 32, 128);
        if (NT == 2) _tile_stored(3, c + 16 * 32 + 16, 128);
    } else {
        for (int s = 0; s < blk.steps; s++, a += kTileBytes, b += kTileBytes, b1 += kTileBytes) {
            _tile_loadd(4, b, 64);
            _tile_loadd(6, a, 64);
            _tile_dpbssd(0, 6, 4);
            if (NT == 2) {
                _tile_loadd(5, b1, 64);
                _tile_dpbssd(1, 6, 5);
            }
            ahead.some(per_step);
            before.some(rows_per_step);
        }
    }
    _tile_stored(0, c, 128);
    if (NT == 2) _tile_stored(1, c + 16, 128);
}

// The usual head of 64 dimensions: the 32 query rows stay in four tiles while the keys pass.
VV_INLINE void scores_64(const uint16_t* q, const uint16_t* const* k, int n, float* s) {
    constexpr int s_stride = kKeyStep * 4;
    _tile_loadd(4, q, 128);
    _tile_loadd(5, q + 32, 128);
    _tile_loadd(6, q + 16 * 64, 128);
    _tile_loadd(7, q + 16 * 64 + 32, 128);
    for (int j = 0; j < 2 * n; j++, s += 16) {
        const uint16_t* keys = k[j / 2] + (j % 2) * 1024;
        _tile_zero(0);
        _tile_zero(1);
        _tile_loadd(2, keys, 64);
        _tile_dpbf16ps(0, 4, 2);
        _tile_dpbf16ps(1, 6, 2);
        _tile_loadd(3, keys + 512, 64);
        _tile_dpbf16ps(0, 5, 3);
        _tile_dpbf16ps(1, 7, 3);
        _tile_stored(0, s, s_stride);
        _tile_stored(1, s + 16 * kKeyStep, s_stride);
    }
}

// s[32][kKeyStep] for n blocks of 32 keys, by 2 x 2 tiles
static void scores(const uint16_t* q, int rows, int d_pad, const uint16_t* const* k, int n, float* s) {
    const int steps = d_pad / 32, q_stride = d_pad * 2, s_stride = kKeyStep * 4;
    const uint16_t* q1 = q + 16 * d_pad;
    VV_TILE_FENCE();
    if (d_pad == 64 && rows > 16) return scores_64(q, k, n, s);
    for (int j = 0; j < n; j++, s += kKvBlock) {
        const uint16_t *k0 = k[j], *k1 = k0 + steps * 512;
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        for (int i = 0; i < steps; i++) {
            _tile_loadd(4, k0 + i * 512, 64);
            _tile_loadd(6, q + i * 32, q_stride);
            _tile_dpbf16ps(0, 6, 4);
            _tile_loadd(5, k1 + i * 512, 64);
            _tile_dpbf16ps(1, 6, 5);
            if (rows > 16) {
                _tile_loadd(7, q1 + i * 32, q_stride);
                _tile_dpbf16ps(2, 7, 4);
                _tile_dpbf16ps(3, 7, 5);
            }
        }
        _tile_stored(0, s, s_stride);
        _tile_stored(1, s + 16, s_stride);
        if (rows > 16) {
            _tile_stored(2, s + 16 * kKeyStep, s_stride);
            _tile_stored(3, s + 16 * kKeyStep + 16, s_stride);
        }
    }
}

static void values(const uint16_t* p, int rows, const uint16_t* const* v, int n, int d_pad, float* o) {
    const int o_stride = d_pad * 4, p_stride = kKeyStep * 2;
    const uint16_t* p1 = p + 16 * kKeyStep;
    for (int t = 0; t < d_pad / 16; t += 2) {
        float* o0 = o + t * 16;
        float* o1 = o0 + 16 * d_pad;
        VV_TILE_FENCE();
        _tile_loadd(0, o0, o_stride);
        _tile_loadd(1, o0 + 16, o_stride);
        if (rows > 16) {
            _tile_loadd(2, o1, o_stride);
            _tile_loadd(3, o1 + 16, o_stride);
            for (int j = 0; j < n; j++) {
                _tile_loadd(4, v[j] + t * 512, 64);
                _tile_loadd(6, p + j * 32, p_stride);
                _tile_dpbf16ps(0, 6, 4);
                _tile_loadd(5, v[j] + t * 512 + 512, 64);
                _tile_dpbf16ps(1, 6, 5);
                _tile_loadd(7, p1 + j * 32, p_stride);
                _tile_dpbf16ps(2, 7, 4);
                _tile_dpbf16ps(3, 7, 5);
            }
            _tile_stored(2, o1, o_stride);
            _tile_stored(3, o1 + 16, o_stride);
        } else {
            for (int j = 0; j < n; j++) {
                _tile_loadd(4, v[j] + t * 512, 64);
                _tile_loadd(6, p + j * 32, p_stride);
                _tile_dpbf16ps(0, 6, 4);
                _tile_loadd(5, v[j] + t * 512 + 512, 64);
                _tile_dpbf16ps(1, 6, 5);
            }
        }
        _tile_stored(0, o0, o_stride);
        _tile_stored(1, o0 + 16, o_stride);
    }
}

}  // namespace VV_NS

#include "attention.inl"
#include "attention_int8.inl"
#include "table.inl"

const vv::Kernels* vv::kernels_amx() { return &VV_NS::table; }
#else
const vv::Kernels* vv::kernels_amx() { return nullptr; }
#endif

// What one call of product() works on; see gemm.inl.
#pragma once

namespace VV_NS {

constexpr int kChunkRows = 256;
// Steps of k that two panels keep in the first-level cache (14 are 28 KB of 48) while all rows pass over them. Where the
// sums have to be put aside often anyway, shorter chunks leave more room to the passing activations.
constexpr int chunk_count(int k_steps) { return k_steps <= 28 ? (k_steps + 13) / 14 : (k_steps + 7) / 8; }

// Every second half kilobyte is asked for; the hardware brings its neighbour. Asking for all would take twice the fill
// buffers, of which the tile loads need each one they can get.
struct Ahead {
    const char* at;
    int left;  // lines to ask for

    inline __attribute__((always_inline)) void some(int count) {
#if defined(__x86_64__)
        for (int i = 0; i < count; i++) {
            _mm_prefetch(at, _MM_HINT_T0);
            at += 64;
            at += uintptr_t(at) & 512;
        }
#endif
    }
};

// Rows x panels x k steps of one call.
struct Block {
    const a_elem* a;
    int64_t a_next;  // elements to the next 16 rows
    const int8_t* b;
    int64_t b_next;  // bytes to the next panel
    const int32_t* colsum;
    int rows, steps;
    bool first;  // start from zero
    Ahead ahead;
};

}  // namespace VV_NS

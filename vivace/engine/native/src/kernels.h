// The table of functions that each ISA fills in. The functions of one table are compiled with that ISA's flags in one
// translation unit, inside an own namespace: an inline function shared with another unit could be linked in the wrong
// version and fault on an older CPU.
#pragma once
#include "layout.h"

namespace vv {

enum class Epilogue { raw, store, add, silu_mul, head };

// y[rows][n] = dequantised a . w^T, in chunks of panels. Also the shape of a later per-expert product: `a` is then the
// packed subset of rows and `out` a compact buffer.
struct Gemm {
    const void* a;
    const float* a_scale;
    int rows;
    const int8_t* w;
    const float* w_scale;
    const int32_t* colsum;
    const float* bias;
    int k_steps;
    int n;  // real columns
    int panels;
    Epilogue kind;
    // [rows][n], ld floats between rows. silu_mul writes [n / 32][rows][16] instead, ld floats between column groups:
    // rows far apart would meet in the same cache sets, and the panels are written one after the other.
    float* out;
    int32_t* raw;
    int64_t ld;
    int n_argmax;  // head: the first n_argmax rows want the arg max, the others their logits in `out`
    const float* sharpness;  // head: [n_argmax] or NULL; see vv_batch, here times log2 e
};

// Running arg max of one thread, per row, and the sums of exp2((logit - value) * sharpness) by lane.
struct Best {
    float* value;
    int32_t* index;
    float* sum;  // [rows][16]
};

struct Rope {
    const float* cos;  // table rows of rope_dim / 2
    const float* sin;
    int half;
    bool interleaved;
};

// Everything done to one row between the qkv product and attention.
struct HeadRow {
    const float* qkv;
    const float* q_norm;
    const float* k_norm;
    float eps;
    int heads, kv_heads, head_dim, d_pad;
    Rope rope;
    uint16_t* q;            // [kv_heads][stacked rows][d_pad]; points at this row's first stacked row
    int64_t q_head_stride;  // elements between kv heads
    char* kv;               // this position's block at this layer, head 0: K then V per head
    int slot;               // position inside the block
    const float* k_centre;  // int8: [kv_heads][d_pad], taken off the keys
};

struct Attention {
    const uint16_t* q;  // this kv head's stacked rows of the span
    int group;          // query heads per kv head
    int start;          // position of the span's first row
    const int32_t* blocks;
    const char* kv;        // block 0 at this layer and head
    int64_t block_stride;  // bytes between blocks
    int head_dim, d_pad;
    float scale_log2e;
    float* out;  // attention output of the span's first row, at this kv head's first query head
    int64_t ld;  // floats between rows
};

struct Kernels {
    const char* name;
    int a_elem;  // bytes of a packed activation
    void (*thread_begin)();
    void (*thread_end)();
    void (*gemm)(const Gemm&, int panel0, int panel1, const int8_t* next, const Best&);
    void (*embed)(const uint16_t* row, float* x, int n);
    // a: this row's first 64 values in the packed block
    void (*norm_quant)(const float* x, const float* w, int n, int k_steps, float eps, void* a, float* scale, float* tmp);
    void (*quant)(const float* x, int n, int k_steps, void* a, float* scale);
    // up to 16 rows, within one packed block, of silu_mul's output; x and a are those of the first
    void (*quant_groups)(const float* x, int64_t ld, int rows, int n, int k_steps, void* a, float* scale);
    void (*pack_row)(const int8_t* x, int n, int k_steps, void* a);
    void (*head_row)(const HeadRow&);
    void (*attention)(const Attention&, int row0, int row1, void* scratch);
    // The same over int8 keys and values, with up to kQueryTiles times the rows
    void (*head_row_int8)(const HeadRow&);
    void (*attention_int8)(const Attention&, int row0, int row1, void* scratch);
};

constexpr size_t attention_scratch(int d_pad) {
    return size_t(kQueryRows) * (kKeyStep * 6 + size_t(d_pad) * 4 + 4 * 16 + 64) + 4096;
}

// The state of every tile; the keys and values of one step and their scales.
constexpr size_t attention_int8_scratch(int d_pad) {
    return kQueryTiles * attention_scratch(d_pad) + size_t(kKeyStep) * (size_t(d_pad) * 4 + 8) + 64;
}

const Kernels* kernels_portable();
const Kernels* kernels_avx2();
const Kernels* kernels_avxvnni();
const Kernels* kernels_avx512();
const Kernels* kernels_amx();

int isa_best();
const Kernels* kernels_for(int isa);  // nullptr: not compiled in or not on this machine

}  // namespace vv

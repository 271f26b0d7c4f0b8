// A model: borrowed weights, an own scratch arena sized once, its threads; and the paged KV memory.
#pragma once
#include <memory>
#include <vector>

#include "kernels.h"
#include "pool.h"
#include "vivace_native.h"

namespace vv {

enum Phase {
    kStart, kAttnNorm, kQkv, kRope, kAttention, kAttnQuant, kOut, kFfnNorm, kGateUp, kFfnQuant, kDown, kHeadNorm, kHead,
    kPhases
};

// Anonymous, zeroed, lazily resident, huge pages where the system gives them.
class Memory {
public:
    Memory() = default;
    explicit Memory(size_t bytes);
    ~Memory();
    Memory(Memory&& other) noexcept { *this = std::move(other); }
    Memory& operator=(Memory&& other) noexcept;
    char* data() const { return data_; }
    size_t size() const { return size_; }

private:
    char* data_ = nullptr;
    size_t size_ = 0;
};

void fail(const char* format, ...);  // sets vv_error()

}  // namespace vv

struct vv_model {
    vv_config config;
    std::vector<vv_layer> layers;
    const uint16_t* embed;
    const float* final_norm;
    vv_linear head;
    const vv::Kernels* kernels;
    int d_pad, group, half;
    int task_rows;  // stacked query rows of an attention task of the running step
    int k_hidden, k_attn, k_ffn;  // k steps of the three input widths
    int64_t qkv_ld;
    int64_t h_ld;  // of the running step: an odd number of lines, so that column groups spread over the cache sets

    vv::Memory arena;
    float *x, *qkv, *attn, *h;
    char* a;         // packed activations of the product to come
    char* a_head;    // of the head: up to 2 x max_rows rows
    float *a_scale, *head_scale;
    uint16_t* q;
    int64_t q_head_stride;
    std::vector<char*> scratch;       // per thread: attention scratch, norm row
    std::vector<char*> scratch_int8;  // per thread, of attention over int8 keys
    std::vector<float*> best_value;   // per thread, [max_rows]
    std::vector<int32_t*> best_index;
    std::vector<float*> best_sum;     // per thread, [max_rows][16]
    float* sharpness;                 // [max_rows]
    int head_rows = 0;                // rows of the last head product, whose activations are still in a_head
    std::vector<int> task0;           // first attention task of each span
    std::vector<int> row_span;        // span of each row

    vv::Memory rope_memory;
    float *cos, *sin;  // [max_positions][half], filled up to rope_filled
    int rope_filled = 0;
    std::vector<double> inv_freq;
    std::vector<float> k_centre;  // [layers][kv_heads][d_pad], see fill_centres

    double seconds[vv::kPhases] = {};
    std::unique_ptr<vv::Pool> pool;
};

struct vv_kv {
    vv::Memory memory;
    int32_t blocks;
    bool int8;
    int64_t head_bytes;   // K and V of one block, layer and head
    int64_t layer_bytes;  // of one block
    int64_t block_bytes;  // all layers
};

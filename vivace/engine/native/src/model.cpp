#include "model.h"

#include <sys/mman.h>

#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#if defined(__linux__)
#include <sched.h>
#endif

namespace vv {
namespace {

thread_local char error_text[256];

int usable_cpus() {
#if defined(__linux__)
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
#endif
    const int n = int(std::thread::hardware_concurrency());
    return n > 0 ? n : 1;
}

bool check(const vv_linear& l, const char* name, int64_t n, int64_t k) {
    if (l.w && l.scale && l.colsum && l.n == n && l.k == k) return true;
    fail("%s: expected n=%lld k=%lld, got n=%d k=%d%s", name, (long long)n, (long long)k, l.n, l.k,
         l.w && l.scale && l.colsum ? "" : " with a missing array");
    return false;
}

bool check(const vv_config& c, const vv_weights& w) {
    const int rope = c.rope_dim ? c.rope_dim : c.head_dim;
    if (c.layers < 1 || c.hidden < 16 || c.hidden % 16 || c.ffn < 16 || c.ffn % 16 || c.vocab < 1) {
        fail("layers and vocab must be positive, hidden and ffn multiples of 16");
    } else if (c.head_dim < 16 || c.head_dim > 512 || c.head_dim % 16 || rope % 2 || rope < 2 || rope > c.head_dim) {
        fail("head_dim must be a multiple of 16 up to 512, rope_dim even and no larger");
    } else if (c.kv_heads < 1 || c.heads < 1 || c.heads % c.kv_heads) {
        fail("heads must be a multiple of kv_heads");
    } else if (c.max_rows < 1 || c.max_rows > 65536 || c.max_positions < 1) {
        fail("max_rows must be 1..65536, max_positions positive");
    } else if (!w.embed || !w.layers || !w.final_norm) {
        fail("a weight array is missing");
    } else {
        const int64_t d = c.head_dim;
        for (int i = 0; i < c.layers; i++) {
            const vv_layer& l = w.layers[i];
            if (!l.attn_norm || !l.ffn_norm) return fail("layer %d: a norm is missing", i), false;
            if (!check(l.qkv, "qkv", (c.heads + 2 * c.kv_heads) * d, c.hidden) || !check(l.o, "o", c.hidden, c.heads * d) ||
                !check(l.gate_up, "gate_up", 2 * int64_t(c.ffn), c.hidden) || !check(l.down, "down", c.hidden, c.ffn))
                return false;
        }
        return check(w.head, "head", c.vocab, c.hidden);
    }
    return false;
}

// Hands out aligned pieces; the first pass only measures.
struct Arena {
    char* base;
    size_t used = 0;
    template <class T>
    T* take(int64_t count) {
        T* p = base ? reinterpret_cast<T*>(base + used) : nullptr;
        // An odd number of lines between arrays, so that equal rows of two arrays do not share cache sets.
        used += size_t(round_up(count * int64_t(sizeof(T)), 64)) + 64;
        return p;
    }
};

void lay_out(vv_model& m, Arena& arena, int threads) {
    const vv_config& c = m.config;
    const int64_t rows = round_up(c.max_rows, kBlockRows), elem = m.kernels->a_elem;
    const int k_max = m.k_hidden > m.k_attn ? (m.k_hidden > m.k_ffn ? m.k_hidden : m.k_ffn)
                                            : (m.k_attn > m.k_ffn ? m.k_attn : m.k_ffn);
    m.x = arena.take<float>(rows * c.hidden);
    m.qkv = arena.take<float>(rows * m.qkv_ld);
    m.attn = arena.take<float>(rows * c.heads * c.head_dim);
    m.h = arena.take<float>((rows * 16 + 16) * (c.ffn / 16));
    m.a = arena.take<char>(rows * k_max * kStepK * elem);
    m.a_head = arena.take<char>(2 * rows * m.k_hidden * kStepK * elem);
    m.a_scale = arena.take<float>(rows);
    m.head_scale = arena.take<float>(2 * rows);
    m.sharpness = arena.take<float>(rows);
    m.q_head_stride = (rows * m.group + kQueryRows) * m.d_pad;
    m.q = arena.take<uint16_t>(m.q_head_stride * c.kv_heads);
    for (int t = 0; t < threads; t++) {
        m.scratch[t] = arena.take<char>(int64_t(attention_scratch(m.d_pad)) + c.hidden * 4);
        m.best_value[t] = arena.take<float>(rows);
        m.best_index[t] = arena.take<int32_t>(rows);
        m.best_sum[t] = arena.take<float>(rows * 16);
    }
    for (int t = 0; t < threads; t++) m.scratch_int8[t] = arena.take<char>(int64_t(attention_int8_scratch(m.d_pad)));
}

// Taking the same vector off all keys of a head moves all scores of a row alike, which softmax does not see. So int8 keys
// are kept without what the bias of qkv adds to each of them: the mean of the rotated bias over the first positions. It
// is next to all of the bias where the rotation is slow, and there some models have biases that would leave all other
// dimensions a few of the 127 steps.
void fill_centres(vv_model& m) {
    const vv_config& c = m.config;
    const double factor = c.rope_attn_factor != 0 ? c.rope_attn_factor : 1.0, positions = 4096;
    m.k_centre.assign(size_t(c.layers) * size_t(c.kv_heads) * size_t(m.d_pad), 0.0f);
    for (int head = 0; head < c.layers * c.kv_heads; head++) {
        const vv_layer& layer = m.layers[size_t(head / c.kv_heads)];
        if (!layer.qkv.bias || layer.k_norm) continue;
        const float* bias = layer.qkv.bias + (c.heads + head % c.kv_heads) * c.head_dim;
        float* centre = m.k_centre.data() + int64_t(head) * m.d_pad;
        for (int i = 2 * m.half; i < c.head_dim; i++) centre[i] = bias[i];
        for (int i = 0; i < m.half; i++) {
            const int u = c.rope_interleaved ? 2 * i : i, v = c.rope_interleaved ? u + 1 : i + m.half;
            const double turn = m.inv_freq[size_t(i)] * positions;
            const double cos = factor * (turn > 0 ? std::sin(turn) / turn : 1.0);
            const double sin = factor * (turn > 0 ? (1 - std::cos(turn)) / turn : 0.0);
            centre[u] = float(bias[u] * cos - bias[v] * sin);
            centre[v] = float(bias[v] * cos + bias[u] * sin);
        }
    }
}

}  // namespace

void fail(const char* format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(error_text, sizeof error_text, format, args);
    va_end(args);
}

namespace {

constexpr size_t kHuge = size_t(2) << 20;

char* map_pages(size_t bytes) {
    bytes = (bytes + kHuge - 1) / kHuge * kHuge;
    // Over-allocate so that the start can be moved to a huge-page boundary.
    char* p = static_cast<char*>(
        mmap(nullptr, bytes + kHuge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (p == MAP_FAILED) return nullptr;
    char* data = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(p) + kHuge - 1) / kHuge * kHuge);
    if (data > p) munmap(p, size_t(data - p));
    if (p + kHuge > data) munmap(data + bytes, size_t(p + kHuge - data));
#if defined(MADV_HUGEPAGE)
    madvise(data, bytes, MADV_HUGEPAGE);
#endif
    return data;
}

void unmap_pages(char* p, size_t bytes) {
    if (p) munmap(p, (bytes + kHuge - 1) / kHuge * kHuge);
}

}  // namespace

Memory::Memory(size_t bytes) : data_(map_pages(bytes)), size_(data_ ? bytes : 0) {}
Memory::~Memory() { unmap_pages(data_, size_); }

Memory& Memory::operator=(Memory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
}

}  // namespace vv

using namespace vv;

extern "C" int32_t vv_abi(void) { return VV_ABI; }
extern "C" const char* vv_error(void) { return error_text; }

extern "C" void* vv_alloc(int64_t bytes) { return bytes > 0 ? map_pages(size_t(bytes)) : nullptr; }
extern "C" void vv_release(void* p, int64_t bytes) { unmap_pages(static_cast<char*>(p), size_t(bytes)); }

extern "C" vv_model* vv_model_create(const vv_config* config, const vv_weights* weights, int32_t threads, int32_t isa) {
    if (!config || !weights || !check(*config, *weights)) return nullptr;
    const Kernels* kernels = kernels_for(isa);
    if (!kernels) return fail("this machine cannot run ISA %d", isa), nullptr;
    const int usable = usable_cpus();
    if (threads <= 0) threads = usable;

    auto m = std::make_unique<vv_model>();
    m->config = *config;
    m->kernels = kernels;
    m->layers.assign(weights->layers, weights->layers + config->layers);
    m->embed = weights->embed;
    m->final_norm = weights->final_norm;
    m->head = weights->head;
    const vv_config& c = m->config;
    m->d_pad = int(round_up(c.head_dim, 32));
    m->group = c.heads / c.kv_heads;
    m->half = (c.rope_dim ? c.rope_dim : c.head_dim) / 2;
    m->k_hidden = int(ceil_div(c.hidden, kStepK));
    m->k_attn = int(ceil_div(int64_t(c.heads) * c.head_dim, kStepK));
    m->k_ffn = int(ceil_div(c.ffn, kStepK));
    m->qkv_ld = int64_t(c.heads + 2 * c.kv_heads) * c.head_dim;
    m->scratch.resize(size_t(threads));
    m->scratch_int8.resize(size_t(threads));
    m->best_value.resize(size_t(threads));
    m->best_index.resize(size_t(threads));
    m->best_sum.resize(size_t(threads));
    m->task0.resize(size_t(c.max_rows) + 1);
    m->row_span.resize(size_t(c.max_rows));

    Arena arena{nullptr};
    lay_out(*m, arena, threads);
    m->arena = Memory(arena.used);
    m->rope_memory = Memory(size_t(c.max_positions) * size_t(m->half) * 8);
    if (!m->arena.data() || !m->rope_memory.data()) return fail("out of memory"), nullptr;
    arena = Arena{m->arena.data()};
    lay_out(*m, arena, threads);

    m->cos = reinterpret_cast<float*>(m->rope_memory.data());
    m->sin = m->cos + int64_t(c.max_positions) * m->half;
    for (int i = 0; i < m->half; i++)
        m->inv_freq.push_back(c.inv_freq ? c.inv_freq[i] : std::pow(c.rope_theta, -double(i) / m->half));
    m->config.inv_freq = nullptr;
    fill_centres(*m);

    const int idle = c.idle_spin_us < 0 ? 200 : (c.idle_spin_us > 1000 ? 1000 : c.idle_spin_us);
    m->pool = std::make_unique<Pool>(threads, (c.flags & VV_FLAG_PIN) && threads <= usable, idle);
    return m.release();
}

extern "C" void vv_model_free(vv_model* model) { delete model; }

extern "C" vv_kv* vv_kv_create(const vv_model* model, int32_t n_blocks, int32_t kind) {
    if (!model || n_blocks < 1 || (kind != VV_KV_BF16 && kind != VV_KV_INT8))
        return fail("a KV memory needs a model, at least one block and a known kind"), nullptr;
    auto kv = std::make_unique<vv_kv>();
    const vv_config& c = model->config;
    kv->blocks = n_blocks;
    kv->int8 = kind == VV_KV_INT8;
    kv->head_bytes = kv_head_bytes(model->d_pad, kv->int8);
    kv->layer_bytes = kv->head_bytes * c.kv_heads;
    kv->block_bytes = kv->layer_bytes * c.layers;
    kv->memory = Memory(size_t(kv->block_bytes) * size_t(n_blocks));
    if (!kv->memory.data()) return fail("no address space for %d KV blocks", n_blocks), nullptr;
    return kv.release();
}

extern "C" void vv_kv_free(vv_kv* kv) { delete kv; }
extern "C" int64_t vv_kv_block_bytes(const vv_kv* kv) { return kv->block_bytes; }

extern "C" int32_t vv_kv_copy_block(vv_kv* kv, int32_t src, int32_t dst) {
    if (!kv || src < 0 || dst < 0 || src >= kv->blocks || dst >= kv->blocks) return fail("no such KV block"), VV_EINVAL;
    const size_t bytes = size_t(kv->block_bytes);
    if (src != dst) std::memcpy(kv->memory.data() + size_t(dst) * bytes, kv->memory.data() + size_t(src) * bytes, bytes);
    return VV_OK;
}

extern "C" int32_t vv_kv_drop_blocks(vv_kv* kv, int32_t first, int32_t count) {
    if (!kv || first < 0 || count < 0 || first > kv->blocks - count) return fail("no such KV blocks"), VV_EINVAL;
    const size_t bytes = size_t(kv->block_bytes), page = 4096;
    const size_t from = size_t(round_up(int64_t(size_t(first) * bytes), page));
    const size_t to = size_t(first + count) * bytes / page * page;
    if (to > from) madvise(kv->memory.data() + from, to - from, MADV_DONTNEED);
    return VV_OK;
}

extern "C" int32_t vv_profile(vv_model* model, double* out) {
    if (model && out) std::memcpy(out, model->seconds, sizeof model->seconds);
    return kPhases;
}

extern "C" const char* vv_profile_name(int32_t phase) {
    static const char* const names[kPhases] = {"start", "attn_norm", "qkv", "rope", "attention", "attn_quant", "o",
                                               "ffn_norm", "gate_up", "ffn_quant", "down", "head_norm", "head"};
    return phase >= 0 && phase < kPhases ? names[phase] : nullptr;
}

extern "C" void vv_profile_reset(vv_model* model) { std::memset(model->seconds, 0, sizeof model->seconds); }

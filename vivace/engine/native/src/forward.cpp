// One forward step. Every thread runs `step` from top to bottom; between two phases they meet at a barrier.
#include <cmath>
#include <cstring>
#include <ctime>

#include "model.h"

namespace vv {
namespace {

struct Step {
    vv_model& m;
    vv_kv& kv;
    const vv_batch& b;
    const volatile int32_t* abort;
    double mark = 0;

    // The thread-side view
    const Kernels& k = *m.kernels;
    const int rows = b.n_tokens;

    bool aborted() const { return abort && *abort; }
};

double seconds_now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return double(t.tv_sec) + double(t.tv_nsec) * 1e-9;
}

// End of a phase: all threads meet. Returns whether to go on.
bool meet(Step& s, int thread, Phase phase) {
    const bool stop = s.m.pool->barrier(s.abort);
    if (thread == 0 && (s.m.config.flags & VV_FLAG_PROFILE)) {
        const double t = seconds_now();
        s.m.seconds[phase] += t - s.mark;
        s.mark = t;
    }
    return !stop;
}

// Work in pieces of `grain`, shared out as the threads come.
template <class Fn>
void share(Step& s, int thread, int count, int grain, Fn&& fn) {
    for (int piece = thread; piece * grain < count; piece = s.m.pool->claim()) {
        const int end = (piece + 1) * grain;
        fn(piece * grain, end < count ? end : count);
    }
}

char* packed_row(const Step& s, char* a, int row, int k_steps) {
    const int64_t lane = int64_t(row / 16) * k_steps * 16 + row % 16;
    return a + lane * kStepK * s.k.a_elem;
}

int row_grain(const Step& s) {
    const int grain = int(ceil_div(s.rows, s.m.pool->threads() * 4));
    return grain < 16 ? grain : 16;
}

Gemm product(const Step& s, const vv_linear& l, Epilogue kind, float* out, int64_t ld) {
    Gemm g{};
    g.a = s.m.a;
    g.a_scale = s.m.a_scale;
    g.rows = s.rows;
    g.w = l.w;
    g.w_scale = l.scale;
    g.colsum = l.colsum;
    g.bias = l.bias;
    g.k_steps = int(ceil_div(l.k, kStepK));
    g.n = l.n;
    g.panels = int(ceil_div(l.n, kPanel));
    g.kind = kind;
    g.out = out;
    g.ld = ld;
    return g;
}

// Panels of one piece of work: even (gate and up belong together), about eight pieces a thread.
int panel_grain(int panels, int threads) {
    int grain = panels / (threads * 8) & ~1;
    return grain < 2 ? 2 : (grain > 32 ? 32 : grain);
}

void run_product(Step& s, int thread, const Gemm& g, const int8_t* after, bool checks_abort = false) {
    const int threads = s.m.pool->threads(), grain = panel_grain(g.panels, threads);
    const int64_t piece_bytes = int64_t(grain) * g.k_steps * kTileBytes;
    const size_t t = size_t(thread);
    const Best best{s.m.best_value[t], s.m.best_index[t], s.m.best_sum[t]};
    int piece = thread;
    while (piece * grain < g.panels) {
        // Claimed ahead, so that its first panels can be prefetched.
        const int next = s.m.pool->claim();
        const int8_t* ahead = next * grain < g.panels ? g.w + next * piece_bytes : after;
        const int end = (piece + 1) * grain;
        if (checks_abort && s.aborted()) return;
        s.k.gemm(g, piece * grain, end < g.panels ? end : g.panels, ahead, best);
        piece = next;
    }
}

// Where this thread will start in the product after the current one.
const int8_t* first_piece(const Step& s, int thread, const vv_linear& l) {
    const int panels = int(ceil_div(l.n, kPanel)), grain = panel_grain(panels, s.m.pool->threads());
    return thread * grain < panels ? l.w + int64_t(thread) * grain * ceil_div(l.k, kStepK) * kTileBytes : nullptr;
}

void norm(Step& s, int thread, const float* weight) {
    vv_model& m = s.m;
    float* tmp = reinterpret_cast<float*>(m.scratch[size_t(thread)] + attention_scratch(m.d_pad));
    share(s, thread, s.rows, row_grain(s), [&](int from, int to) {
        for (int r = from; r < to; r++)
            s.k.norm_quant(m.x + int64_t(r) * m.config.hidden, weight, m.config.hidden, m.k_hidden,
                           float(m.config.rms_eps), packed_row(s, m.a, r, m.k_hidden), m.a_scale + r, tmp);
    });
}

void quantize(Step& s, int thread, const float* x, int n, int k_steps) {
    share(s, thread, s.rows, row_grain(s), [&](int from, int to) {
        for (int r = from; r < to; r++)
            s.k.quant(x + int64_t(r) * n, n, k_steps, packed_row(s, s.m.a, r, k_steps), s.m.a_scale + r);
    });
}

void quantize_ffn(Step& s, int thread) {
    vv_model& m = s.m;
    const int grain = s.rows <= 8 ? 4 : (s.rows <= 32 ? 8 : 16);  // divides 16: a piece stays in one packed block
    share(s, thread, s.rows, grain, [&](int from, int to) {
        s.k.quant_groups(m.h + from * 16, m.h_ld, to - from, m.config.ffn, m.k_ffn, packed_row(s, m.a, from, m.k_ffn),
                         m.a_scale + from);
    });
}

void rope_and_cache(Step& s, int thread, int layer) {
    vv_model& m = s.m;
    const vv_config& c = m.config;
    char* kv = s.kv.memory.data() + layer * s.kv.layer_bytes;
    const auto head_row = s.kv.int8 ? s.k.head_row_int8 : s.k.head_row;
    HeadRow h{};
    h.q_norm = m.layers[size_t(layer)].q_norm;
    h.k_norm = m.layers[size_t(layer)].k_norm;
    h.eps = float(c.rms_eps);
    h.heads = c.heads;
    h.kv_heads = c.kv_heads;
    h.head_dim = c.head_dim;
    h.d_pad = m.d_pad;
    h.q_head_stride = m.q_head_stride;
    h.rope.half = m.half;
    h.k_centre = m.k_centre.data() + int64_t(layer) * c.kv_heads * m.d_pad;
    h.rope.interleaved = c.rope_interleaved != 0;
    share(s, thread, s.rows, row_grain(s), [&](int from, int to) {
        int span = m.row_span[size_t(from)], first = from;
        while (first > 0 && m.row_span[size_t(first) - 1] == span) first--;
        for (int r = from; r < to; r++) {
            if (m.row_span[size_t(r)] != span) span = m.row_span[size_t(r)], first = r;
            const vv_span& sp = s.b.spans[span];
            const int pos = sp.start + r - first;
            h.qkv = m.qkv + r * m.qkv_ld;
            h.rope.cos = m.cos + int64_t(pos) * m.half;
            h.rope.sin = m.sin + int64_t(pos) * m.half;
            h.q = m.q + int64_t(r) * m.group * m.d_pad;
            h.kv = kv + sp.blocks[pos / kKvBlock] * s.kv.block_bytes;
            h.slot = pos % kKvBlock;
            head_row(h);
        }
    });
}

void attention(Step& s, int thread, int layer) {
    vv_model& m = s.m;
    const vv_config& c = m.config;
    const char* kv = s.kv.memory.data() + layer * s.kv.layer_bytes;
    const auto kernel = s.kv.int8 ? s.k.attention_int8 : s.k.attention;
    char* scratch = (s.kv.int8 ? m.scratch_int8 : m.scratch)[size_t(thread)];
    Attention a{};
    a.group = m.group;
    a.head_dim = c.head_dim;
    a.d_pad = m.d_pad;
    a.block_stride = s.kv.block_bytes;
    a.scale_log2e = float(1.4426950408889634 / std::sqrt(double(c.head_dim)));
    a.ld = int64_t(c.heads) * c.head_dim;
    const int tasks = m.task0[size_t(s.b.n_spans)];
    int span = 0, first = 0;
    for (int task = thread; task < tasks; task = m.pool->claim()) {
        while (task >= m.task0[size_t(span) + 1]) first += s.b.spans[span++].rows;
        const vv_span& sp = s.b.spans[span];
        const int stacked = sp.rows * m.group;
        // Heads in turn: threads side by side then read different keys, each mostly its own head's.
        const int local = task - m.task0[size_t(span)], head = local % c.kv_heads;
        const int row0 = local / c.kv_heads * m.task_rows, row1 = row0 + m.task_rows;
        a.q = m.q + head * m.q_head_stride + int64_t(first) * m.group * m.d_pad;
        a.start = sp.start;
        a.blocks = sp.blocks;
        a.kv = kv + head * s.kv.head_bytes;
        a.out = m.attn + first * a.ld + int64_t(head) * m.group * c.head_dim;
        kernel(a, row0, row1 < stacked ? row1 : stacked, scratch);
    }
}

// The rows whose logits are wanted, the arg-max ones first; final norm and head over those rows only.
bool head(Step& s, int thread) {
    vv_model& m = s.m;
    const vv_batch& b = s.b;
    const int wanted = b.n_argmax + b.n_logits;
    float* tmp = reinterpret_cast<float*>(m.scratch[size_t(thread)] + attention_scratch(m.d_pad));
    share(s, thread, wanted, 4, [&](int from, int to) {
        for (int i = from; i < to; i++) {
            const int r = i < b.n_argmax ? b.argmax_rows[i] : b.logit_rows[i - b.n_argmax];
            s.k.norm_quant(m.x + int64_t(r) * m.config.hidden, m.final_norm, m.config.hidden, m.k_hidden,
                           float(m.config.rms_eps), packed_row(s, m.a_head, i, m.k_hidden), m.head_scale + i, tmp);
        }
    });
    for (int i = 0; i < b.n_argmax; i++) {
        m.best_value[size_t(thread)][i] = -INFINITY;
        m.best_index[size_t(thread)][i] = 0;
    }
    if (b.argmax_sharpness) std::memset(m.best_sum[size_t(thread)], 0, size_t(b.n_argmax) * 64);
    if (b.argmax_sharpness && thread == 0)
        for (int i = 0; i < b.n_argmax; i++) m.sharpness[i] = b.argmax_sharpness[i] * float(M_LOG2E);
    if (!meet(s, thread, kHeadNorm)) return false;
    Gemm g = product(s, m.head, Epilogue::head, b.logits, m.config.vocab);
    g.a = m.a_head;
    g.a_scale = m.head_scale;
    g.rows = wanted;
    g.n_argmax = b.n_argmax;
    if (b.argmax_sharpness) g.sharpness = m.sharpness;
    run_product(s, thread, g, first_piece(s, thread, m.layers[0].qkv), true);
    if (!meet(s, thread, kHead)) return false;
    if (thread != 0) return true;
    for (int i = 0; i < b.n_argmax; i++) {
        float value = m.best_value[0][i];
        int32_t index = m.best_index[0][i];
        for (size_t t = 1; t < m.best_value.size(); t++) {
            const float v = m.best_value[t][i];
            const int32_t at = m.best_index[t][i];
            if (v > value || (v == value && at < index)) value = v, index = at;
        }
        b.argmax[i] = index;
        if (b.argmax_logit) b.argmax_logit[i] = value;
        if (!b.argmax_sharpness || b.argmax_sharpness[i] == 0.0f) continue;
        double sum = 0;
        for (size_t t = 0; t < m.best_value.size(); t++) {
            double lanes = 0;
            for (int j = 0; j < 16; j++) lanes += double(m.best_sum[t][i * 16 + j]);
            if (lanes > 0) sum += lanes * std::exp2(double((m.best_value[t][i] - value) * m.sharpness[i]));
        }
        b.argmax_weight[i] = float(sum);
    }
    m.head_rows = wanted;
    return true;
}

bool layer(Step& s, int thread, int i) {
    vv_model& m = s.m;
    const vv_config& c = m.config;
    const vv_layer& w = m.layers[size_t(i)];
    const vv_linear& after = i + 1 < c.layers ? m.layers[size_t(i) + 1].qkv : m.head;

    norm(s, thread, w.attn_norm);
    if (!meet(s, thread, kAttnNorm)) return false;
    run_product(s, thread, product(s, w.qkv, Epilogue::store, m.qkv, m.qkv_ld), first_piece(s, thread, w.o));
    meet(s, thread, kQkv);
    rope_and_cache(s, thread, i);
    meet(s, thread, kRope);
    attention(s, thread, i);
    if (!meet(s, thread, kAttention)) return false;
    quantize(s, thread, m.attn, c.heads * c.head_dim, m.k_attn);
    meet(s, thread, kAttnQuant);
    run_product(s, thread, product(s, w.o, Epilogue::add, m.x, c.hidden), first_piece(s, thread, w.gate_up));
    meet(s, thread, kOut);
    norm(s, thread, w.ffn_norm);
    meet(s, thread, kFfnNorm);
    run_product(s, thread, product(s, w.gate_up, Epilogue::silu_mul, m.h, m.h_ld), first_piece(s, thread, w.down));
    if (!meet(s, thread, kGateUp)) return false;
    quantize_ffn(s, thread);
    meet(s, thread, kFfnQuant);
    run_product(s, thread, product(s, w.down, Epilogue::add, m.x, c.hidden), first_piece(s, thread, after));
    return meet(s, thread, kDown);
}

void step(void* context, int thread) {
    Step& s = *static_cast<Step*>(context);
    vv_model& m = s.m;
    const int hidden = m.config.hidden;
    if (thread == 0 && (m.config.flags & VV_FLAG_PROFILE)) s.mark = seconds_now();
    s.k.thread_begin();
    share(s, thread, s.rows, row_grain(s), [&](int from, int to) {
        for (int r = from; r < to; r++)
            s.k.embed(m.embed + int64_t(s.b.tokens[r]) * hidden, m.x + int64_t(r) * hidden, hidden);
    });
    bool going = meet(s, thread, kStart);
    for (int i = 0; going && i < m.config.layers; i++) going = layer(s, thread, i);
    if (going && s.b.n_argmax + s.b.n_logits > 0) going = head(s, thread);
    s.k.thread_end();
}

// One row of logits, from the activations of the last head product. A row lies among up to 15 others of its packed
// block; those before it are computed along, which costs nothing beside reading the weights.
struct OneRow {
    Step step;
    Gemm gemm;
};

void one_row(void* context, int thread) {
    OneRow& o = *static_cast<OneRow*>(context);
    o.step.k.thread_begin();
    run_product(o.step, thread, o.gemm, nullptr);
    meet(o.step, thread, kHead);
    o.step.k.thread_end();
}

void fill_rope(vv_model& m, int end) {
    const double factor = m.config.rope_attn_factor != 0 ? m.config.rope_attn_factor : 1.0;
    for (; m.rope_filled < end; m.rope_filled++)
        for (int i = 0; i < m.half; i++) {
            const double angle = m.rope_filled * m.inv_freq[size_t(i)];
            m.cos[int64_t(m.rope_filled) * m.half + i] = float(std::cos(angle) * factor);
            m.sin[int64_t(m.rope_filled) * m.half + i] = float(std::sin(angle) * factor);
        }
}

bool rows_valid(const int32_t* rows, int count, int limit, const char* what) {
    if (count < 0 || count > limit || (count > 0 && !rows)) return fail("%s: bad count %d", what, count), false;
    for (int i = 0; i < count; i++)
        if (rows[i] < 0 || rows[i] >= limit) return fail("%s: no row %d in the batch", what, rows[i]), false;
    return true;
}

bool valid(const vv_model& m, const vv_kv& kv, const vv_batch& b) {
    const vv_config& c = m.config;
    if (b.n_tokens < 1 || b.n_tokens > c.max_rows || !b.tokens || !b.spans || b.n_spans < 1 || b.n_spans > b.n_tokens)
        return fail("a batch needs 1..%d rows and at most as many spans; got %d rows, %d spans", c.max_rows, b.n_tokens,
                    b.n_spans),
               false;
    for (int i = 0; i < b.n_tokens; i++)
        if (b.tokens[i] < 0 || b.tokens[i] >= c.vocab)
            return fail("token %d of row %d is outside the vocabulary", b.tokens[i], i), false;
    int64_t rows = 0;
    for (int i = 0; i < b.n_spans; i++) {
        const vv_span& s = b.spans[i];
        const int64_t end = int64_t(s.start) + s.rows;
        if (s.rows < 1 || s.start < 0 || end > c.max_positions || !s.blocks)
            return fail("span %d: start %d, %d rows do not fit %d positions", i, s.start, s.rows, c.max_positions), false;
        for (int64_t j = 0; j < ceil_div(end, kKvBlock); j++)
            if (s.blocks[j] < 0 || s.blocks[j] >= kv.blocks)
                return fail("span %d: no KV block %d", i, s.blocks[j]), false;
        rows += s.rows;
    }
    if (rows != b.n_tokens) return fail("the spans have %lld rows, the batch %d", (long long)rows, b.n_tokens), false;
    if (!rows_valid(b.argmax_rows, b.n_argmax, b.n_tokens, "argmax_rows") ||
        !rows_valid(b.logit_rows, b.n_logits, b.n_tokens, "logit_rows"))
        return false;
    if ((b.n_argmax && !b.argmax) || (b.n_logits && !b.logits) || (b.argmax_sharpness && !b.argmax_weight)) return fail("an output array is missing"), false;
    return true;
}

// Stacked query rows of an attention task. Over int8 keys more than one tile, as far as every thread still gets some
// tasks; which rows share a task changes no row's result.
int task_rows(const vv_model& m, const vv_kv& kv, const vv_batch& b) {
    if (!kv.int8) return kQueryRows;
    int64_t tiles = 0;
    for (int i = 0; i < b.n_spans; i++) tiles += ceil_div(int64_t(b.spans[i].rows) * m.group, kQueryRows);
    const int64_t each = tiles * m.config.kv_heads / (m.pool->threads() * 3);
    return kQueryRows * int(each < 1 ? 1 : each < kQueryTiles ? each : kQueryTiles);
}

}  // namespace
}  // namespace vv

using namespace vv;

extern "C" int32_t vv_forward(vv_model* model, vv_kv* kv, const vv_batch* batch, const volatile int32_t* abort) {
    if (!model || !kv || !batch) return fail("a model, a KV memory and a batch are needed"), VV_EINVAL;
    if (!valid(*model, *kv, *batch)) return VV_EINVAL;
    int row = 0, task = 0, end = 0;
    model->task_rows = task_rows(*model, *kv, *batch);
    for (int i = 0; i < batch->n_spans; i++) {
        const vv_span& s = batch->spans[i];
        model->task0[size_t(i)] = task;
        task += int(ceil_div(int64_t(s.rows) * model->group, model->task_rows)) * model->config.kv_heads;
        for (int r = 0; r < s.rows; r++) model->row_span[size_t(row++)] = i;
        if (s.start + s.rows > end) end = s.start + s.rows;
    }
    model->task0[size_t(batch->n_spans)] = task;
    model->head_rows = 0;
    model->h_ld = round_up(batch->n_tokens, kBlockRows) * 16 + 16;
    fill_rope(*model, end);
    Step s{*model, *kv, *batch, abort};
    model->pool->run(step, &s);
    return abort && *abort ? VV_ABORTED : VV_OK;
}

extern "C" int32_t vv_logits(vv_model* model, int32_t index, float* out) {
    if (!model || !out) return fail("a model and an output are needed"), VV_EINVAL;
    if (index < 0 || index >= model->head_rows) return fail("no row %d in the last pass's head", index), VV_EINVAL;
    const vv_batch none{};
    vv_kv unused{};
    OneRow o{Step{*model, unused, none, nullptr}, {}};
    const int inside = index % 16;
    o.gemm = product(o.step, model->head, Epilogue::head, out, model->config.vocab);
    o.gemm.a = packed_row(o.step, model->a_head, index - inside, model->k_hidden);
    o.gemm.a_scale = model->head_scale + index - inside;
    o.gemm.rows = inside + 1;
    o.gemm.n_argmax = inside;
    model->pool->run(one_row, &o);
    return VV_OK;
}

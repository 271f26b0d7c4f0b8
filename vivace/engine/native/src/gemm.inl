// The int8 product over a range of weight panels. The including unit provides
//
//   template <int NT> void product(const Block& b, int32_t* c, Pending& before)
//
// which computes the exact int32 sums of up to 32 rows x NT panels over some steps of k, starting from zero or from
// c[32][32]. On the way it prefetches its share of the next panels' bytes and, before it stores to c, finishes the rows
// of the block before it: the matrix unit and the vector units then work at the same time.
//
// Order: for two panels, the k steps in chunks that leave the panels' part in the first-level cache while all blocks
// of rows pass over it. Weights so come from memory once a step, activations stream from the second-level cache.
#pragma once

namespace VV_NS {

VV_INLINE vf dequant(const int32_t* c, float a_scale, vf w_scale) { return to_float(loadi(c)) * (a_scale * w_scale); }

VV_INLINE void find_best(vf y, int row, int column, const Best& best) {
    // Strictly greater keeps the lowest column: a thread's panels come in rising order.
#if defined(__AVX512F__)
    if (__builtin_expect(_mm512_cmp_ps_mask((__m512)y, _mm512_set1_ps(best.value[row]), _CMP_GT_OQ) == 0, 1)) return;
#endif
    float t[16];
    store(t, y);
    for (int i = 0; i < 16; i++)
        if (t[i] > best.value[row]) {
            best.value[row] = t[i];
            best.index[row] = column + i;
        }
}

VV_INLINE void track_best(vf y, int row, int column, const Best& best, const float* sharpness) {
    const float before = best.value[row];
    find_best(y, row, column, best);
    if (!sharpness || sharpness[row] == 0.0f) return;
    const float now = best.value[row], by = sharpness[row];
    float* sum = best.sum + row * 16;
    vf total = load(sum);
    if (now != before && before >= kMasked) total = total * exp2_fast(splat((before - now) * by));
    store(sum, total + exp2_fast(max((y - now) * by, splat(kMasked))));
}

VV_INLINE void finish_head(const Gemm& g, const int32_t* c, int row, int panel, const Best& best) {
    int column = panel * kPanel;
    vf y = dequant(c, g.a_scale[row], load(g.w_scale + column));
    if (g.bias) y = y + load(g.bias + column);
    int live = g.n - column;
    if (row < g.n_argmax) {
        if (live < 16) {
            float t[16];
            store(t, y);
            for (int i = live; i < 16; i++) t[i] = -__builtin_inff();
            y = load(t);
        }
        track_best(y, row, column, best, g.sharpness);
    } else {
        float* out = g.out + int64_t(row - g.n_argmax) * g.ld + column;
        if (live >= 16) {
            store(out, y);
        } else {
            float t[16];
            store(t, y);
            for (int i = 0; i < live; i++) out[i] = t[i];
        }
    }
}

// From sums to results: rows of one block, starting at row0; panels p .. p + nt - 1
static __attribute__((noinline)) void finish(const Gemm& g, const int32_t* c, int row0, int rows, int p, int nt, const Best& best) {
    const int column = p * kPanel;
    switch (g.kind) {
        case Epilogue::silu_mul: {
            vf sg = load(g.w_scale + column), su = load(g.w_scale + column + 16);
            vf bg{}, bu{};
            if (g.bias) bg = load(g.bias + column), bu = load(g.bias + column + 16);
            float* out = g.out + column / 32 * g.ld + row0 * 16;
            for (int r = 0; r < rows; r++, out += 16, c += 32) {
                vf gate = dequant(c, g.a_scale[row0 + r], sg) + bg;
                vf up = dequant(c + 16, g.a_scale[row0 + r], su) + bu;
                store(out, silu(gate) * up);
            }
            return;
        }
        case Epilogue::add:
        case Epilogue::store:
            for (int t = 0; t < nt; t++) {
                vf s = load(g.w_scale + column + t * 16), b{};
                if (g.bias) b = load(g.bias + column + t * 16);
                float* out = g.out + int64_t(row0) * g.ld + column + t * 16;
                const int32_t* ct = c + t * 16;
                const bool add = g.kind == Epilogue::add;
                for (int r = 0; r < rows; r++, out += g.ld, ct += 32) {
                    vf y = dequant(ct, g.a_scale[row0 + r], s) + b;
                    store(out, add ? load(out) + y : y);
                }
            }
            return;
        case Epilogue::head:
            for (int r = 0; r < rows; r++)
                for (int t = 0; t < nt; t++) finish_head(g, c + r * 32 + t * 16, row0 + r, p + t, best);
            return;
        case Epilogue::raw:
            for (int r = 0; r < rows; r++)
                std::memcpy(g.raw + int64_t(row0 + r) * g.ld + column, c + r * 32, size_t(nt) * 64);
            return;
    }
}

// A block whose sums are complete and whose results are not.
struct Pending {
    const Gemm& g;
    const Best& best;
    const int32_t* c = nullptr;
    int row = 0, left = 0, panel = 0, panels = 0;

    void some(int count) {
        if (count > left) count = left;
        if (count == 0) return;
        finish(g, c, row, count, panel, panels, best);
        c += count * 32;
        row += count;
        left -= count;
    }
};

template <int NT>
static void product(const Block& blk, int32_t* c, Pending& before);

template <int NT>
static inline void panels_times_rows(const Gemm& g, int p, const char* next, int32_t* c, Pending& pending) {
    const int64_t panel_bytes = int64_t(g.k_steps) * kTileBytes;
    const int64_t row_elems = int64_t(g.k_steps) * kStepK;
    for (int top = 0; top < g.rows; top += kChunkRows) {
        const int rows = g.rows - top < kChunkRows ? g.rows - top : kChunkRows;
        const int blocks = int(ceil_div(rows, kBlockRows));
        const int chunks = blocks > 1 ? chunk_count(g.k_steps) : 1;
        const int chunk = int(ceil_div(g.k_steps, chunks));
        int calls = blocks * chunks;
        int lines = next && top == 0 ? int(panel_bytes * 2 / 128) : 0;
        for (int k = 0; k < g.k_steps; k += chunk)
            for (int i = 0; i < blocks; i++) {
                Block b;
                b.rows = rows - i * kBlockRows < kBlockRows ? rows - i * kBlockRows : kBlockRows;
                b.steps = g.k_steps - k < chunk ? g.k_steps - k : chunk;
                b.first = k == 0;
                b.a = (const a_elem*)g.a + (top + i * kBlockRows) * row_elems + int64_t(k) * 16 * kStepK;
                b.a_next = 16 * row_elems;
                b.b = g.w + p * panel_bytes + int64_t(k) * kTileBytes;
                b.b_next = panel_bytes;
                b.colsum = g.colsum + p * kPanel;
                const int share = int(round_up(ceil_div(lines, calls), 8));
                b.ahead = {next, share < lines ? share : lines};
                next += int64_t(b.ahead.left) * 128;
                lines -= b.ahead.left;
                calls--;
                int32_t* sums = c + i * kBlockRows * 32;
                product<NT>(b, sums, pending);
                if (k + chunk >= g.k_steps) {
                    pending.some(pending.left);
                    pending.c = sums;
                    pending.row = top + i * kBlockRows;
                    pending.left = b.rows;
                    pending.panel = p;
                    pending.panels = NT;
                }
            }
    }
}

static void gemm(const Gemm& g, int p0, int p1, const int8_t* next, const Best& best) {
    alignas(64) int32_t c[kChunkRows * 32];
    const int64_t panel_bytes = int64_t(g.k_steps) * kTileBytes;
    Pending pending{g, best};
    for (int p = p0; p < p1; p += 2) {
        const char* ahead = (const char*)(p + 2 < p1 ? g.w + (p + 2) * panel_bytes : next);
        if (p + 1 < p1)
            panels_times_rows<2>(g, p, ahead, c, pending);
        else
            panels_times_rows<1>(g, p, ahead, c, pending);
    }
    pending.some(pending.left);
}

}  // namespace VV_NS

// The int8 product over a range of weight panels. The including unit provides
//
//   template <int NT> void product(const a_elem* a, int k_steps, int rows, const int8_t* b, int64_t b_next,
//                                  const int32_t* colsum, int32_t* c, const char* ahead, int lines)
//
// which writes the exact int32 sums of up to 32 rows x NT panels to c[32][32] and, on the way, prefetches `lines`
// cache lines from `ahead`: the share of the next panels' bytes that falls to this block of rows.
#pragma once

namespace VV_NS {

VV_INLINE vf dequant(const int32_t* c, float a_scale, vf w_scale) { return to_float(loadi(c)) * (a_scale * w_scale); }

VV_INLINE void track_best(vf y, int row, int column, const Best& best) {
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

VV_INLINE void finish_head(const Gemm& g, const int32_t* c, int row, int panel, const Best& best) {
    int column = panel * kPanel;
    vf y = dequant(c, g.a_scale[row], load(g.w_scale + column));
    if (g.bias) y = y + load(g.bias + column);
    int live = g.n - column;
    if (row < g.n_argmax) {
        if (live < 16)
            for (int i = live; i < 16; i++) y[i] = -__builtin_inff();
        track_best(y, row, column, best);
    } else {
        float* out = g.out + int64_t(row - g.n_argmax) * g.ld + column;
        if (live >= 16) {
            store(out, y);
        } else {
            for (int i = 0; i < live; i++) out[i] = y[i];
        }
    }
}

// rows of one block, starting at row0; panels p .. p + nt - 1
static inline void finish(const Gemm& g, const int32_t* c, int row0, int rows, int p, int nt, const Best& best) {
    const int column = p * kPanel;
    switch (g.kind) {
        case Epilogue::silu_mul: {
            vf sg = load(g.w_scale + column), su = load(g.w_scale + column + 16);
            vf bg{}, bu{};
            if (g.bias) bg = load(g.bias + column), bu = load(g.bias + column + 16);
            float* out = g.out + int64_t(row0) * g.ld + column / 2;
            for (int r = 0; r < rows; r++, out += g.ld, c += 32) {
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

template <int NT>
static inline void panels_times_rows(const Gemm& g, int p, const char* ahead, int32_t* c, const Best& best) {
    const int64_t panel_bytes = int64_t(g.k_steps) * kTileBytes;
    const int8_t* b = g.w + p * panel_bytes;
    const int blocks = int(ceil_div(g.rows, kBlockRows));
    const int lines_all = ahead ? int(panel_bytes * 2 / 64) : 0;
    const int lines = int(ceil_div(lines_all, blocks));
    for (int i = 0; i < blocks; i++) {
        const int row0 = i * kBlockRows, rows = g.rows - row0 < kBlockRows ? g.rows - row0 : kBlockRows;
        const a_elem* a = (const a_elem*)g.a + int64_t(row0) * g.k_steps * kStepK;
        const int from = i * lines, to = from + lines < lines_all ? from + lines : lines_all;
        product<NT>(a, g.k_steps, rows, b, panel_bytes, g.colsum + p * kPanel, c, ahead + int64_t(from) * 64,
                    to > from ? to - from : 0);
        finish(g, c, row0, rows, p, NT, best);
    }
}

static void gemm(const Gemm& g, int p0, int p1, const int8_t* next, const Best& best) {
    alignas(64) int32_t c[32 * 32];
    const int64_t panel_bytes = int64_t(g.k_steps) * kTileBytes;
    for (int p = p0; p < p1; p += 2) {
        const char* ahead = (const char*)(p + 2 < p1 ? g.w + (p + 2) * panel_bytes : next);
        if (p + 1 < p1)
            panels_times_rows<2>(g, p, ahead, c, best);
        else
            panels_times_rows<1>(g, p, ahead, c, best);
    }
}

}  // namespace VV_NS

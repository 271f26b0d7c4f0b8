// Attention over int8 keys and values. Steps of an int8 are exact in bf16, so a step's keys and values are widened to the
// tiles of attention.inl, whose scores() and values() then work as ever; their scales are in the softmax. Several tiles
// of query rows pass over what was widened once; each computes what it would compute alone.
#pragma once

namespace VV_NS {

// `pairs` (an even number) times 2 x 16 int8 -> the 32 bf16 that alternate between the two. Asks for the same part of
// a later block: the hardware does not see ahead over the end of a block, which would cost more than the arithmetic.
VV_INLINE void widen_pairs(const int8_t* in, int pairs, uint16_t* out, const int8_t* later) {
    for (int i = 0; i < pairs; i += 2, later += 64) {
#if defined(__x86_64__)
        _mm_prefetch((const char*)later, _MM_HINT_T1);
#endif
        for (int j = 0; j < 2; j++, in += 32, out += 32) {
            const vi a = as_int(load_int8(in)), b = as_int(load_int8(in + 16));
            store((float*)out, as_float(((a >> 16) & 0xffff) | b));  // the low half of either is zero
        }
    }
}

struct Tile {
    int rows, end;  // end: one past the last key that any of its rows sees
    const uint16_t* q;
    float* o;
    Softmax softmax;
    int limit[kQueryRows];
};

static void attention_int8(const Attention& a, int row0, int row1, void* scratch) {
    char* at = (char*)(((uintptr_t)scratch + 63) & ~uintptr_t(63));
    auto take = [&](int64_t bytes) {
        char* p = at;
        at += round_up(bytes, 64);
        return p;
    };
    const int d_pad = a.d_pad, plane = kKvBlock * d_pad, tiles = int(ceil_div(row1 - row0, kQueryRows));
    float* s = (float*)take(kQueryRows * kKeyStep * 4);
    uint16_t* p = (uint16_t*)take(kQueryRows * kKeyStep * 2);
    float* k_scale = (float*)take(kKeyStep * 4);
    float* v_scale = (float*)take(kKeyStep * 4);
    const uint16_t *k[kKeyStep / kKvBlock], *v[kKeyStep / kKvBlock];
    uint16_t* wide[2];
    for (auto& w : wide) w = (uint16_t*)take(int64_t(kKeyStep) * d_pad * 2);
    for (int j = 0; j < kKeyStep / kKvBlock; j++) k[j] = wide[0] + (tiles > 1) * j * plane, v[j] = wide[1] + j * plane;

    Tile tile[kQueryTiles];
    for (int i = 0; i < tiles; i++) {
        Tile& t = tile[i];
        const int first = row0 + i * kQueryRows;
        t.rows = row1 - first < kQueryRows ? row1 - first : kQueryRows;
        t.q = a.q + int64_t(first) * d_pad;
        t.o = (float*)take(int64_t(kQueryRows) * d_pad * 4);
        float* l = (float*)take(kQueryRows * 16 * 4);
        float* m = (float*)take(kQueryRows * 4);
        float* alpha = (float*)take(kQueryRows * 4);
        t.softmax = Softmax{s, p, m, l, alpha, t.limit, k_scale, v_scale};
        for (int r = 0; r < t.rows; r++) t.limit[r] = a.start + (first + r) / a.group;
        t.end = t.limit[t.rows - 1] + 1;
        std::memset(t.o, 0, size_t(kQueryRows) * d_pad * 4);
        std::memset(l, 0, kQueryRows * 16 * 4);
        for (int r = 0; r < kQueryRows; r++) m[r] = kMasked;
    }
    const int end = tile[tiles - 1].end, blocks = int(ceil_div(end, kKvBlock));
    auto blocks_of = [](int end, int base) {
        return int(ceil_div(end - base < kKeyStep ? end - base : kKeyStep, kKvBlock));
    };
    auto widen = [&](int base, int j, int plane_of, float* scales, float factor) {
        const int here = base / kKvBlock + j, ahead = here + kKeyStep / kKvBlock;
        const int8_t* block = (const int8_t*)a.kv + a.blocks[here] * a.block_stride;
        const int8_t* later = (const int8_t*)a.kv + a.blocks[ahead < blocks ? ahead : here] * a.block_stride;
        widen_pairs(block + plane_of * plane, d_pad, const_cast<uint16_t*>(plane_of ? v[j] : k[j]), later + plane_of * plane);
        const float* from = (const float*)(block + 2 * plane) + plane_of * kKvBlock;
        for (int i = 0; i < kKvBlock; i += 16) store(scales + j * kKvBlock + i, load(from + i) * splat(factor));
    };
    // A lone tile uses each block's keys right away and in one place, which stays in the first-level cache.
    auto score = [&](const Tile& t, int base, bool fresh) {
        const int n = blocks_of(t.end, base);
        if (!fresh) return scores(t.q, t.rows, d_pad, k, n, s), n;
        for (int j = 0; j < blocks_of(end, base); j++) {
            widen(base, j, 0, k_scale, a.scale_log2e);
            if (j < n) scores(t.q, t.rows, d_pad, k + j, 1, s + j * kKvBlock);
        }
        return n;
    };

    int first = 0, n = score(tile[0], 0, true);  // first: of the tiles that see keys of this step, and so all after it
    for (int base = 0; base < end; base += kKeyStep) {
        const bool more = base + kKeyStep < end;
        for (int i = first, last = tiles - 1, fresh = 1; i <= last; i++, fresh = 0) {
            const Tile& t = tile[i];
            const int count = n;
            if (fresh)
                for (int j = 0; j < blocks_of(end, base); j++) widen(base, j, 1, v_scale, 1.0f);
            const bool moved = softmax_step<true>(t.softmax, 1.0f, t.rows, base, count * kKvBlock);
            if (moved && base) rescale(t.o, t.softmax.alpha, t.rows, d_pad);
            if (i < last) {
                n = score(tile[i + 1], base, false);
            } else if (more) {
                while (tile[first].end <= base + kKeyStep) first++;
                n = score(tile[first], base + kKeyStep, true);
            }
            values(p, t.rows, v, count, d_pad, t.o);
        }
    }
    for (int i = 0; i < tiles; i++) put_rows(a, row0 + i * kQueryRows, tile[i].rows, tile[i].o, tile[i].softmax.l);
}

}  // namespace VV_NS

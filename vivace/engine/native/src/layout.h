// Shapes of packed data. One layout serves every ISA: the 1 KB B tile of AMX, which is also 16 VNNI vectors.
//
// weights      [n/16 panels][k/64][16 groups of 4 k][16 n][4 k] int8; n and k padded with zeros
// activations  [rows/16][k/64][16 rows][64 k], int8, uint8 (value + 128) or int16, as the ISA wants
// K of a block [2 halves of 16 keys][d/32][16 pairs of d][16 keys][2] bf16
// V of a block [d/16][16 pairs of keys][16 d][2] bf16
// and in int8  K [2 halves of 16 keys][d][16 keys], V [d/16][32 keys][16 d], then an fp32 scale per key of K and of V
#pragma once
#include <cstddef>
#include <cstdint>

namespace vv {

constexpr int kPanel = 16;      // columns of a weight panel
constexpr int kStepK = 64;      // k of one tile
constexpr int kTileBytes = 1024;
constexpr int kBlockRows = 32;  // rows x columns of one inner product block: 2 x 2 tiles
constexpr int kKvBlock = 32;    // positions of a KV block
constexpr int kKeyStep = 128;   // keys per online-softmax step; fixed, since it orders a row's additions
constexpr int kQueryRows = 32;  // stacked query rows of one attention tile
constexpr int kQueryTiles = 4;  // most tiles of one task over int8 keys, which are widened once for all of them

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

// K and V of one block, layer and kv head
constexpr int64_t kv_head_bytes(int d_pad, bool int8) {
    return int64_t(2) * kKvBlock * (int8 ? d_pad + int64_t(sizeof(float)) : d_pad * 2);
}

}  // namespace vv

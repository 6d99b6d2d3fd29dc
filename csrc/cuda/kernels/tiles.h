// The layout of weights and input rows in device memory. It is the layout of the tensor cores, so a
// warp reads 512 consecutive bytes and moves nothing between registers. A tile is 16 outputs (of
// weights) or 8 rows (of inputs) x 32 along k. Lane l of a warp has g = l / 4 and t = l % 4, and
// holds k from 8 t to 8 t + 7 of a tile. The order of k within a step of a tensor core does not
// matter if weights and inputs agree.
//
//   weights bf16, f16: tiles [outputs / 16][k / 32] of 1,024 bytes:
//     [32 lanes][8 of k] of output g, then [32 lanes][8 of k] of output g + 8
//   weights q8_0: tiles of 512 bytes: [32 lanes]: 8 signed bytes of output g, 8 of output g + 8
//   weights q4_0, q4_1: pairs of tiles of 512 bytes, so that a lane reads 16 bytes: [32 lanes]:
//     4 bytes of output g and 4 of output g + 8 of the first tile, then of the second. Byte i holds
//     code k = 8 t + i in its low and 8 t + 4 + i in its high half. An odd last tile is
//     [32 lanes][8 bytes].
//     After all tiles: f16 scales [outputs / 16][k / 32][16]; then, for q4_1, f16 minimums
//     likewise.
//   weights f32: [outputs / 16][k / 4][16 outputs][4 of k]: not for tensor cores
//
//   rows for bf16: tiles [rows / 8][k / 32][8 rows][32 of k] bf16
//   rows for f16: the same in float32, rounded to tf32
//   rows for quantised weights: the same in int8; scales float32 and sums int32 [rows / 8][k /
//   32][8]
// Outputs are padded to 16, rows to 8 and k to 32, with zeros.
#pragma once

#include <cstdint>

#include "backend/backend.h"

namespace onward::cuda {

constexpr int kTileOutputs = 16;
constexpr int kTileRows = 8;
constexpr int kTileInputs = 32;
constexpr int kLanesOfWarp = 32;

constexpr int64_t tiles_of(int64_t inputs) { return (inputs + kTileInputs - 1) / kTileInputs; }

// The bytes of a tile of weights, without scales.
constexpr int64_t weight_tile_bytes(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return kTileOutputs * kTileInputs * 4;
    case DType::q8_0:
      return kTileOutputs * kTileInputs;
    case DType::q4_0:
    case DType::q4_1:
      return kTileOutputs * kTileInputs / 2;
    default:
      return kTileOutputs * kTileInputs * 2;
  }
}

// The offset of the scales, after the tiles.
constexpr int64_t weight_tiles_bytes(DType dtype, int64_t outputs, int64_t inputs) {
  if (dtype == DType::f32) return outputs * inputs * 4;
  return outputs / kTileOutputs * tiles_of(inputs) * weight_tile_bytes(dtype);
}

constexpr int64_t scales_bytes(int64_t outputs, int64_t inputs) {
  return outputs * tiles_of(inputs) * 2;
}

// The bytes of a whole matrix.
constexpr int64_t weight_bytes(DType dtype, int64_t outputs, int64_t inputs) {
  const int64_t planes = dtype == DType::q4_1                           ? 2
                         : dtype == DType::q8_0 || dtype == DType::q4_0 ? 1
                                                                        : 0;
  return weight_tiles_bytes(dtype, outputs, inputs) + planes * scales_bytes(outputs, inputs);
}

// For quantised weights with 4 bits: the offset of tile `tile` of its 16 outputs, and the bytes
// from one lane to the next.
constexpr int64_t nibble_tile_offset(int64_t tile, int64_t tiles) {
  const bool alone = tiles % 2 == 1 && tile == tiles - 1;
  return tile / 2 * 512 + (alone ? 0 : tile % 2 * 8);
}
constexpr int64_t nibble_lane_stride(int64_t tile, int64_t tiles) {
  return tiles % 2 == 1 && tile == tiles - 1 ? 8 : 16;
}

}  // namespace onward::cuda

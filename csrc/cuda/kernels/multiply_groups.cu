// Products of quantised weights, with the same bits as on the CPU (cpu/kernels.h). The sum over a
// group of 32 is an exact integer, so the order in the tensor core does not matter. Over groups,
// every output is one chain of fused multiply-adds in ascending order.
#include "cuda/kernels/numbers.h"
#include "cuda/kernels/product_output.h"
#include "cuda/kernels/tiles.h"
#include "cuda/kernels/verbs.h"

namespace onward::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int64_t kRowTileBytes = kTileRows * kTileInputs;

struct Call {
  const char* weight;
  const uint16_t* scales;    // (outputs / 16, tiles, 16) f16
  const uint16_t* minimums;  // the same shape; only for q4_1
  const char* x;
  const float* x_scales;  // (rows / 8, tiles, 8)
  const int32_t* x_sums;
  int64_t outputs;
  int64_t tiles;
  int64_t rows;
  ProductOutput y;
};

// Adds one group to the chain of an output.
template <DType kDType>
__device__ float add_group(float sum, int dot, float scale, float minimum, float x_scale,
                           int x_sum) {
  if constexpr (kDType == DType::q4_0) dot -= 8 * x_sum;
  sum = fmaf(static_cast<float>(dot), scale * x_scale, sum);
  if constexpr (kDType == DType::q4_1) {
    sum = fmaf(minimum, x_scale * static_cast<float>(x_sum), sum);
  }
  return sum;
}

__device__ void dot_bytes(int32_t (&dots)[4], const uint4& w, const uint2& x) {
  mma_s8(dots, {w.x, w.z, w.y, w.w}, {x.x, x.y});
}
__device__ void dot_nibbles(int32_t (&dots)[4], uint32_t low, uint32_t high, const uint2& x) {
  constexpr uint32_t kMask = 0x0f0f0f0fu;
  mma_s8(dots, {low & kMask, high & kMask, (low >> 4) & kMask, (high >> 4) & kMask}, {x.x, x.y});
}

// The bytes of two neighbouring tiles of a panel.
template <DType kDType>
constexpr int kPairBytes = 2 * static_cast<int>(weight_tile_bytes(kDType));

// The part of a lane of two neighbouring tiles.
template <DType kDType>
struct Pair {
  uint4 words[kDType == DType::q8_0 ? 2 : 1];

  // pair: the address of the two tiles, or of the last tile if their number is odd.
  __device__ static Pair read(const char* pair, int lane, bool both, bool once) {
    Pair p;
    if constexpr (kDType == DType::q8_0) {
      const char* second = pair + (both ? 512 : 0);
      p.words[0] =
          once ? read_once16(pair + lane * 16) : *reinterpret_cast<const uint4*>(pair + lane * 16);
      p.words[1] = once ? read_once16(second + lane * 16)
                        : *reinterpret_cast<const uint4*>(second + lane * 16);
    } else if (both) {
      p.words[0] =
          once ? read_once16(pair + lane * 16) : *reinterpret_cast<const uint4*>(pair + lane * 16);
    } else {
      const uint2 half = *reinterpret_cast<const uint2*>(pair + lane * 8);
      p.words[0] = {half.x, half.y, 0, 0};
    }
    return p;
  }
  __device__ void dot(int32_t (&dots)[4], int which, const uint2& x) const {
    if constexpr (kDType == DType::q8_0) {
      dot_bytes(dots, words[which], x);
    } else {
      dot_nibbles(dots, which == 0 ? words[0].x : words[0].z, which == 0 ? words[0].y : words[0].w,
                  x);
    }
  }
};

// Computes up to 8 kRowTiles rows x 16 outputs in rounds. The warps compute the integers of some
// groups; then one thread for each row and output adds them to its chain while the next round
// begins.
template <DType kDType, int kRowTiles>
__global__ void __launch_bounds__(kThreads) multiply_few(Call c) {
  constexpr int kSums = kRowTiles * kTileRows * kTileOutputs;
  constexpr int kRoundTiles = 64 / kRowTiles, kWarpTiles = kRoundTiles / kWarps;
  constexpr int kChains = (kSums + kThreads - 1) / kThreads;
  int32_t* const dots = reinterpret_cast<int32_t*>(shared_memory());  // (2, tiles, rows, 16)
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t panel = blockIdx.x;
  const int64_t row_tiles = (c.rows + kTileRows - 1) / kTileRows;
  const char* weights = c.weight + panel * c.tiles * weight_tile_bytes(kDType);
  float sums[kChains] = {};
  const int64_t rounds = (c.tiles + kRoundTiles - 1) / kRoundTiles;
  for (int64_t round = 0; round < rounds; ++round) {
    int32_t* const made = dots + round % 2 * kRoundTiles * kSums;
#pragma unroll
    for (int i = 0; i < kWarpTiles; i += 2) {
      const int in_round = warp * kWarpTiles + i;
      const int64_t tile = round * kRoundTiles + in_round;
      if (tile >= c.tiles) continue;
      const bool both = tile + 1 < c.tiles;
      const auto pair =
          Pair<kDType>::read(weights + tile / 2 * kPairBytes<kDType>, lane, both, true);
      for (int which = 0; which < (both ? 2 : 1); ++which) {
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r) {
          if (r >= row_tiles) continue;
          const char* rows = c.x + (r * c.tiles + tile + which) * kRowTileBytes;
          int32_t found[4] = {};
          pair.dot(found, which, *reinterpret_cast<const uint2*>(rows + lane * 8));
          int32_t* out = made + (in_round + which) * kSums +
                         (r * kTileRows + lane % 4 * 2) * kTileOutputs + lane / 4;
          out[0] = found[0];
          out[kTileOutputs] = found[1];
          out[8] = found[2];
          out[kTileOutputs + 8] = found[3];
        }
      }
    }
    sync_block();
#pragma unroll
    for (int chain = 0; chain < kChains; ++chain) {
      const int i = chain * kThreads + static_cast<int>(threadIdx.x);
      const int output = i % kTileOutputs, row = i / kTileOutputs;
      if (i >= kSums || row >= c.rows) continue;
      const int64_t first = round * kRoundTiles;
      const int count =
          static_cast<int>(c.tiles - first < kRoundTiles ? c.tiles - first : kRoundTiles);
      const int64_t of_output = (panel * c.tiles + first) * kTileOutputs + output;
      const int64_t of_row = (row / kTileRows * c.tiles + first) * kTileRows + row % kTileRows;
#pragma unroll 8
      for (int tile = 0; tile < count; ++tile) {
        const float scale = half_to_float(c.scales[of_output + tile * kTileOutputs]);
        const float minimum = kDType == DType::q4_1
                                  ? half_to_float(c.minimums[of_output + tile * kTileOutputs])
                                  : 0.0f;
        const int x_sum = kDType == DType::q8_0 ? 0 : c.x_sums[of_row + tile * kTileRows];
        sums[chain] = add_group<kDType>(sums[chain], made[tile * kSums + i], scale, minimum,
                                        c.x_scales[of_row + tile * kTileRows], x_sum);
      }
    }
  }
#pragma unroll
  for (int chain = 0; chain < kChains; ++chain) {
    const int i = chain * kThreads + static_cast<int>(threadIdx.x);
    if (i < kSums && i / kTileOutputs < c.rows) {
      c.y.store(i / kTileOutputs, panel * kTileOutputs + i % kTileOutputs, sums[chain]);
    }
  }
}

// Computes 128 outputs x 128 rows in each block; two groups at a time go through shared memory.
constexpr int kPanels = 8, kRowTilesOfBlock = 16;
constexpr int kStages = 4;
constexpr int kWarpPanels = 2, kWarpRowTiles = 8;

// The layout of a stage: weights; then for two groups: scales, minimums, rows, their scales, their
// sums.
template <DType kDType>
struct Stage {
  static constexpr int kScales = kPanels * kPairBytes<kDType>;
  static constexpr int kMinimums = kScales + kPanels * 2 * kTileOutputs * 2;
  static constexpr int kRows = kMinimums + kPanels * 2 * kTileOutputs * 2;
  static constexpr int kRowScales = kRows + kRowTilesOfBlock * 2 * static_cast<int>(kRowTileBytes);
  static constexpr int kRowSums = kRowScales + kRowTilesOfBlock * 2 * kTileRows * 4;
  static constexpr int kBytes = kRowSums + kRowTilesOfBlock * 2 * kTileRows * 4;
};

// Copies `pieces` x 16 bytes of each of `count` ranges that are `stride` bytes apart. Beyond
// `last`, the last range is copied again.
__device__ void fetch_runs(char* to, int to_stride, const char* from, int64_t stride, int count,
                           int pieces, int64_t first, int64_t last) {
  for (int i = static_cast<int>(threadIdx.x); i < count * pieces; i += kThreads) {
    int64_t run = first + i / pieces;
    if (run > last) run = last;
    copy_async16(to + i / pieces * to_stride + i % pieces * 16,
                 from + run * stride + i % pieces * 16);
  }
}

template <DType kDType>
__device__ void fetch(const Call& c, int64_t pair, char* stage) {
  using S = Stage<kDType>;
  const int64_t tile = pair * 2;
  const int two = tile + 1 < c.tiles ? 2 : 1;
  const int64_t panel = static_cast<int64_t>(blockIdx.y) * kPanels;
  const int64_t last_panel = c.outputs / kTileOutputs - 1;
  const int64_t row_tile = static_cast<int64_t>(blockIdx.x) * kRowTilesOfBlock;
  const int64_t last_row_tile = (c.rows - 1) / kTileRows;
  fetch_runs(stage, kPairBytes<kDType>, c.weight + pair * kPairBytes<kDType>,
             c.tiles * weight_tile_bytes(kDType), kPanels, kPairBytes<kDType> * two / 32, panel,
             last_panel);
  const int64_t scales_stride = c.tiles * kTileOutputs * 2;
  const int64_t scales_at = tile * kTileOutputs * 2;
  fetch_runs(stage + S::kScales, 64, reinterpret_cast<const char*>(c.scales) + scales_at,
             scales_stride, kPanels, 2 * two, panel, last_panel);
  if constexpr (kDType == DType::q4_1) {
    fetch_runs(stage + S::kMinimums, 64, reinterpret_cast<const char*>(c.minimums) + scales_at,
               scales_stride, kPanels, 2 * two, panel, last_panel);
  }
  fetch_runs(stage + S::kRows, 2 * kRowTileBytes, c.x + tile * kRowTileBytes,
             c.tiles * kRowTileBytes, kRowTilesOfBlock, kRowTileBytes * two / 16, row_tile,
             last_row_tile);
  const int64_t row_stride = c.tiles * kTileRows * 4, row_at = tile * kTileRows * 4;
  fetch_runs(stage + S::kRowScales, 64, reinterpret_cast<const char*>(c.x_scales) + row_at,
             row_stride, kRowTilesOfBlock, 2 * two, row_tile, last_row_tile);
  if constexpr (kDType != DType::q8_0) {
    fetch_runs(stage + S::kRowSums, 64, reinterpret_cast<const char*>(c.x_sums) + row_at,
               row_stride, kRowTilesOfBlock, 2 * two, row_tile, last_row_tile);
  }
}

template <DType kDType>
__global__ void __launch_bounds__(kThreads, 1) multiply_many(Call c) {
  using S = Stage<kDType>;
  char* const stages = shared_memory();
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int first_panel = warp % 4 * kWarpPanels, first_row_tile = warp / 4 * kWarpRowTiles;
  const int64_t pairs = (c.tiles + 1) / 2;
  for (int pair = 0; pair < kStages - 1; ++pair) {
    if (pair < pairs) fetch<kDType>(c, pair, stages + pair * S::kBytes);
    commit_copies();
  }
  float sums[kWarpPanels][kWarpRowTiles][4] = {};
  for (int64_t pair = 0; pair < pairs; ++pair) {
    wait_copies<kStages - 2>();
    sync_block();
    const int64_t ahead = pair + kStages - 1;
    if (ahead < pairs) fetch<kDType>(c, ahead, stages + ahead % kStages * S::kBytes);
    commit_copies();
    const char* stage = stages + pair % kStages * S::kBytes;
    const bool both = pair * 2 + 1 < c.tiles;
    Pair<kDType> w[kWarpPanels];
#pragma unroll
    for (int p = 0; p < kWarpPanels; ++p) {
      w[p] = Pair<kDType>::read(stage + (first_panel + p) * kPairBytes<kDType>, lane, both, false);
    }
#pragma unroll
    for (int which = 0; which < 2; ++which) {
      if (which == 1 && !both) break;
      float scale[kWarpPanels][2], minimum[kWarpPanels][2];
#pragma unroll
      for (int p = 0; p < kWarpPanels; ++p) {
        const int at = ((first_panel + p) * 2 + which) * kTileOutputs + lane / 4;
        const auto* scales = reinterpret_cast<const uint16_t*>(stage + S::kScales);
        const auto* minimums = reinterpret_cast<const uint16_t*>(stage + S::kMinimums);
        for (int half = 0; half < 2; ++half) {
          scale[p][half] = half_to_float(scales[at + 8 * half]);
          minimum[p][half] = kDType == DType::q4_1 ? half_to_float(minimums[at + 8 * half]) : 0.0f;
        }
      }
#pragma unroll
      for (int r = 0; r < kWarpRowTiles; ++r) {
        const int row_tile = first_row_tile + r;
        const uint2 x = *reinterpret_cast<const uint2*>(
            stage + S::kRows + (row_tile * 2 + which) * kRowTileBytes + lane * 8);
        const int at = (row_tile * 2 + which) * kTileRows + lane % 4 * 2;
        const float* x_scales = reinterpret_cast<const float*>(stage + S::kRowScales) + at;
        const int32_t* x_sums = reinterpret_cast<const int32_t*>(stage + S::kRowSums) + at;
#pragma unroll
        for (int p = 0; p < kWarpPanels; ++p) {
          int32_t dots[4] = {};
          w[p].dot(dots, which, x);
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int x_sum = kDType == DType::q8_0 ? 0 : x_sums[i % 2];
            sums[p][r][i] = add_group<kDType>(sums[p][r][i], dots[i], scale[p][i / 2],
                                              minimum[p][i / 2], x_scales[i % 2], x_sum);
          }
        }
      }
    }
  }
#pragma unroll
  for (int p = 0; p < kWarpPanels; ++p) {
    const int64_t output =
        (static_cast<int64_t>(blockIdx.y) * kPanels + first_panel + p) * kTileOutputs + lane / 4;
    if (output >= c.outputs) continue;
#pragma unroll
    for (int r = 0; r < kWarpRowTiles; ++r) {
      const int64_t row =
          (static_cast<int64_t>(blockIdx.x) * kRowTilesOfBlock + first_row_tile + r) * kTileRows +
          lane % 4 * 2;
      for (int i = 0; i < 2; ++i) {
        if (row + i >= c.rows) continue;
        c.y.store(row + i, output, sums[p][r][i]);
        c.y.store(row + i, output + 8, sums[p][r][2 + i]);
      }
    }
  }
}

template <DType kDType, int kRowTiles>
void run_few(Stream& stream, const Call& call) {
  constexpr size_t kShared = 2 * 64 * kTileRows * kTileOutputs * sizeof(int32_t);
  launch(stream, {call.outputs / kTileOutputs, 1, 1, kThreads, kShared},
         multiply_few<kDType, kRowTiles>, call);
}

template <DType kDType>
void run(Stream& stream, const Call& call) {
  if (call.rows <= kTileRows) return run_few<kDType, 1>(stream, call);
  if (call.rows <= 2 * kTileRows) return run_few<kDType, 2>(stream, call);
  if (call.rows <= 4 * kTileRows) return run_few<kDType, 4>(stream, call);
  constexpr int64_t kRows = kRowTilesOfBlock * kTileRows, kOutputs = kPanels * kTileOutputs;
  const Grid grid = {(call.rows + kRows - 1) / kRows, (call.outputs + kOutputs - 1) / kOutputs, 1,
                     kThreads, static_cast<size_t>(kStages * Stage<kDType>::kBytes)};
  launch(stream, grid, multiply_many<kDType>, call);
}

}  // namespace

void multiply_groups(Stream& stream, const Product& product) {
  const Matrix& weight = *product.weight;
  const char* data = static_cast<const char*>(weight.data);
  const char* scales = data + weight_tiles_bytes(weight.dtype, weight.outputs, weight.inputs);
  const char* minimums = scales + scales_bytes(weight.outputs, weight.inputs);
  const Call call = {data,
                     reinterpret_cast<const uint16_t*>(scales),
                     reinterpret_cast<const uint16_t*>(minimums),
                     static_cast<const char*>(product.x.values),
                     product.x.scales,
                     product.x.sums,
                     weight.outputs,
                     tiles_of(weight.inputs),
                     product.rows,
                     {product.y, product.bias, weight.outputs, product.add}};
  switch (weight.dtype) {
    case DType::q8_0:
      return run<DType::q8_0>(stream, call);
    case DType::q4_0:
      return run<DType::q4_0>(stream, call);
    default:
      return run<DType::q4_1>(stream, call);
  }
}

}  // namespace onward::cuda

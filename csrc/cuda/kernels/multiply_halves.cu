// Products of bf16 and f16 weights on tensor cores. A sum over k is split into spans of 512. In a
// span, the tensor core adds in ascending order of k; the spans are added one after another, from
// 0. So the result of a row is the same alone (warps share the spans of 16 outputs) and among many
// rows (a warp computes 32 outputs and 64 rows). Rows are rounded to bf16 for bf16 weights, and to
// tf32 for f16 weights. tf32 has the precision of f16 and the range of float32.
#include "cuda/kernels/numbers.h"
#include "cuda/kernels/product_output.h"
#include "cuda/kernels/tiles.h"
#include "cuda/kernels/verbs.h"

namespace onward::cuda {
namespace {

constexpr int kSpanTiles = 16;  // 512 along k
constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr size_t kMostShared = size_t{96} << 10;

struct Call {
  const char* weight;
  const char* x;
  int64_t outputs;
  int64_t tiles;  // along k
  int64_t rows;
  ProductOutput y;
};

// The part of a lane of a tile of weights, and of a tile of rows.
struct Weights {
  uint4 low, high;
};
struct Bf16 {
  static constexpr int64_t kRowTileBytes = kTileRows * kTileInputs * 2;
  struct Rows {
    uint4 values;
  };
  static __device__ Rows rows(const char* tile, int lane) {
    return {*reinterpret_cast<const uint4*>(tile + lane * 16)};
  }
  static __device__ void multiply(float (&sums)[4], const Weights& w, const Rows& x) {
    mma_bf16(sums, {w.low.x, w.high.x, w.low.y, w.high.y}, {x.values.x, x.values.y});
    mma_bf16(sums, {w.low.z, w.high.z, w.low.w, w.high.w}, {x.values.z, x.values.w});
  }
};
struct F16 {
  static constexpr int64_t kRowTileBytes = kTileRows * kTileInputs * 4;
  struct Rows {
    uint4 first, second;
  };
  static __device__ Rows rows(const char* tile, int lane) {
    const uint4* values = reinterpret_cast<const uint4*>(tile + lane * 32);
    return {values[0], values[1]};
  }
  static __device__ void step(float (&sums)[4], uint32_t low, uint32_t high, uint32_t x0,
                              uint32_t x1) {
    mma_tf32(sums,
             {bits_of(half_to_float(low & 0xffffu)), bits_of(half_to_float(high & 0xffffu)),
              bits_of(half_to_float(low >> 16)), bits_of(half_to_float(high >> 16))},
             {x0, x1});
  }
  static __device__ void multiply(float (&sums)[4], const Weights& w, const Rows& x) {
    step(sums, w.low.x, w.high.x, x.first.x, x.first.y);
    step(sums, w.low.y, w.high.y, x.first.z, x.first.w);
    step(sums, w.low.z, w.high.z, x.second.x, x.second.y);
    step(sums, w.low.w, w.high.w, x.second.z, x.second.w);
  }
};

// Computes up to 8 kRowTiles rows x 16 outputs; the warps share the spans.
template <class Format, int kRowTiles>
__global__ void __launch_bounds__(kThreads) multiply_few(Call c) {
  constexpr int kSums = kRowTiles * kTileRows * kTileOutputs;
  [[maybe_unused]] constexpr int kUnroll = kRowTiles == 1 ? 4 : 2;
  float* const partial = reinterpret_cast<float*>(shared_memory());  // (spans, rows, 16)
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t panel = blockIdx.x, first_row_tile = static_cast<int64_t>(blockIdx.y) * kRowTiles;
  const int64_t row_tiles = (c.rows + kTileRows - 1) / kTileRows;
  const int64_t spans = (c.tiles + kSpanTiles - 1) / kSpanTiles;
  const char* weights = c.weight + panel * c.tiles * weight_tile_bytes(DType::bf16) + lane * 16;
  for (int64_t span = warp; span < spans; span += kWarps) {
    float sums[kRowTiles][4] = {};
    const int64_t end =
        span * kSpanTiles + kSpanTiles < c.tiles ? span * kSpanTiles + kSpanTiles : c.tiles;
#pragma unroll kUnroll
    for (int64_t tile = span * kSpanTiles; tile < end; ++tile) {
      const char* begin = weights + tile * weight_tile_bytes(DType::bf16);
      const Weights w = {read_once16(begin), read_once16(begin + 512)};
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        if (first_row_tile + r >= row_tiles) continue;
        const char* rows = c.x + ((first_row_tile + r) * c.tiles + tile) * Format::kRowTileBytes;
        Format::multiply(sums[r], w, Format::rows(rows, lane));
      }
    }
    float* out = partial + span * kSums + lane / 4;
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      float* row = out + (r * kTileRows + lane % 4 * 2) * kTileOutputs;
      row[0] = sums[r][0];
      row[kTileOutputs] = sums[r][1];
      row[8] = sums[r][2];
      row[kTileOutputs + 8] = sums[r][3];
    }
  }
  sync_block();
  for (int i = static_cast<int>(threadIdx.x); i < kSums; i += kThreads) {
    const int64_t row = first_row_tile * kTileRows + i / kTileOutputs;
    if (row >= c.rows) continue;
    float sum = 0.0f;
    for (int64_t span = 0; span < spans; ++span) sum += partial[span * kSums + i];
    c.y.store(row, panel * kTileOutputs + i % kTileOutputs, sum);
  }
}

// Computes 128 outputs x 128 rows in each block, through shared memory.
constexpr int kPanels = 8, kRowTilesOfBlock = 16;
constexpr int kStages = 4;
constexpr int kWarpPanels = 2, kWarpRowTiles = 8;  // four warps along the outputs, two along rows

template <class Format>
constexpr int64_t stage_bytes() {
  return kPanels * weight_tile_bytes(DType::bf16) + kRowTilesOfBlock * Format::kRowTileBytes;
}

// Copies one tile along k of the panels and rows of the block. Beyond the end, the last ones are
// copied again.
template <class Format>
__device__ void fetch(const Call& c, int64_t tile, char* stage) {
  constexpr int kTileBytes = static_cast<int>(weight_tile_bytes(DType::bf16));
  const int64_t last_panel = c.outputs / kTileOutputs - 1;
  const int64_t last_row_tile = (c.rows - 1) / kTileRows;
  for (int i = static_cast<int>(threadIdx.x); i < kPanels * kTileBytes / 16; i += kThreads) {
    int64_t panel = static_cast<int64_t>(blockIdx.y) * kPanels + i / (kTileBytes / 16);
    if (panel > last_panel) panel = last_panel;
    copy_async16(stage + i * 16,
                 c.weight + (panel * c.tiles + tile) * kTileBytes + i % (kTileBytes / 16) * 16);
  }
  stage += kPanels * kTileBytes;
  constexpr int kPieces = static_cast<int>(Format::kRowTileBytes / 16);
  for (int i = static_cast<int>(threadIdx.x); i < kRowTilesOfBlock * kPieces; i += kThreads) {
    int64_t row_tile = static_cast<int64_t>(blockIdx.x) * kRowTilesOfBlock + i / kPieces;
    if (row_tile > last_row_tile) row_tile = last_row_tile;
    copy_async16(stage + i * 16,
                 c.x + (row_tile * c.tiles + tile) * Format::kRowTileBytes + i % kPieces * 16);
  }
}

template <class Format>
__global__ void __launch_bounds__(kThreads, 1) multiply_many(Call c) {
  char* const stages = shared_memory();
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int first_panel = warp % 4 * kWarpPanels, first_row_tile = warp / 4 * kWarpRowTiles;
  for (int tile = 0; tile < kStages - 1; ++tile) {
    if (tile < c.tiles) fetch<Format>(c, tile, stages + tile * stage_bytes<Format>());
    commit_copies();
  }
  float span[kWarpPanels][kWarpRowTiles][4] = {};   // the present span
  float total[kWarpPanels][kWarpRowTiles][4] = {};  // the earlier spans
  for (int64_t tile = 0; tile < c.tiles; ++tile) {
    wait_copies<kStages - 2>();
    sync_block();
    const int64_t ahead = tile + kStages - 1;
    if (ahead < c.tiles) fetch<Format>(c, ahead, stages + ahead % kStages * stage_bytes<Format>());
    commit_copies();
    const char* stage = stages + tile % kStages * stage_bytes<Format>();
    Weights w[kWarpPanels];
#pragma unroll
    for (int p = 0; p < kWarpPanels; ++p) {
      const char* begin = stage + (first_panel + p) * weight_tile_bytes(DType::bf16) + lane * 16;
      w[p] = {*reinterpret_cast<const uint4*>(begin), *reinterpret_cast<const uint4*>(begin + 512)};
    }
    const char* rows = stage + kPanels * weight_tile_bytes(DType::bf16);
#pragma unroll
    for (int r = 0; r < kWarpRowTiles; ++r) {
      const auto x = Format::rows(rows + (first_row_tile + r) * Format::kRowTileBytes, lane);
#pragma unroll
      for (int p = 0; p < kWarpPanels; ++p) Format::multiply(span[p][r], w[p], x);
    }
    if (tile % kSpanTiles != kSpanTiles - 1 && tile != c.tiles - 1) continue;
#pragma unroll
    for (int p = 0; p < kWarpPanels; ++p) {
#pragma unroll
      for (int r = 0; r < kWarpRowTiles; ++r) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          total[p][r][i] += span[p][r][i];
          span[p][r][i] = 0.0f;
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
        c.y.store(row + i, output, total[p][r][i]);
        c.y.store(row + i, output + 8, total[p][r][2 + i]);
      }
    }
  }
}

template <class Format, int kRowTiles>
bool run_few(Stream& stream, const Call& call) {
  constexpr int64_t kBlockRows = kRowTiles * kTileRows;
  const int64_t spans = (call.tiles + kSpanTiles - 1) / kSpanTiles;
  const size_t shared = static_cast<size_t>(spans * kBlockRows * kTileOutputs) * sizeof(float);
  if (call.rows > kBlockRows || shared > kMostShared) return false;
  const Grid grid = {call.outputs / kTileOutputs, 1, 1, kThreads, shared};
  launch(stream, grid, multiply_few<Format, kRowTiles>, call);
  return true;
}

template <class Format>
void run(Stream& stream, const Call& call) {
  if (run_few<Format, 1>(stream, call) || run_few<Format, 2>(stream, call) ||
      run_few<Format, 4>(stream, call)) {
    return;
  }
  constexpr int64_t kRows = kRowTilesOfBlock * kTileRows, kOutputs = kPanels * kTileOutputs;
  const Grid grid = {(call.rows + kRows - 1) / kRows, (call.outputs + kOutputs - 1) / kOutputs, 1,
                     kThreads, static_cast<size_t>(kStages * stage_bytes<Format>())};
  launch(stream, grid, multiply_many<Format>, call);
}

}  // namespace

void multiply_halves(Stream& stream, const Product& product) {
  const Matrix& weight = *product.weight;
  const Call call = {static_cast<const char*>(weight.data),
                     static_cast<const char*>(product.x.values),
                     weight.outputs,
                     tiles_of(weight.inputs),
                     product.rows,
                     {product.y, product.bias, weight.outputs, product.add}};
  if (weight.dtype == DType::bf16) {
    run<Bf16>(stream, call);
  } else {
    run<F16>(stream, call);
  }
}

}  // namespace onward::cuda

// Products of float32 weights, with the same bits as on the CPU: every output is one chain of fused
// multiply-adds over k in ascending order. A thread has one output of one row or of four rows. The
// block copies weights and rows to shared memory in advance, so that the chains do not wait.
#include "cuda/kernels/numbers.h"
#include "cuda/kernels/product_output.h"
#include "cuda/kernels/tiles.h"
#include "cuda/kernels/verbs.h"

namespace onward::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kRowThreads = kThreads / kTileOutputs;  // 8 rows, or 8 x 4 rows
constexpr int kChunk = 64;                            // along k
constexpr int kStages = 4;
constexpr int kWeightChunk = kTileOutputs * kChunk;  // floats

struct Call {
  const float* weight;  // [outputs / 16][k / 4][16][4]
  const float* x;       // (rows, inputs)
  int64_t outputs;
  int64_t inputs;  // a multiple of 16
  int64_t rows;
  ProductOutput y;
};

template <int kRows>
constexpr size_t stage_floats() {
  return kWeightChunk + static_cast<size_t>(kRowThreads) * kRows * kChunk;
}

// Copies chunk `chunk` to its stage.
template <int kRows>
__device__ void fetch(const Call& c, int64_t chunk, float* stage) {
  const int64_t first = chunk * kChunk;
  const int64_t left = c.inputs - first;
  const int count = static_cast<int>(left < kChunk ? left : kChunk);  // along k, a multiple of 16
  const int64_t panel = blockIdx.x;
  const float* weights = c.weight + (panel * c.inputs + first) * kTileOutputs;
  for (int i = static_cast<int>(threadIdx.x); i < count * kTileOutputs / 4; i += kThreads) {
    copy_async16(stage + i * 4, weights + i * 4);
  }
  float* rows = stage + kWeightChunk;
  const int64_t first_row = static_cast<int64_t>(blockIdx.y) * kRowThreads * kRows;
  for (int i = static_cast<int>(threadIdx.x); i < kRowThreads * kRows * count / 4; i += kThreads) {
    const int row = i / (count / 4), quad = i % (count / 4);
    if (first_row + row >= c.rows) continue;
    copy_async16(rows + row * kChunk + quad * 4,
                 c.x + (first_row + row) * c.inputs + first + quad * 4);
  }
}

template <int kRows>
__global__ void __launch_bounds__(kThreads) multiply_chains(Call c) {
  float* const stages = reinterpret_cast<float*>(shared_memory());
  const int output = static_cast<int>(threadIdx.x) % kTileOutputs;
  const int row_thread = static_cast<int>(threadIdx.x) / kTileOutputs;
  const int64_t first_row =
      static_cast<int64_t>(blockIdx.y) * kRowThreads * kRows + row_thread * kRows;
  const int64_t chunks = (c.inputs + kChunk - 1) / kChunk;
  for (int64_t chunk = 0; chunk < kStages - 1; ++chunk) {
    if (chunk < chunks) fetch<kRows>(c, chunk, stages + chunk * stage_floats<kRows>());
    commit_copies();
  }
  float sums[kRows] = {};
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    wait_copies<kStages - 2>();
    sync_block();  // the chunk is complete, and all threads have finished the previous one
    const int64_t ahead = chunk + kStages - 1;
    if (ahead < chunks) fetch<kRows>(c, ahead, stages + ahead % kStages * stage_floats<kRows>());
    commit_copies();
    if (first_row >= c.rows) continue;
    const float* stage = stages + chunk % kStages * stage_floats<kRows>();
    const float* rows = stage + kWeightChunk + row_thread * kRows * kChunk;
    const int64_t left = c.inputs - chunk * kChunk;
    const int quads = static_cast<int>(left < kChunk ? left : kChunk) / 4;
    for (int quad = 0; quad < quads; ++quad) {
      const float4 w = *reinterpret_cast<const float4*>(stage + (quad * kTileOutputs + output) * 4);
      for (int r = 0; r < kRows; ++r) {
        const float4 x = *reinterpret_cast<const float4*>(rows + r * kChunk + quad * 4);
        sums[r] = fmaf(w.x, x.x, sums[r]);
        sums[r] = fmaf(w.y, x.y, sums[r]);
        sums[r] = fmaf(w.z, x.z, sums[r]);
        sums[r] = fmaf(w.w, x.w, sums[r]);
      }
    }
  }
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kTileOutputs + output;
  for (int r = 0; r < kRows; ++r) {
    if (first_row + r >= c.rows) return;
    c.y.store(first_row + r, column, sums[r]);
  }
}

template <int kRows>
void run(Stream& stream, const Call& call) {
  constexpr int64_t kBlockRows = kRowThreads * kRows;
  const Grid grid = {call.outputs / kTileOutputs, (call.rows + kBlockRows - 1) / kBlockRows, 1,
                     kThreads, kStages * stage_floats<kRows>() * sizeof(float)};
  launch(stream, grid, multiply_chains<kRows>, call);
}

}  // namespace

void multiply_f32(Stream& stream, const Product& product) {
  const Call call = {static_cast<const float*>(product.weight->data),
                     static_cast<const float*>(product.x.values),
                     product.weight->outputs,
                     product.weight->inputs,
                     product.rows,
                     {product.y, product.bias, product.weight->outputs, product.add}};
  if (product.rows <= kRowThreads) {
    run<1>(stream, call);
  } else {
    run<4>(stream, call);
  }
}

}  // namespace onward::cuda

// Verbs that mainly move rows: embedding, gathering, and the product of SwiGLU.
#include "cuda/kernels/numbers.h"
#include "cuda/kernels/tiles.h"
#include "cuda/kernels/verbs.h"

namespace onward::cuda {
namespace {

constexpr int kThreads = 256;

struct TableArgs {
  const char* data;
  DType dtype;
  int64_t outputs;
  int64_t inputs;
};

// Reads the weight (output, k).
__device__ float weight_at(const TableArgs& w, int64_t output, int64_t k) {
  const int64_t panel = output / kTileOutputs, row = output % kTileOutputs;
  if (w.dtype == DType::f32) {
    const float* panels = reinterpret_cast<const float*>(w.data);
    return panels[((panel * (w.inputs / 4) + k / 4) * kTileOutputs + row) * 4 + k % 4];
  }
  const int64_t tiles = tiles_of(w.inputs), tile = k / kTileInputs;
  const int64_t lane = row % 8 * 4 + k % kTileInputs / 8, upper = row / 8, i = k % 8;
  if (w.dtype == DType::f16 || w.dtype == DType::bf16) {
    const char* begin = w.data + (panel * tiles + tile) * weight_tile_bytes(w.dtype);
    const uint32_t bits = reinterpret_cast<const uint16_t*>(begin)[(upper * 32 + lane) * 8 + i];
    return w.dtype == DType::f16 ? half_to_float(bits) : bf16_to_float(bits);
  }
  const char* panel_begin = w.data + panel * tiles * weight_tile_bytes(w.dtype);
  const char* scales = w.data + weight_tiles_bytes(w.dtype, w.outputs, w.inputs);
  const int64_t place = (panel * tiles + tile) * kTileOutputs + row;
  const float scale = half_to_float(reinterpret_cast<const uint16_t*>(scales)[place]);
  if (w.dtype == DType::q8_0) {
    const char* begin = panel_begin + tile * weight_tile_bytes(w.dtype);
    return scale * static_cast<float>(static_cast<int8_t>(begin[lane * 16 + upper * 8 + i]));
  }
  const char* begin = panel_begin + nibble_tile_offset(tile, tiles);
  const uint32_t byte =
      static_cast<uint8_t>(begin[lane * nibble_lane_stride(tile, tiles) + upper * 4 + i % 4]);
  const int code = static_cast<int>(i < 4 ? byte & 15u : byte >> 4);
  if (w.dtype == DType::q4_0) return scale * static_cast<float>(code - 8);
  const char* minimums = scales + scales_bytes(w.outputs, w.inputs);
  const float minimum = half_to_float(reinterpret_cast<const uint16_t*>(minimums)[place]);
  return scale * static_cast<float>(code) + minimum;
}

__global__ void __launch_bounds__(kThreads)
    embed_rows(TableArgs table, const int32_t* ids, float* x) {
  const int64_t row = blockIdx.x;
  for (int64_t k = threadIdx.x; k < table.inputs; k += kThreads) {
    x[row * table.inputs + k] = weight_at(table, ids[row], k);
  }
}

__global__ void __launch_bounds__(kThreads)
    gather(const float* x, const int64_t* index, int64_t width, float* y) {
  const float* from = x + index[blockIdx.x] * width;
  for (int64_t i = threadIdx.x; i < width; i += kThreads) y[blockIdx.x * width + i] = from[i];
}

__global__ void __launch_bounds__(kThreads)
    gate_rows(const float* gate_up, int64_t values, int64_t width, float* y) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= values) return;
  const float* row = gate_up + i / width * 2 * width;
  y[i] = gated(row[i % width], row[width + i % width]);
}

}  // namespace

void embed(Stream& stream, const Matrix& table, const int32_t* ids, int64_t rows, float* x) {
  const TableArgs args = {static_cast<const char*>(table.data), table.dtype, table.outputs,
                          table.inputs};
  launch(stream, {rows, 1, 1, kThreads, 0}, embed_rows, args, ids, x);
}

void gather_rows(Stream& stream, const float* x, const int64_t* index, int64_t rows, int64_t width,
                 float* y) {
  launch(stream, {rows, 1, 1, kThreads, 0}, gather, x, index, width, y);
}

void gate(Stream& stream, const float* gate_up, int64_t rows, int64_t width, float* y) {
  const int64_t values = rows * width;
  launch(stream, {(values + kThreads - 1) / kThreads, 1, 1, kThreads, 0}, gate_rows, gate_up,
         values, width, y);
}

}  // namespace onward::cuda

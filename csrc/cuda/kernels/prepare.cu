// Normalises and rounds the rows of a product once for all outputs; one block for each row. RMSNorm
// (Zhang & Sennrich 2019) sums in 16 lanes like the CPU, so float32 rows have the same bits.
#include "cuda/kernels/numbers.h"
#include "cuda/kernels/tiles.h"
#include "cuda/kernels/verbs.h"

namespace onward::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kSumLanes = 16;

enum class Rows { plain, bf16, tf32, int8 };

Rows kind_of(DType weights) {
  switch (weights) {
    case DType::f32:
      return Rows::plain;
    case DType::bf16:
      return Rows::bf16;
    case DType::f16:
      return Rows::tf32;
    default:
      return Rows::int8;
  }
}

struct PrepareArgs {
  const float* x;  // (rows, inputs)
  int64_t rows;
  int64_t inputs;
  const float* norm;  // (inputs); null: no norm
  float eps;
  int64_t size;  // number of values of a row in the mean of the norm
  void* values;
  float* scales;
  int32_t* sums;
};

// 1 / sqrt(mean of squares + eps); every thread of the block gets it.
__device__ float inverse_norm(const PrepareArgs& a, const float* row) {
  __shared__ float inverse;
  if (threadIdx.x < 32) {
    float squares = 0.0f;
    if (threadIdx.x < kSumLanes) {
      for (int64_t i = threadIdx.x; i < a.size; i += kSumLanes) {
        squares = fmaf(row[i], row[i], squares);
      }
    }
    for (int half = kSumLanes / 2; half > 0; half /= 2) squares += shuffle_xor(squares, half);
    if (threadIdx.x == 0) {
      inverse = 1.0f / sqrtf(squares / static_cast<float>(a.size) + a.eps);
    }
  }
  sync_block();
  return inverse;
}

template <Rows kRows>
__global__ void __launch_bounds__(kThreads) prepare_rows(PrepareArgs a) {
  const int64_t row = blockIdx.x;
  const bool padding = row >= a.rows;
  const float* x = a.x + (padding ? 0 : row) * a.inputs;
  const int64_t limit = padding ? 0 : a.norm != nullptr ? a.size : a.inputs;
  const float inverse = a.norm != nullptr && !padding ? inverse_norm(a, x) : 1.0f;
  const auto value_at = [&](int64_t i) {
    if (i >= limit) return 0.0f;
    return a.norm != nullptr ? x[i] * inverse * a.norm[i] : x[i];
  };
  const int64_t tiles = tiles_of(a.inputs);
  const int64_t tile_row = row / kTileRows * tiles, in_tile = row % kTileRows;
  if constexpr (kRows == Rows::plain) {
    float* out = static_cast<float*>(a.values) + row * a.inputs;
    for (int64_t i = threadIdx.x; i < a.inputs; i += kThreads) out[i] = value_at(i);
  } else if constexpr (kRows == Rows::int8) {
    // A warp rounds a group of 32.
    const int lane = static_cast<int>(threadIdx.x) % 32;
    for (int64_t tile = threadIdx.x / 32; tile < tiles; tile += kThreads / 32) {
      const float value = value_at(tile * kTileInputs + lane);
      float largest = fabsf(value);
      int finite = largest < kInfinity ? 1 : 0;
      if (finite == 0) largest = 0.0f;
      for (int mask = 16; mask > 0; mask /= 2) {
        largest = fmaxf(largest, shuffle_xor(largest, mask));
        finite &= shuffle_xor(finite, mask);
      }
      const bool empty = finite == 0 || largest < 0x1p-120f;
      const float scaled = empty ? 0.0f : value * (127.0f / largest);
      const int code = static_cast<int>(rintf(scaled));
      int sum = code;
      for (int mask = 16; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
      static_cast<int8_t*>(
          a.values)[((tile_row + tile) * kTileRows + in_tile) * kTileInputs + lane] =
          static_cast<int8_t>(code);
      if (lane == 0) {
        const int64_t place = (tile_row + tile) * kTileRows + in_tile;
        a.scales[place] = finite == 0 ? float_of(0x7fc00000u) : empty ? 0.0f : largest / 127.0f;
        a.sums[place] = sum;
      }
    }
  } else {
    for (int64_t i = threadIdx.x; i < tiles * kTileInputs; i += kThreads) {
      const int64_t place =
          ((tile_row + i / kTileInputs) * kTileRows + in_tile) * kTileInputs + i % kTileInputs;
      const float value = value_at(i);
      if constexpr (kRows == Rows::bf16) {
        static_cast<uint16_t*>(a.values)[place] = static_cast<uint16_t>(bf16_of(value));
      } else {
        static_cast<uint32_t*>(a.values)[place] = to_tf32(value);
      }
    }
  }
}

int64_t value_bytes(Rows kind) { return kind == Rows::int8 ? 1 : kind == Rows::bf16 ? 2 : 4; }

}  // namespace

int64_t prepared_bytes(const Matrix& weight, int64_t rows) {
  const Rows kind = kind_of(weight.dtype);
  const int64_t padded = round_up(rows, kTileRows);
  const int64_t tiles = tiles_of(weight.inputs);
  const int64_t values = padded * tiles * kTileInputs * value_bytes(kind);
  return kind == Rows::int8 ? values + padded * tiles * 8 : values;
}

PreparedRows prepare(Stream& stream, const Matrix& weight, const LinearInput& input, int64_t rows,
                     void* scratch) {
  const Rows kind = kind_of(weight.dtype);
  if (kind == Rows::plain && input.norm.empty()) return {input.x, nullptr, nullptr};
  const int64_t padded = kind == Rows::plain ? rows : round_up(rows, kTileRows);
  PrepareArgs a;
  a.x = input.x;
  a.rows = rows;
  a.inputs = weight.inputs;
  a.norm = input.norm.weight.data;
  a.eps = input.norm.eps;
  a.size = input.norm.empty() ? weight.inputs : input.norm.size;
  a.values = scratch;
  const int64_t scaled = padded * tiles_of(weight.inputs);
  a.scales = reinterpret_cast<float*>(static_cast<char*>(scratch) + scaled * kTileInputs);
  a.sums = reinterpret_cast<int32_t*>(a.scales + scaled);
  const Grid grid = {padded, 1, 1, kThreads, 0};
  switch (kind) {
    case Rows::plain:
      launch(stream, grid, prepare_rows<Rows::plain>, a);
      return {scratch, nullptr, nullptr};
    case Rows::bf16:
      launch(stream, grid, prepare_rows<Rows::bf16>, a);
      return {scratch, nullptr, nullptr};
    case Rows::tf32:
      launch(stream, grid, prepare_rows<Rows::tf32>, a);
      return {scratch, nullptr, nullptr};
    case Rows::int8:
      launch(stream, grid, prepare_rows<Rows::int8>, a);
      return {scratch, a.scales, a.sums};
  }
  return {};
}

void normalise(Stream& stream, const LinearInput& input, int64_t rows, float* y) {
  PrepareArgs a;
  a.x = input.x;
  a.rows = rows;
  a.inputs = activation_stride(input.norm.size);
  a.norm = input.norm.weight.data;
  a.eps = input.norm.eps;
  a.size = input.norm.size;
  a.values = y;
  a.scales = nullptr;
  a.sums = nullptr;
  launch(stream, {rows, 1, 1, kThreads, 0}, prepare_rows<Rows::plain>, a);
}

}  // namespace onward::cuda

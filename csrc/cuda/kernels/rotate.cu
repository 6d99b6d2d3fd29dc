// Rotary embedding (Su et al. 2021) and append. There is a block for each row and head; keys and
// values are stored in the cache. Pairs are (i, i + head_dim / 2). Products are rounded before
// their sum, as on the CPU.
#include "cuda/kernels/numbers.h"
#include "cuda/kernels/verbs.h"

namespace onward::cuda {
namespace {

constexpr int kThreads = 64;
constexpr int kSumLanes = 16;

struct RotateCall {
  RotateArgs args;
  LayerCache cache;
  StepView step;
};

struct Elements {
  char* begin;
  DType dtype;
  __device__ void store(int64_t i, float value) const {
    if (dtype == DType::f32) {
      reinterpret_cast<float*>(begin)[i] = value;
    } else {
      reinterpret_cast<uint16_t*>(begin)[i] =
          static_cast<uint16_t>(dtype == DType::f16 ? half_of(value) : bf16_of(value));
    }
  }
};

// Works in place on the values of the head in shared memory.
__device__ void normalise(float* head, int size, const float* weight, float eps) {
  __shared__ float inverse;
  if (threadIdx.x < 32) {
    float squares = 0.0f;
    if (threadIdx.x < kSumLanes) {
      for (int i = static_cast<int>(threadIdx.x); i < size; i += kSumLanes) {
        squares = fmaf(head[i], head[i], squares);
      }
    }
    for (int half = kSumLanes / 2; half > 0; half /= 2) squares += shuffle_xor(squares, half);
    if (threadIdx.x == 0) inverse = 1.0f / sqrtf(squares / static_cast<float>(size) + eps);
  }
  sync_block();
  for (int i = static_cast<int>(threadIdx.x); i < size; i += kThreads) {
    head[i] = head[i] * inverse * weight[i];
  }
  sync_block();
}

// Heads: queries, then keys, then values.
__global__ void __launch_bounds__(kThreads) rotate_head(RotateCall c) {
  const int size = c.cache.head_dim, half = size / 2;
  const int64_t row = blockIdx.x;
  const int head = static_cast<int>(blockIdx.y), queries = static_cast<int>(c.args.num_heads);
  const bool is_query = head < queries, is_value = head >= queries + c.cache.num_kv_heads;
  const int kv_head = is_query ? 0 : (head - queries) % c.cache.num_kv_heads;
  float* values = is_query ? c.args.q + row * c.args.q_stride + static_cast<int64_t>(head) * size
                           : (is_value ? c.args.v : c.args.k) + row * c.args.kv_stride +
                                 static_cast<int64_t>(kv_head) * size;
  float* const vector = reinterpret_cast<float*>(shared_memory());  // (head_dim)
  for (int i = static_cast<int>(threadIdx.x); i < size; i += kThreads) vector[i] = values[i];
  sync_block();
  const float* norm = is_query ? c.args.q_norm.weight.data : c.args.k_norm.weight.data;
  if (!is_value && norm != nullptr) normalise(vector, size, norm, c.args.norm_eps);
  const SliceEntry slice = c.step.slices[c.step.slice_of_row[row]];
  const int64_t position = slice.first_position + row - slice.first_row;
  constexpr int kTokens = CacheLayout::kBlockTokens;
  Elements stored = {nullptr, c.cache.dtype};
  if (!is_query) {
    void* const* blocks =
        c.step.tables[(c.step.slice_of_row[row] * c.step.groups + c.cache.group) * 2];
    stored.begin = static_cast<char*>(blocks[position / kTokens]) + c.cache.keys_offset +
                   kv_head * c.cache.head_bytes + (is_value ? c.cache.values_offset : 0);
  }
  const int64_t slot = position % kTokens;
  if (is_value) {
    for (int i = static_cast<int>(threadIdx.x); i < size; i += kThreads) {
      stored.store(slot * c.cache.value_stride + i, vector[i]);
    }
    return;
  }
  const float* cosines = c.args.cosines + row * half;
  const float* sines = c.args.sines + row * half;
  for (int i = static_cast<int>(threadIdx.x); i < half; i += kThreads) {
    const float x1 = vector[i], x2 = vector[half + i];
    const float y1 = x1 * cosines[i] - x2 * sines[i];
    const float y2 = x2 * cosines[i] + x1 * sines[i];
    values[i] = y1;
    values[half + i] = y2;
    if (is_query) continue;
    stored.store(i * kTokens + slot, y1);
    stored.store((half + i) * kTokens + slot, y2);
  }
}

}  // namespace

void rotate_and_append(Stream& stream, const RotateArgs& args, const LayerCache& cache,
                       const StepView& step) {
  const Grid grid = {step.rows, args.num_heads + 2 * cache.num_kv_heads, 1, kThreads,
                     static_cast<size_t>(cache.head_dim) * sizeof(float)};
  launch(stream, grid, rotate_head, RotateCall{args, cache, step});
}

}  // namespace onward::cuda

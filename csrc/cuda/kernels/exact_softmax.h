// The softmax over exact keys on the threads of one block, with the same bits as on the CPU
// (cpu/kernels.h, AttendArgs). A state is [maximum, 15 unused][16 sums][head_dim outputs]. All
// threads of a block must call each function.
#pragma once

#include "cuda/kernels/numbers.h"
#include "cuda/kernels/step.h"

namespace onward::cuda {

constexpr int kSoftmaxThreads = 128;
constexpr int kTileKeys = 64;
constexpr int kSumLanes = 16;
constexpr int kMostHeadDim = 512;
constexpr int kStateHead = 2 * kSumLanes;  // floats before the outputs
constexpr int kBlockKeys = CacheLayout::kBlockTokens;

__host__ __device__ constexpr int64_t state_floats(int64_t head_dim) {
  return kStateHead + head_dim;
}

struct SoftmaxShared {
  float merged[kStateHead + kMostHeadDim];
  float next[kStateHead + kMostHeadDim];
  float query[kMostHeadDim];
  float weights[kTileKeys];
};

// The keys and values of one head in the blocks of a sequence.
struct ExactKeys {
  void* const* blocks;
  int64_t keys_offset;
  int64_t values_offset;  // from the keys
  int64_t value_stride;
  int head_dim;
  DType dtype;

  __device__ const char* keys(int64_t key) const {
    return static_cast<const char*>(blocks[key / kBlockKeys]) + keys_offset;
  }
  __device__ float element(const char* begin, int64_t i) const {
    return load_element(dtype, begin, i);
  }
};

// Folds 16 lanes in the CPU's order; every lane of the warp gets the sum.
__device__ inline float fold_lanes(float value) {
  for (int half = kSumLanes / 2; half > 0; half /= 2) value += shuffle_xor(value, half);
  return value;
}

// Computes the softmax over keys [first, last] of one span. `state` is in shared memory.
__device__ inline void attend_span(const ExactKeys& keys, const float* q, float scale,
                                   int64_t first_key, int64_t last_key, int64_t span,
                                   SoftmaxShared& shared, float* state) {
  const int thread = static_cast<int>(threadIdx.x), size = keys.head_dim;
  const int64_t span_begin = span * kSpanKeys;
  const int64_t first = first_key > span_begin ? first_key : span_begin;
  const int64_t span_last = span_begin + kSpanKeys - 1;
  const int64_t last = last_key < span_last ? last_key : span_last;
  sync_block();  // other threads may still read the state
  for (int i = thread; i < size; i += kSoftmaxThreads) shared.query[i] = q[i];
  for (int i = kSumLanes + thread; i < kStateHead + size; i += kSoftmaxThreads) state[i] = 0.0f;
  if (thread == 0) state[0] = -kInfinity;
  for (int64_t tile = first / kTileKeys; tile <= last / kTileKeys; ++tile) {
    const int64_t begin = tile * kTileKeys;
    sync_block();
    if (thread < kTileKeys) {
      const int64_t key = begin + thread;
      float score = -kInfinity;
      if (first <= key && key <= last) {
        const char* column = keys.keys(key);
        score = 0.0f;
        for (int d = 0; d < size; ++d) {
          score =
              fmaf(keys.element(column, d * kBlockKeys + key % kBlockKeys), shared.query[d], score);
        }
        score *= scale;
      }
      shared.weights[thread] = score;
    }
    sync_block();
    // A NaN score is not a maximum, and its weight becomes NaN.
    float highest = -kInfinity;
#pragma unroll 8
    for (int i = 0; i < kTileKeys; ++i) {
      if (shared.weights[i] > highest) highest = shared.weights[i];
    }
    const float before = state[0];
    const bool higher = highest > before;
    const float maximum = higher ? highest : before;
    const float rescale = higher ? exponential(before - highest) : 1.0f;
    sync_block();
    if (thread < kTileKeys) {
      const int64_t key = begin + thread;
      const bool sees = first <= key && key <= last;
      shared.weights[thread] = sees ? exponential(shared.weights[thread] - maximum) : 0.0f;
    }
    if (thread == 0) state[0] = maximum;
    sync_block();
    const int64_t begin_key = first > begin ? first : begin;
    const int64_t end_key = last + 1 < begin + kTileKeys ? last + 1 : begin + kTileKeys;
    if (thread < kSumLanes) {
      float& lane = state[kSumLanes + thread];
      if (higher) lane *= rescale;
      for (int i = thread; i < kTileKeys; i += kSumLanes) {
        if (begin_key <= begin + i && begin + i < end_key) lane += shared.weights[i];
      }
    }
    for (int d = thread; d < size; d += kSoftmaxThreads) {
      float out = state[kStateHead + d];
      if (higher) out *= rescale;
      for (int64_t key = begin_key; key < end_key; ++key) {
        const char* values = keys.keys(key) + keys.values_offset;
        out = fmaf(keys.element(values, key % kBlockKeys * keys.value_stride + d),
                   shared.weights[key - begin], out);
      }
      state[kStateHead + d] = out;
    }
  }
  sync_block();
}

__device__ inline void copy_state(const float* from, float* to, int head_dim) {
  for (int i = static_cast<int>(threadIdx.x); i < kStateHead + head_dim; i += kSoftmaxThreads) {
    to[i] = from[i];
  }
  sync_block();
}

// Merges the state of the next keys into `state`, in shared memory.
__device__ inline void merge_states(float* state, const float* next, int head_dim) {
  const float a = state[0], b = next[0];
  const float highest = a < b ? b : a;
  const float old_factor = exponential(a - highest), new_factor = exponential(b - highest);
  sync_block();
  for (int i = kSumLanes + static_cast<int>(threadIdx.x); i < kStateHead + head_dim;
       i += kSoftmaxThreads) {
    state[i] = fmaf(next[i], new_factor, state[i] * old_factor);
  }
  if (threadIdx.x == 0) state[0] = highest;
  sync_block();
}

__device__ inline void write_row(const float* state, int head_dim, float* out) {
  const float total = fold_lanes(state[kSumLanes + threadIdx.x % kSumLanes]);
  for (int d = static_cast<int>(threadIdx.x); d < head_dim; d += kSoftmaxThreads) {
    out[d] = state[kStateHead + d] / total;
  }
}

}  // namespace onward::cuda

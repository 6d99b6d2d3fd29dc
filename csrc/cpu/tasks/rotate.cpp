#include "cpu/tasks/rotate.h"

#include <algorithm>

namespace onward::cpu {
namespace {

constexpr int64_t kMaxHeadDim = 512;

// (x1, x2) -> (x1 cos - x2 sin, x2 cos + x1 sin) with x2 half a head after x1.
void rotate_head(float* __restrict head, const float* __restrict cosines,
                 const float* __restrict sines, int64_t half) {
  for (int64_t i = 0; i < half; ++i) {
    const float x1 = head[i];
    const float x2 = head[half + i];
    head[i] = x1 * cosines[i] - x2 * sines[i];
    head[half + i] = x2 * cosines[i] + x1 * sines[i];
  }
}

// Writes a head's key to column `slot` of (head_dim, 16), its value to row `slot` of
// (16, value_stride).
template <typename Stored>
void store(const Stored* key, const Stored* value, int64_t slot, const CacheLayout& layout,
           char* keys, char* values) {
  Stored* column = reinterpret_cast<Stored*>(keys) + slot;
  for (int64_t i = 0; i < layout.head_dim; ++i) column[i * CacheLayout::kBlockTokens] = key[i];
  std::copy_n(value, layout.head_dim,
              reinterpret_cast<Stored*>(values) + slot * layout.value_stride());
}

// Rounds a head to the dtype of the cache. The row may end within the last lane, so it is copied
// first.
void round_head(const Kernels& kernels, DType dtype, const float* head, int64_t size,
                uint16_t* out) {
  alignas(64) float padded[kMaxHeadDim];
  std::copy_n(head, size, padded);
  std::fill(padded + size, padded + round_up(size, kLane), 0.0f);
  const auto round = dtype == DType::f16 ? kernels.round_f16 : kernels.round_bf16;
  round(padded, round_up(size, kLane), out);
}

}  // namespace

void rotate_and_append_token(const RotateArgs& args, const CacheLayout& layout,
                             const SequenceSlice& slice, int64_t token, const Kernels& kernels) {
  const int64_t row = slice.first_row + token;
  const int64_t half = layout.head_dim / 2;
  const float* cosines = args.cosines + row * half;
  const float* sines = args.sines + row * half;
  float* q = args.qkv + row * args.qkv_stride;
  float* k = q + args.k_offset;
  const float* v = q + args.v_offset;

  for (int64_t head = 0; head < args.num_heads; ++head) {
    float* vector = q + head * layout.head_dim;
    if (!args.q_norm.empty()) {
      kernels.rms_norm(vector, args.q_norm.data, args.norm_eps, layout.head_dim, vector);
    }
    rotate_head(vector, cosines, sines, half);
  }

  const GroupBlocks& group = slice.blocks[layout.group_of[static_cast<size_t>(args.layer)]];
  const int64_t position = slice.first_position + token;
  char* block = static_cast<char*>(group.exact[position / CacheLayout::kBlockTokens]);
  const int64_t slot = position % CacheLayout::kBlockTokens;
  for (int64_t head = 0; head < layout.num_kv_heads; ++head) {
    float* key = k + head * layout.head_dim;
    if (!args.k_norm.empty()) {
      kernels.rms_norm(key, args.k_norm.data, args.norm_eps, layout.head_dim, key);
    }
    rotate_head(key, cosines, sines, half);
    char* keys = block + layout.keys_offset(args.layer, head);
    char* values = block + layout.values_offset(args.layer, head);
    const float* value = v + head * layout.head_dim;
    if (layout.dtype == DType::f32) {
      store(key, value, slot, layout, keys, values);
      continue;
    }
    uint16_t rounded_key[kMaxHeadDim], rounded_value[kMaxHeadDim];
    round_head(kernels, layout.dtype, key, layout.head_dim, rounded_key);
    round_head(kernels, layout.dtype, value, layout.head_dim, rounded_value);
    store(rounded_key, rounded_value, slot, layout, keys, values);
  }
}

}  // namespace onward::cpu

#include "cpu/tasks/rotate.h"

#include <algorithm>

namespace onward::cpu {
namespace {

constexpr int64_t kMaxHeadDim = 576;
constexpr int64_t kMaxValueDim = 512;

// (x1, x2) -> (x1 cos - x2 sin, x2 cos + x1 sin) with x2 `half` after x1.
void rotate_pairs(float* __restrict head, const float* __restrict cosines,
                  const float* __restrict sines, int64_t half) {
  for (int64_t i = 0; i < half; ++i) {
    const float x1 = head[i];
    const float x2 = head[half + i];
    head[i] = x1 * cosines[i] - x2 * sines[i];
    head[half + i] = x2 * cosines[i] + x1 * sines[i];
  }
}

// The heads of one token: queries, keys or values.
struct Heads {
  float* vectors;  // (count, size)
  int64_t count;
  int64_t size;
};

struct Rotation {
  const float* cosines;  // (pairs)
  const float* sines;
  int64_t from;  // the first value of a head that rotates
  int64_t pairs;
};

void normalise(const Kernels& kernels, const HeadNorm& norm, float eps, const Heads& heads) {
  const bool together = norm.over == HeadNorm::Over::all;
  const int64_t runs = together ? 1 : heads.count;
  const int64_t stride = together ? heads.count * heads.size : heads.size;
  const int64_t size = norm.size > 0 ? norm.size : stride;
  for (int64_t run = 0; run < runs; ++run) {
    float* vector = heads.vectors + run * stride;
    const int64_t own = norm.over == HeadNorm::Over::heads ? run * stride : 0;
    const float* weight = norm.weight.data + own;
    if (norm.layer) {
      const float* bias = norm.bias.empty() ? nullptr : norm.bias.data + own;
      kernels.layer_norm(vector, weight, bias, eps, size, vector);
    } else {
      kernels.rms_norm(vector, weight, eps, size, vector);
    }
  }
}

void normalise_and_rotate(const Kernels& kernels, const HeadNorm& norm, float eps,
                          const Heads& heads, const Rotation& rotation) {
  if (!norm.empty() && !norm.after_rotation) normalise(kernels, norm, eps, heads);
  for (int64_t head = 0; head < heads.count; ++head) {
    rotate_pairs(heads.vectors + head * heads.size + rotation.from, rotation.cosines,
                 rotation.sines, rotation.pairs);
  }
  if (!norm.empty() && norm.after_rotation) normalise(kernels, norm, eps, heads);
}

// NaN stays NaN.
void limit(float most, int64_t n, float* x) {
  for (int64_t i = 0; i < n; ++i) x[i] = std::clamp(x[i], -most, most);
}

// RMSNorm without a weight.
void normalise_values(const Kernels& kernels, float eps, const Heads& heads) {
  alignas(64) float ones[kMaxValueDim];
  std::fill_n(ones, heads.size, 1.0f);
  for (int64_t head = 0; head < heads.count; ++head) {
    float* vector = heads.vectors + head * heads.size;
    kernels.rms_norm(vector, ones, eps, heads.size, vector);
  }
}

// Writes a head's key to column `slot` of (head_dim, 16), its value to row `slot` of
// (16, value_stride).
template <typename Stored>
void store(const Stored* key, const Stored* value, int64_t slot, const CacheLayout::Group& sizes,
           char* keys, char* values) {
  Stored* column = reinterpret_cast<Stored*>(keys) + slot;
  for (int64_t i = 0; i < sizes.head_dim; ++i) column[i * CacheLayout::kBlockTokens] = key[i];
  const int64_t stride = round_up(sizes.value_dim, CacheLayout::kBlockTokens);
  std::copy_n(value, sizes.value_dim, reinterpret_cast<Stored*>(values) + slot * stride);
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
  const CacheLayout::Group& sizes = layout.group(args.layer);
  const int64_t pairs = (sizes.head_dim - args.rotated_from) / 2;
  const Rotation rotation = {args.cosines + row * pairs, args.sines + row * pairs,
                             args.rotated_from, pairs};
  float* q = args.q + row * args.q_stride;
  const Heads queries = {q, args.num_heads, sizes.head_dim};
  if (args.clip > 0) limit(args.clip, queries.count * queries.size, q);
  normalise_and_rotate(kernels, args.q_norm, args.norm_eps, queries, rotation);
  if (args.q_scales != nullptr) {
    for (int64_t i = 0; i < queries.count * queries.size; ++i) q[i] *= args.q_scales[row];
  }
  if (args.k == nullptr) return;

  const Heads keys = {args.k + row * args.kv_stride, sizes.num_kv_heads, sizes.head_dim};
  const Heads values = {args.v + row * args.kv_stride, sizes.num_kv_heads, sizes.value_dim};
  if (args.clip > 0) {
    for (const Heads& heads : {keys, values}) {
      limit(args.clip, heads.count * heads.size, heads.vectors);
    }
  }
  normalise_and_rotate(kernels, args.k_norm, args.norm_eps, keys, rotation);
  if (args.v_norm) normalise_values(kernels, args.norm_eps, values);
  if (args.v_scale != 1.0f) {
    for (int64_t i = 0; i < values.count * values.size; ++i) values.vectors[i] *= args.v_scale;
  }

  const GroupBlocks& group = slice.blocks[layout.group_of[static_cast<size_t>(args.layer)]];
  const int64_t position = slice.first_position + token;
  char* block = static_cast<char*>(group.exact[position / CacheLayout::kBlockTokens]);
  const int64_t slot = position % CacheLayout::kBlockTokens;
  for (int64_t head = 0; head < sizes.num_kv_heads; ++head) {
    const float* key = keys.vectors + head * keys.size;
    const float* value = values.vectors + head * values.size;
    char* stored_keys = block + layout.keys_offset(args.layer, head);
    char* stored_values = block + layout.values_offset(args.layer, head);
    if (layout.dtype == DType::f32) {
      store(key, value, slot, sizes, stored_keys, stored_values);
      continue;
    }
    uint16_t rounded_key[kMaxHeadDim], rounded_value[kMaxValueDim];
    round_head(kernels, layout.dtype, key, keys.size, rounded_key);
    round_head(kernels, layout.dtype, value, values.size, rounded_value);
    store(rounded_key, rounded_value, slot, sizes, stored_keys, stored_values);
  }
}

}  // namespace onward::cpu

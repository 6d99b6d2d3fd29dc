#include "cpu/rotate.h"

#include "base/half.h"

namespace onward::cpu {
namespace {

// (x1, x2) -> (x1 cos - x2 sin, x2 cos + x1 sin) with x2 half a head after x1.
void rotate_head(float* head, const float* cosines, const float* sines, int64_t half) {
  for (int64_t i = 0; i < half; ++i) {
    const float x1 = head[i];
    const float x2 = head[half + i];
    head[i] = x1 * cosines[i] - x2 * sines[i];
    head[half + i] = x2 * cosines[i] + x1 * sines[i];
  }
}

template <typename Stored, typename Convert>
void store(const float* key, const float* value, int64_t slot, const CacheLayout& layout,
           Stored* keys, Stored* values, Convert convert) {
  for (int64_t i = 0; i < layout.head_dim; ++i) {
    keys[i * CacheLayout::kBlockTokens + slot] = convert(key[i]);
  }
  Stored* out = values + slot * layout.value_stride();
  for (int64_t i = 0; i < layout.head_dim; ++i) out[i] = convert(value[i]);
}

}  // namespace

void rotate_and_append_token(const RotateArgs& args, const CacheLayout& layout,
                             const SequenceSlice& slice, int64_t token, RmsNorm rms_norm) {
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
      rms_norm(vector, args.q_norm.data, args.norm_eps, layout.head_dim, vector);
    }
    rotate_head(vector, cosines, sines, half);
  }

  const int64_t position = slice.first_position + token;
  char* block = static_cast<char*>(slice.blocks[position / CacheLayout::kBlockTokens]);
  const int64_t slot = position % CacheLayout::kBlockTokens;
  for (int64_t head = 0; head < layout.num_kv_heads; ++head) {
    float* key = k + head * layout.head_dim;
    if (!args.k_norm.empty()) {
      rms_norm(key, args.k_norm.data, args.norm_eps, layout.head_dim, key);
    }
    rotate_head(key, cosines, sines, half);
    char* keys = block + layout.keys_offset(args.layer, head);
    char* values = block + layout.values_offset(args.layer, head);
    const float* value = v + head * layout.head_dim;
    if (layout.dtype == DType::f32) {
      store(key, value, slot, layout, reinterpret_cast<float*>(keys),
            reinterpret_cast<float*>(values), [](float x) { return x; });
    } else {
      store(key, value, slot, layout, reinterpret_cast<uint16_t*>(keys),
            reinterpret_cast<uint16_t*>(values),
            layout.dtype == DType::f16 ? float_to_f16 : float_to_bf16);
    }
  }
}

}  // namespace onward::cpu

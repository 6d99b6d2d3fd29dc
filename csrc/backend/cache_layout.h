// Where the keys and values of a cache block lie. One block holds kBlockTokens consecutive
// positions of one sequence for every layer and kv head, so that a sequence is a list of blocks.
//
//   block = for each layer, for each kv head:
//             keys   [head_dim][16 tokens]       tokens are lanes: 16 scores per register
//             values [16 tokens][value_stride]   value_stride = head_dim rounded up to 16
#pragma once

#include <cstdint>

#include "base/buffer.h"
#include "base/dtype.h"

namespace onward {

struct CacheLayout {
  static constexpr int64_t kBlockTokens = 16;

  int64_t num_layers = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  DType dtype = DType::f32;  // f32, f16 or bf16

  int64_t value_bytes() const { return dtype_block_bytes(dtype); }
  int64_t value_stride() const { return round_up(head_dim, kBlockTokens); }
  int64_t head_bytes() const { return kBlockTokens * (head_dim + value_stride()) * value_bytes(); }
  int64_t keys_offset(int64_t layer, int64_t kv_head) const {
    return (layer * num_kv_heads + kv_head) * head_bytes();
  }
  int64_t values_offset(int64_t layer, int64_t kv_head) const {
    return keys_offset(layer, kv_head) + kBlockTokens * head_dim * value_bytes();
  }
  int64_t block_bytes() const { return num_layers * num_kv_heads * head_bytes(); }
  int64_t blocks_for(int64_t tokens) const { return round_up(tokens, kBlockTokens) / kBlockTokens; }
};

// 2 (keys and values) x layers x kv heads x head_dim x tokens x bytes per value.
constexpr int64_t kv_cache_bytes(int64_t num_layers, int64_t num_kv_heads, int64_t head_dim,
                                 int64_t tokens, int64_t bytes_per_value) {
  return 2 * num_layers * num_kv_heads * head_dim * tokens * bytes_per_value;
}

}  // namespace onward

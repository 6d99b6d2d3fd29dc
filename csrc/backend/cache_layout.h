// The layout of keys and values in a cache block. A block has kBlockTokens consecutive positions of
// one sequence, for every kv head of a group of layers. The layers of a group see the same window,
// so blocks that they no longer see can be returned. A block is exact or coded.
//
//   exact = for each layer of the group, for each kv head:
//             keys   [head_dim][16 tokens]       tokens are lanes: 16 scores per register
//             values [16 tokens][value_stride]   value_stride = head_dim rounded up to 16
//   coded = for each layer of the group, for each kv head: key codes, value codes
//           for each layer of the group, for each kv head: key scales, value scales
//           (cpu/kernels.h defines the layout of codes and scales). A side with the codec `exact`
//           is stored as in an exact block.
//
// Positions alone decide which blocks are coded, so that prefill and decode agree: a token in block
// b sees the blocks [coded_begin(), coded_end(b)) as codes and all others exactly.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "backend/kv_codecs.h"
#include "base/buffer.h"
#include "base/dtype.h"

namespace onward {

// The version of the bytes of a cache block as this header and cpu/kernels.h describe them. Raise it
// with each change of them: saved sessions hold blocks.
constexpr int64_t kBlockLayout = 2;

struct CacheLayout {
  static constexpr int64_t kBlockTokens = 16;
  static constexpr int64_t kCodedLane = 32;  // coded vectors are padded to a multiple with zeros

  // A group of layers that see the same positions.
  struct Group {
    int64_t layers = 0;
    int64_t window = 0;       // number of newest tokens that are seen, itself included; 0: all
    int64_t sink_tokens = 0;  // number of first tokens that are also seen (StreamingLLM)
  };

  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  DType dtype = DType::f32;  // of exact blocks: f32, f16 or bf16
  KvCodec key_codec = KvCodec::exact;
  KvCodec value_codec = KvCodec::exact;
  int64_t window_blocks = 0;  // with codes: exact blocks before the block of the token
  bool exact_first = true;    // block 0 stays exact, because attention gives it much weight
  // Rotary pairs (i, i + head_dim / 2) before this one rotate so fast that their mean over some
  // positions carries no information about others. Coded keys are centred only in the other pairs.
  int64_t first_centred_pair = 0;
  std::vector<Group> groups;
  std::vector<int64_t> group_of;  // by layer
  std::vector<int64_t> place_of;  // by layer: the index in its group

  bool coded() const { return key_codec != KvCodec::exact || value_codec != KvCodec::exact; }
  int64_t coded_begin() const { return exact_first ? 1 : 0; }
  int64_t coded_end(int64_t block) const {
    return coded() ? std::max(coded_begin(), block - window_blocks) : coded_begin();
  }
  int64_t num_groups() const { return static_cast<int64_t>(groups.size()); }
  int64_t blocks_for(int64_t tokens) const { return round_up(tokens, kBlockTokens) / kBlockTokens; }

  // Exact blocks.
  int64_t value_bytes() const { return dtype_block_bytes(dtype); }
  int64_t value_stride() const { return round_up(head_dim, kBlockTokens); }
  int64_t exact_keys_bytes() const { return kBlockTokens * head_dim * value_bytes(); }
  int64_t exact_values_bytes() const { return kBlockTokens * value_stride() * value_bytes(); }
  int64_t head_bytes() const { return exact_keys_bytes() + exact_values_bytes(); }
  int64_t keys_offset(int64_t layer, int64_t kv_head) const {
    return (place_of[static_cast<size_t>(layer)] * num_kv_heads + kv_head) * head_bytes();
  }
  int64_t values_offset(int64_t layer, int64_t kv_head) const {
    return keys_offset(layer, kv_head) + exact_keys_bytes();
  }
  int64_t exact_block_bytes(int64_t group) const { return heads_of(group) * head_bytes(); }

  // Coded blocks.
  int64_t coded_dim() const { return round_up(head_dim, kCodedLane); }
  int64_t key_codes_bytes() const {
    return key_codec == KvCodec::exact ? exact_keys_bytes() : codes_bytes(key_codec);
  }
  int64_t value_codes_bytes() const {
    return value_codec == KvCodec::exact ? exact_values_bytes() : codes_bytes(value_codec);
  }
  int64_t key_scales_bytes() const { return scales_bytes(key_codec); }
  int64_t value_scales_bytes() const { return scales_bytes(value_codec); }
  int64_t key_codes_offset(int64_t layer, int64_t kv_head) const {
    return (place_of[static_cast<size_t>(layer)] * num_kv_heads + kv_head) *
           (key_codes_bytes() + value_codes_bytes());
  }
  int64_t value_codes_offset(int64_t layer, int64_t kv_head) const {
    return key_codes_offset(layer, kv_head) + key_codes_bytes();
  }
  int64_t key_scales_offset(int64_t layer, int64_t kv_head) const {
    return heads_of(group_of[static_cast<size_t>(layer)]) *
               (key_codes_bytes() + value_codes_bytes()) +
           (place_of[static_cast<size_t>(layer)] * num_kv_heads + kv_head) *
               (key_scales_bytes() + value_scales_bytes());
  }
  int64_t value_scales_offset(int64_t layer, int64_t kv_head) const {
    return key_scales_offset(layer, kv_head) + key_scales_bytes();
  }
  int64_t coded_block_bytes(int64_t group) const {
    return round_up(heads_of(group) * (key_codes_bytes() + value_codes_bytes() +
                                       key_scales_bytes() + value_scales_bytes()),
                    64);
  }

 private:
  int64_t heads_of(int64_t group) const {
    return groups[static_cast<size_t>(group)].layers * num_kv_heads;
  }
  int64_t codes_bytes(KvCodec codec) const {
    return kBlockTokens * coded_dim() * code_bits(codec) / 8;
  }
  int64_t scales_bytes(KvCodec codec) const {
    if (codec == KvCodec::exact) return 0;
    return kBlockTokens * 2 * (is_grouped(codec) ? coded_dim() / kCodedLane : 1);
  }
};

// 2 (keys and values) x layers x kv heads x head_dim x tokens x bytes per value.
constexpr int64_t kv_cache_bytes(int64_t num_layers, int64_t num_kv_heads, int64_t head_dim,
                                 int64_t tokens, int64_t bytes_per_value) {
  return 2 * num_layers * num_kv_heads * head_dim * tokens * bytes_per_value;
}

}  // namespace onward

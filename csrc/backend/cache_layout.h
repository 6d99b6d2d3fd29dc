// The layout of keys and values in a cache block. A block has kBlockTokens consecutive positions of
// one sequence, for every kv head of a group of layers. The layers of a group have kv heads of the
// same number and sizes. They see the same positions, so blocks that they no longer see can be
// returned. A block is exact or coded.
//
//   exact = for each layer of the group, for each kv head:
//             keys   [head_dim][16 tokens]       tokens are lanes: 16 scores per register
//             values [16 tokens][value_stride]   value_stride = value_dim rounded up to 16
//   coded = for each layer of the group, for each kv head: key codes, value codes
//           for each layer of the group, for each kv head: key scales, value scales
//           (cpu/kernels.h defines the layout of codes and scales). A side with the codec `exact`
//           is stored as in an exact block.
//
// Whether a block is coded depends only on positions, so that prefill and decode agree: a token in
// block b sees the blocks [coded_begin(), coded_end(b)) as codes and all others exactly.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "backend/kv_codecs.h"
#include "base/buffer.h"
#include "base/dtype.h"

namespace onward {

// The version of the bytes of a cache block, which this header and cpu/kernels.h describe. Raise it
// with each change of the bytes, because saved sessions contain blocks.
constexpr int64_t kBlockLayout = 2;

struct CacheLayout {
  static constexpr int64_t kBlockTokens = 16;
  static constexpr int64_t kCodedLane = 32;  // coded vectors are padded to a multiple with zeros

  // A group of layers that see the same positions and have kv heads of the same sizes.
  struct Group {
    int64_t layers = 0;
    int64_t num_kv_heads = 0;
    int64_t head_dim = 0;      // of keys
    int64_t value_dim = 0;     // of values; equal to head_dim in a coded cache
    int64_t window = 0;        // number of newest tokens seen, including the token itself; 0: all
    int64_t chunk_tokens = 0;  // length of chunks; a token sees only its own chunk; 0: no chunks
    int64_t sink_tokens = 0;   // number of first tokens that are also seen (StreamingLLM)

    // The first key that a token at this position sees, apart from the sinks.
    int64_t first_key(int64_t position) const {
      const int64_t in_window = window > 0 && window <= position ? position - window + 1 : 0;
      return std::max(in_window, chunk_tokens > 0 ? position / chunk_tokens * chunk_tokens : 0);
    }
    // Whether later tokens do not see the first keys.
    bool bounded() const { return window > 0 || chunk_tokens > 0; }
    bool same_shape(const Group& other) const {
      return num_kv_heads == other.num_kv_heads && head_dim == other.head_dim &&
             value_dim == other.value_dim && window == other.window &&
             chunk_tokens == other.chunk_tokens && sink_tokens == other.sink_tokens;
    }
  };

  DType dtype = DType::f32;  // of exact blocks: f32, f16 or bf16
  KvCodec key_codec = KvCodec::exact;
  KvCodec value_codec = KvCodec::exact;
  int64_t window_blocks = 0;  // in a coded cache: exact blocks before the block of the token
  bool exact_first = true;    // block 0 stays exact, because attention gives it much weight
  // Rotary pairs (i, i + head_dim / 2) before this one rotate so fast that their mean over a few
  // positions has no information about other positions. Coded keys are centred in the later pairs.
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
  const Group& group(int64_t layer) const {
    return groups[static_cast<size_t>(group_of[static_cast<size_t>(layer)])];
  }
  int64_t blocks_for(int64_t tokens) const { return round_up(tokens, kBlockTokens) / kBlockTokens; }

  // Exact blocks.
  int64_t value_bytes() const { return dtype_block_bytes(dtype); }
  int64_t value_stride(const Group& of) const { return round_up(of.value_dim, kBlockTokens); }
  int64_t exact_keys_bytes(const Group& of) const {
    return kBlockTokens * of.head_dim * value_bytes();
  }
  int64_t exact_values_bytes(const Group& of) const {
    return kBlockTokens * value_stride(of) * value_bytes();
  }
  int64_t head_bytes(const Group& of) const {
    return exact_keys_bytes(of) + exact_values_bytes(of);
  }
  int64_t keys_offset(int64_t layer, int64_t kv_head) const {
    return head_in_block(layer, kv_head) * head_bytes(group(layer));
  }
  int64_t values_offset(int64_t layer, int64_t kv_head) const {
    return keys_offset(layer, kv_head) + exact_keys_bytes(group(layer));
  }
  int64_t exact_block_bytes(int64_t index) const {
    const Group& of = groups[static_cast<size_t>(index)];
    return heads_of(of) * head_bytes(of);
  }

  // Coded blocks.
  int64_t coded_dim(const Group& of) const { return round_up(of.head_dim, kCodedLane); }
  int64_t key_codes_bytes(const Group& of) const {
    return key_codec == KvCodec::exact ? exact_keys_bytes(of) : codes_bytes(of, key_codec);
  }
  int64_t value_codes_bytes(const Group& of) const {
    return value_codec == KvCodec::exact ? exact_values_bytes(of) : codes_bytes(of, value_codec);
  }
  int64_t head_codes_bytes(const Group& of) const {
    return key_codes_bytes(of) + value_codes_bytes(of);
  }
  int64_t key_scales_bytes(const Group& of) const { return scales_bytes(of, key_codec); }
  int64_t value_scales_bytes(const Group& of) const { return scales_bytes(of, value_codec); }
  int64_t head_scales_bytes(const Group& of) const {
    return key_scales_bytes(of) + value_scales_bytes(of);
  }
  int64_t key_codes_offset(int64_t layer, int64_t kv_head) const {
    return head_in_block(layer, kv_head) * head_codes_bytes(group(layer));
  }
  int64_t value_codes_offset(int64_t layer, int64_t kv_head) const {
    return key_codes_offset(layer, kv_head) + key_codes_bytes(group(layer));
  }
  int64_t key_scales_offset(int64_t layer, int64_t kv_head) const {
    const Group& of = group(layer);
    return heads_of(of) * head_codes_bytes(of) +
           head_in_block(layer, kv_head) * head_scales_bytes(of);
  }
  int64_t value_scales_offset(int64_t layer, int64_t kv_head) const {
    return key_scales_offset(layer, kv_head) + key_scales_bytes(group(layer));
  }
  int64_t coded_block_bytes(int64_t index) const {
    const Group& of = groups[static_cast<size_t>(index)];
    return round_up(heads_of(of) * (head_codes_bytes(of) + head_scales_bytes(of)), 64);
  }

 private:
  int64_t heads_of(const Group& of) const { return of.layers * of.num_kv_heads; }
  int64_t head_in_block(int64_t layer, int64_t kv_head) const {
    return place_of[static_cast<size_t>(layer)] * group(layer).num_kv_heads + kv_head;
  }
  int64_t codes_bytes(const Group& of, KvCodec codec) const {
    return kBlockTokens * coded_dim(of) * code_bits(codec) / 8;
  }
  int64_t scales_bytes(const Group& of, KvCodec codec) const {
    if (codec == KvCodec::exact) return 0;
    return kBlockTokens * 2 * (is_grouped(codec) ? coded_dim(of) / kCodedLane : 1);
  }
};

// 2 (keys and values) x layers x kv heads x head_dim x tokens x bytes per value.
constexpr int64_t kv_cache_bytes(int64_t num_layers, int64_t num_kv_heads, int64_t head_dim,
                                 int64_t tokens, int64_t bytes_per_value) {
  return 2 * num_layers * num_kv_heads * head_dim * tokens * bytes_per_value;
}

}  // namespace onward

// What a step's kernels look up: which sequence a row belongs to, where its blocks are, and how one
// layer's keys and values lie in a block. Plain data, made by the host once for each step
// (step_tables.h) or layer, read by kernels. Knows nothing of how it came to the device.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/cache_layout.h"

namespace onward::cuda {

// Keys of one softmax of attention (cpu/kernels.h): spans lie at multiples of it.
constexpr int kSpanKeys = 512;

struct SliceEntry {
  int32_t first_row;
  int32_t tokens;
  int64_t first_position;
};

struct StepView {
  const SliceEntry* slices;     // (slices)
  const int32_t* slice_of_row;  // (rows)
  void* const* const* tables;   // (slices, groups, 2): lists of blocks, exact and coded
  int32_t groups;
  int32_t rows;
  int32_t num_slices;
  int32_t most_tokens;     // of a slice
  int64_t most_positions;  // of a slice, this step's tokens included, rounded up
};

// One layer of a CacheLayout.
struct LayerCache {
  DType dtype;  // of exact blocks
  int32_t group;
  int32_t num_kv_heads;
  int32_t head_dim;
  int32_t value_stride;
  int64_t window;  // 0: all
  int64_t sink_tokens;
  int64_t keys_offset;    // of kv head 0 in an exact block, bytes
  int64_t head_bytes;     // to the next head
  int64_t values_offset;  // from a head's keys to its values

  // Coded blocks, and which blocks of a row are coded (cache_layout.h).
  KvCodec key_codec;
  KvCodec value_codec;
  bool coded;
  bool exact_first;
  int32_t coded_dim;
  int32_t first_centred_pair;
  int64_t coded_begin;  // blocks
  int64_t window_blocks;
  int64_t codes_offset;         // of kv head 0's key codes, bytes
  int64_t head_codes_bytes;     // to the next head
  int64_t value_codes_offset;   // from a head's key codes to its value codes
  int64_t scales_offset;        // of kv head 0's key scales
  int64_t head_scales_bytes;    // to the next head
  int64_t value_scales_offset;  // from a head's key scales to its value scales
};

// The most spans that `keys` neighbouring keys touch in a context of `positions`. A row sees at most
// its window; rows that a block computes together see one key more for each further token.
inline int64_t most_spans(int64_t keys, int64_t positions) {
  return std::min((keys + kSpanKeys - 2) / kSpanKeys + 1, (positions - 1) / kSpanKeys + 1);
}

inline LayerCache layer_cache(const CacheLayout& layout, int64_t layer) {
  const int64_t group = layout.group_of[static_cast<size_t>(layer)];
  const CacheLayout::Group& seen = layout.groups[static_cast<size_t>(group)];
  LayerCache cache;
  cache.dtype = layout.dtype;
  cache.group = static_cast<int32_t>(group);
  cache.num_kv_heads = static_cast<int32_t>(layout.num_kv_heads);
  cache.head_dim = static_cast<int32_t>(layout.head_dim);
  cache.value_stride = static_cast<int32_t>(layout.value_stride());
  cache.window = seen.window;
  cache.sink_tokens = seen.sink_tokens;
  cache.keys_offset = layout.keys_offset(layer, 0);
  cache.head_bytes = layout.head_bytes();
  cache.values_offset = layout.exact_keys_bytes();
  cache.key_codec = layout.key_codec;
  cache.value_codec = layout.value_codec;
  cache.coded = layout.coded();
  cache.exact_first = layout.exact_first;
  cache.coded_dim = static_cast<int32_t>(layout.coded_dim());
  cache.first_centred_pair = static_cast<int32_t>(layout.first_centred_pair);
  cache.coded_begin = layout.coded_begin();
  cache.window_blocks = layout.window_blocks;
  cache.codes_offset = layout.key_codes_offset(layer, 0);
  cache.head_codes_bytes = layout.key_codes_bytes() + layout.value_codes_bytes();
  cache.value_codes_offset = layout.key_codes_bytes();
  cache.scales_offset = layout.key_scales_offset(layer, 0);
  cache.head_scales_bytes = layout.key_scales_bytes() + layout.value_scales_bytes();
  cache.value_scales_offset = layout.key_scales_bytes();
  return cache;
}

}  // namespace onward::cuda

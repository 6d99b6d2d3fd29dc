// The tables that the kernels of a step read: the sequence of each row, the addresses of its
// blocks, and the layout of the keys and values of one layer in a block. Plain data, written by the
// host once for each step (step_tables.h) or layer.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/cache_layout.h"

namespace onward::cuda {

// The number of keys of one softmax of attention (cpu/kernels.h). Spans begin at multiples of it.
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
  int32_t most_tokens;     // largest number in a slice
  int64_t most_positions;  // largest number in a slice, including this step's tokens, rounded up
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
  int64_t head_bytes;     // from a head to the next
  int64_t values_offset;  // from the keys of a head to its values

  // Coded blocks, and the range of blocks that are coded for a row (cache_layout.h).
  KvCodec key_codec;
  KvCodec value_codec;
  bool coded;
  bool exact_first;
  int32_t coded_dim;
  int32_t first_centred_pair;
  int64_t coded_begin;  // blocks
  int64_t window_blocks;
  int64_t codes_offset;         // of the key codes of kv head 0, bytes
  int64_t head_codes_bytes;     // from a head to the next
  int64_t value_codes_offset;   // from the key codes of a head to its value codes
  int64_t scales_offset;        // of the key scales of kv head 0
  int64_t head_scales_bytes;    // from a head to the next
  int64_t value_scales_offset;  // from the key scales of a head to its value scales
};

// The largest number of spans that `keys` consecutive keys touch in a context of `positions`. A row
// sees at most its window. Rows in one block together see one more key for each further token.
inline int64_t most_spans(int64_t keys, int64_t positions) {
  return std::min((keys + kSpanKeys - 2) / kSpanKeys + 1, (positions - 1) / kSpanKeys + 1);
}

inline LayerCache layer_cache(const CacheLayout& layout, int64_t layer) {
  const int64_t group = layout.group_of[static_cast<size_t>(layer)];
  const CacheLayout::Group& seen = layout.groups[static_cast<size_t>(group)];
  LayerCache cache;
  cache.dtype = layout.dtype;
  cache.group = static_cast<int32_t>(group);
  cache.num_kv_heads = static_cast<int32_t>(seen.num_kv_heads);
  cache.head_dim = static_cast<int32_t>(seen.head_dim);
  cache.value_stride = static_cast<int32_t>(layout.value_stride(seen));
  cache.window = seen.window;
  cache.sink_tokens = seen.sink_tokens;
  cache.keys_offset = layout.keys_offset(layer, 0);
  cache.head_bytes = layout.head_bytes(seen);
  cache.values_offset = layout.exact_keys_bytes(seen);
  cache.key_codec = layout.key_codec;
  cache.value_codec = layout.value_codec;
  cache.coded = layout.coded();
  cache.exact_first = layout.exact_first;
  cache.coded_dim = static_cast<int32_t>(layout.coded_dim(seen));
  cache.first_centred_pair = static_cast<int32_t>(layout.first_centred_pair);
  cache.coded_begin = layout.coded_begin();
  cache.window_blocks = layout.window_blocks;
  cache.codes_offset = layout.key_codes_offset(layer, 0);
  cache.head_codes_bytes = layout.head_codes_bytes(seen);
  cache.value_codes_offset = layout.key_codes_bytes(seen);
  cache.scales_offset = layout.key_scales_offset(layer, 0);
  cache.head_scales_bytes = layout.head_scales_bytes(seen);
  cache.value_scales_offset = layout.key_scales_bytes(seen);
  return cache;
}

}  // namespace onward::cuda

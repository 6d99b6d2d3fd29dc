// How the keys and values of a decoder are stored, and the layout of its cache blocks.
#pragma once

#include <cstdint>

#include "backend/cache_layout.h"
#include "model/model.h"

namespace onward {

// How the keys and values of a decoder are stored. The dtype of exact blocks is the model's.
struct CacheFormat {
  KvCodec keys = KvCodec::exact;
  KvCodec values = KvCodec::exact;
  // With codes: the number of newest tokens that stay exact, in whole blocks before the token's own
  // block, and whether the first block stays exact.
  int64_t window_tokens = 128;
  bool exact_first = true;
  // StreamingLLM (Xiao et al. 2023), an approximation: a token sees the first kSinkTokens tokens
  // and the newest `attention_window` ones, at their distances in the cache; 0: all tokens.
  int64_t attention_window = 0;

  static constexpr int64_t kSinkTokens = 4;
};

// InvalidArgument where the format does not work with the decoder's heads or positions.
CacheLayout make_cache_layout(const Model& model, const CacheFormat& format);

}  // namespace onward

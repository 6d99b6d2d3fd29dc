// What a caller asks for, and what it hears back.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sampling/sampling_options.h"

namespace onward {

struct Request {
  std::vector<int32_t> prompt;  // at least one id, all inside the vocabulary
  int64_t max_new_tokens = 0;
  int64_t min_new_tokens = 0;  // no stop token before so many tokens
  std::vector<int32_t> stop_token_ids;
  SamplingOptions sampling;
  bool cache = true;  // false: every step computes all positions again
};

enum class FinishReason : uint8_t { none, stop, length, error };

struct Event {
  int64_t request = 0;
  int32_t token = -1;  // -1: the event carries no token
  FinishReason finish = FinishReason::none;
  std::string error;  // with FinishReason::error
  bool numerics_error = false;
  bool invalid_argument = false;  // the options left no token to choose
  double time = 0;                // seconds of the steady clock
};

struct EngineStats {
  int64_t steps = 0;
  int64_t prefill_tokens = 0;   // tokens computed before a request's first output
  int64_t decode_tokens = 0;    // tokens computed after it
  int64_t kv_computations = 0;  // tokens whose keys and values were computed (each in all layers)
  int64_t running = 0;
  int64_t cache_blocks_in_use = 0;
  int64_t cache_block_bytes = 0;
  int64_t cache_bytes_reserved = 0;
};

}  // namespace onward

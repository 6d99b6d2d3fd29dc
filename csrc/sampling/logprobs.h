// The log-probabilities of one choice: what the model said, and what was left of it after the
// chain.
#pragma once

#include <cstdint>
#include <vector>

#include "sampling/best_tokens.h"

namespace onward {

// Natural logarithms.
struct TokenLogprobs {
  int32_t token = -1;
  double raw = 0;                    // softmax of the logits
  double chain = 0;                  // of what the token was chosen from
  std::vector<ScoredToken> raw_top;  // the likeliest, best first
  std::vector<ScoredToken> chain_top;
};

}  // namespace onward

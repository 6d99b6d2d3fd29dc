// The log-probabilities of one choice, under the model and after the sampling chain.
#pragma once

#include <cstdint>
#include <vector>

#include "sampling/best_tokens.h"

namespace onward {

// Natural logarithms.
struct TokenLogprobs {
  int32_t token = -1;
  double raw = 0;                    // under the softmax of the logits
  double chain = 0;                  // among the candidates of the choice
  std::vector<ScoredToken> raw_top;  // the most likely, best first
  std::vector<ScoredToken> chain_top;
};

}  // namespace onward

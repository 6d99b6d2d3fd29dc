// How a device chooses the token that follows a row of logits (Backend::sample_rows), and what it
// found: plain data. What each option means is the sampler's to say (sampling/). Knows nothing of
// requests.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace onward {

// A token that is in the prompt or the output.
struct SeenToken {
  int32_t id;
  int32_t output_count;  // 0: only in the prompt
};

struct TokenBias {
  int32_t id;
  double bias;  // finite
};

// Two sums of the same float32 probabilities may differ by a few units in the last place.
inline constexpr double kFloat32Resolution = 4e-7;

// In the order in which it is applied, changes by RowSampling's lists first.
struct RowOptions {
  int64_t row = 0;                // of the logits; several may choose from one
  double repetition_penalty = 1;  // 1: off
  double presence_penalty = 0;    // 0: off
  double frequency_penalty = 0;   // 0: off

  bool greedy = true;  // the first of the largest scores, and nothing of the rest
  double inverse_temperature = 1;
  int64_t top_k = 0;  // 0: off
  double top_p = 1;   // 1: off
  // min_p: scores below this go, (logit - largest) / temperature being the score. At most 0.
  float least_score = -std::numeric_limits<float>::infinity();
  double uniform = 0;  // of the draw, in [0, 1)

  bool logprobs = false;  // what makes the log-probabilities of the choice is wanted too
};

// Lists have no id twice, but `banned` may.
struct RowSampling : RowOptions {
  std::vector<TokenBias> biases;  // before the penalties
  std::vector<SeenToken> seen;    // whom penalties concern
  std::vector<int32_t> banned;    // after them
};

// A weight is exp(score - that of the best); total weights are sums of them.
struct RowChoice {
  int32_t token = -1;  // -1: a logit is not finite, or every token is banned; nothing else is told
  // Where log-probabilities are wanted.
  float raw_logit = 0;    // of the token
  float raw_largest = 0;  // of all logits
  double raw_weight = 0;  // of all logits together
  // What was drawn: (logit - largest) / temperature, and the total of those that were left. The
  // greedy choice: the token's changed logit, and the total of all changed ones.
  float score = 0;
  double weight = 0;
};

}  // namespace onward

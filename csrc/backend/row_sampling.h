// Options and results of sampling on a device (Backend::sample_rows): plain data. sampling/
// explains the options.
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

// The options in the order of their application. The lists of RowSampling are applied first.
struct RowOptions {
  int64_t row = 0;                // row of the logits; several choices may use one row
  double repetition_penalty = 1;  // 1: off
  double presence_penalty = 0;    // 0: off
  double frequency_penalty = 0;   // 0: off

  bool greedy = true;  // choose the first of the largest scores and ignore the options below
  double inverse_temperature = 1;
  int64_t top_k = 0;  // 0: off
  double top_p = 1;   // 1: off
  // min_p: remove scores below this. The score is (logit - largest) / temperature, at most 0.
  float least_score = -std::numeric_limits<float>::infinity();
  double uniform = 0;  // the random number of the draw, in [0, 1)

  bool logprobs = false;  // also return the numbers that give the log-probabilities
};

// `biases` and `seen` contain each id at most once; `banned` may repeat an id.
struct RowSampling : RowOptions {
  std::vector<TokenBias> biases;  // added before the penalties
  std::vector<SeenToken> seen;    // tokens that are penalised
  std::vector<int32_t> banned;    // removed after the penalties
};

// A weight is exp(score - largest score). Total weights are sums of weights.
struct RowChoice {
  int32_t token = -1;  // -1: a logit is not finite or every token is banned; no other field is set
  // Set if log-probabilities are requested:
  float raw_logit = 0;    // of the token
  float raw_largest = 0;  // of all logits
  double raw_weight = 0;  // of all logits together
  // After a draw: (logit - largest) / temperature of the token, and the total weight of the
  // remaining tokens. After a greedy choice: the changed logit of the token, and the total weight
  // of all.
  float score = 0;
  double weight = 0;
};

}  // namespace onward

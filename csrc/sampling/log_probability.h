// The model's own probability of a token: the softmax of the raw logits, before any processor.
#pragma once

#include <cstdint>
#include <vector>

namespace onward {

struct ScoredToken {
  int32_t id;
  float score;
};

// Natural logarithm of softmax(logits)[token], summed in float64; logits (vocab_size).
// NumericsError when a logit is not finite.
double log_probability(const float* logits, int64_t vocab_size, int32_t token);

// NumericsError naming the first logit that is not finite.
void require_finite(const float* logits, int64_t vocab_size);

// Index of the first maximum, as torch.argmax; -1 when all are -infinity.
int64_t first_largest(const float* scores, int64_t n);
// Natural logarithm; -infinity entries count as nothing.
double log_sum_exp(const float* scores, int64_t n);
void log_softmax(float* scores, int64_t n);
// The k best, best first, of equals the lower id; none that is -infinity.
std::vector<ScoredToken> best_tokens(const float* scores, int64_t n, int64_t k);

}  // namespace onward

// Logarithms of probabilities over a row of scores, such as the model's own: the softmax of the raw
// logits, before any processor. Natural logarithms; exponentials in float32, sums in float64.
#pragma once

#include <cstdint>

namespace onward {

// NumericsError naming the first logit that is not finite.
void require_finite(const float* logits, int64_t vocab_size);

// log(sum of exp(score)); a score may be -infinity, and so is the result when all are.
double log_sum_exp(const float* scores, int64_t n);

// In place: score -> float(score - log_sum_exp). Where all are -infinity they stay so.
void log_softmax(float* scores, int64_t n);

// log_softmax(logits)[token], in float64. NumericsError when a logit is not finite.
double log_probability(const float* logits, int64_t vocab_size, int32_t token);

}  // namespace onward

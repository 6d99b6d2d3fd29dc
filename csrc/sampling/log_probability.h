// Natural logarithms of the probabilities of a row of scores, such as the raw logits of the model.
// Exponentials are computed in float32, sums in float64.
#pragma once

#include <cstdint>

namespace onward {

// NumericsError that names the first logit that is not finite.
void require_finite(const float* logits, int64_t vocab_size);

// log(sum of exp(score)). Scores may be -infinity; the result is -infinity if all are.
double log_sum_exp(const float* scores, int64_t n);

// In place: score -> float(score - log_sum_exp). If all are -infinity they stay so.
void log_softmax(float* scores, int64_t n);

// log_softmax(logits)[token], in float64. NumericsError if a logit is not finite.
double log_probability(const float* logits, int64_t vocab_size, int32_t token);

}  // namespace onward

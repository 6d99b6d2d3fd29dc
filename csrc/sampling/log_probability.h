// The model's own probability of a token: the softmax of the raw logits, before any processor.
#pragma once

#include <cstdint>

namespace onward {

// Natural logarithm of softmax(logits)[token], summed in float64; logits (vocab_size).
// NumericsError when a logit is not finite.
double log_probability(const float* logits, int64_t vocab_size, int32_t token);

// NumericsError naming the first logit that is not finite.
void require_finite(const float* logits, int64_t vocab_size);

}  // namespace onward

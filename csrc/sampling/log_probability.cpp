#include "sampling/log_probability.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "onward/error.h"

namespace onward {

void require_finite(const float* logits, int64_t vocab_size) {
  // x - x is 0 for a finite x and NaN otherwise, so one sum tells, without a branch per logit.
  float witness = 0;
  for (int64_t id = 0; id < vocab_size; ++id) witness += logits[id] - logits[id];
  if (witness == 0) return;
  for (int64_t id = 0; id < vocab_size; ++id) {
    if (std::isfinite(logits[id])) continue;
    throw NumericsError("logits: token " + std::to_string(id) + " has a non-finite logit, found " +
                        std::to_string(logits[id]) +
                        ", expected a finite number; the weights or their dtype are at fault");
  }
}

double log_probability(const float* logits, int64_t vocab_size, int32_t token) {
  require_finite(logits, vocab_size);
  const double largest = *std::max_element(logits, logits + vocab_size);
  double total = 0;
  for (int64_t id = 0; id < vocab_size; ++id) total += std::exp(logits[id] - largest);
  return logits[token] - largest - std::log(total);
}

}  // namespace onward

#include "sampling/log_probability.h"

#include <algorithm>
#include <cmath>
#include <limits>
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

int64_t first_largest(const float* scores, int64_t n) {
  int64_t best = -1;
  float largest = -std::numeric_limits<float>::infinity();
  for (int64_t id = 0; id < n; ++id) {
    if (scores[id] > largest) {
      largest = scores[id];
      best = id;
    }
  }
  return best;
}

double log_sum_exp(const float* scores, int64_t n) {
  const double largest = *std::max_element(scores, scores + n);
  double total = 0;
  for (int64_t id = 0; id < n; ++id) total += std::exp(scores[id] - largest);
  return largest + std::log(total);
}

void log_softmax(float* scores, int64_t n) {
  const double total = log_sum_exp(scores, n);
  for (int64_t id = 0; id < n; ++id) scores[id] = static_cast<float>(scores[id] - total);
}

std::vector<ScoredToken> best_tokens(const float* scores, int64_t n, int64_t k) {
  std::vector<ScoredToken> all;
  for (int64_t id = 0; id < n; ++id) {
    if (std::isinf(scores[id]) && scores[id] < 0) continue;
    all.push_back({static_cast<int32_t>(id), scores[id]});
  }
  const auto middle = all.begin() + std::min<int64_t>(k, static_cast<int64_t>(all.size()));
  std::partial_sort(all.begin(), middle, all.end(), [](const ScoredToken& a, const ScoredToken& b) {
    return a.score != b.score ? a.score > b.score : a.id < b.id;
  });
  all.erase(middle, all.end());
  return all;
}

double log_probability(const float* logits, int64_t vocab_size, int32_t token) {
  require_finite(logits, vocab_size);
  return logits[token] - log_sum_exp(logits, vocab_size);
}

}  // namespace onward

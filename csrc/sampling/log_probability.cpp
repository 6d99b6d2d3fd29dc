#include "sampling/log_probability.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "backend/row_scans.h"
#include "base/error.h"

namespace onward {
namespace {

constexpr int64_t kPart = 2048;  // scores per pass, so that they stay in the first-level cache

}  // namespace

void require_finite(const float* logits, int64_t vocab_size) {
  if (row_scans().all_finite(logits, vocab_size)) return;
  for (int64_t id = 0; id < vocab_size; ++id) {
    if (std::isfinite(logits[id])) continue;
    throw NumericsError("logits: token " + std::to_string(id) + " has a non-finite logit, found " +
                        std::to_string(logits[id]) +
                        ", expected a finite number; the weights or their dtype are at fault");
  }
}

double log_sum_exp(const float* scores, int64_t n) {
  const RowScans& scans = row_scans();
  const float largest = scans.largest(scores, n);
  if (largest == -std::numeric_limits<float>::infinity()) return largest;
  float part[kPart];
  double total = 0;
  for (int64_t first = 0; first < n; first += kPart) {
    const int64_t count = std::min(kPart, n - first);
    for (int64_t i = 0; i < count; ++i) part[i] = scores[first + i] - largest;
    total += scans.exponentials(part, count, part);
  }
  return double{largest} + std::log(total);
}

void log_softmax(float* scores, int64_t n) {
  const double total = log_sum_exp(scores, n);
  if (std::isfinite(total)) row_scans().rescale(scores, total, 1, n, scores);
}

double log_probability(const float* logits, int64_t vocab_size, int32_t token) {
  require_finite(logits, vocab_size);
  return logits[token] - log_sum_exp(logits, vocab_size);
}

}  // namespace onward

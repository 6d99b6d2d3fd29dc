#include "sampling/processors.h"

#include <algorithm>
#include <limits>

#include "sampling/scores.h"

namespace onward {

void add_bias(float* scores, const std::map<int32_t, double>& bias) {
  for (const auto& [id, value] : bias) {
    if (value == -std::numeric_limits<double>::infinity()) {
      scores[id] = kBanned;
    } else {
      change_score(scores[id], double{scores[id]} + value);
    }
  }
}

double repetition_factor(double penalty) {
  return std::max(static_cast<float>(penalty), std::numeric_limits<float>::min());
}

void apply_repetition_penalty(float* scores, const std::vector<SeenToken>& seen, double penalty) {
  if (penalty == 1.0) return;
  const double p = repetition_factor(penalty);
  for (const SeenToken& token : seen) {
    const double score = scores[token.id];
    change_score(scores[token.id], score < 0 ? score * p : score / p);
  }
}

void apply_count_penalties(float* scores, const std::vector<SeenToken>& seen, double presence,
                           double frequency) {
  if (presence == 0.0 && frequency == 0.0) return;
  for (const SeenToken& token : seen) {
    if (token.output_count == 0) continue;
    const double penalty = frequency * static_cast<double>(token.output_count) + presence;
    change_score(scores[token.id], double{scores[token.id]} - penalty);
  }
}

void mask_tokens(float* scores, const std::vector<int32_t>& masked) {
  for (const int32_t id : masked) scores[id] = kBanned;
}

void mask_all_but(float* scores, int64_t vocab_size, const std::vector<int32_t>& allowed) {
  std::vector<float> kept;
  kept.reserve(allowed.size());
  for (const int32_t id : allowed) kept.push_back(scores[id]);
  std::fill(scores, scores + vocab_size, kBanned);
  for (size_t i = 0; i < allowed.size(); ++i) scores[allowed[i]] = kept[i];
}

}  // namespace onward

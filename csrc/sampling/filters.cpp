#include "sampling/filters.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <queue>

namespace onward {
namespace {

// Two sums of the same float32 probabilities may differ by a few units in the last place.
constexpr double kFloat32Resolution = 4e-7;

void keep_indices(Candidates& candidates, std::vector<uint32_t>& indices) {
  std::sort(indices.begin(), indices.end());  // back to the order of id
  for (size_t i = 0; i < indices.size(); ++i) {
    candidates.id[i] = candidates.id[indices[i]];
    candidates.score[i] = candidates.score[indices[i]];
  }
  candidates.id.resize(indices.size());
  candidates.score.resize(indices.size());
}

template <typename Keep>
void keep_if(Candidates& candidates, Keep keep) {
  size_t kept = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (!keep(candidates.score[i])) continue;
    candidates.id[kept] = candidates.id[i];
    candidates.score[kept++] = candidates.score[i];
  }
  candidates.id.resize(kept);
  candidates.score.resize(kept);
}

// The k-th largest score. A heap of the k best so far: almost every score fails one comparison.
float kth_largest(const std::vector<float>& scores, size_t k) {
  std::priority_queue<float, std::vector<float>, std::greater<float>> best(
      std::greater<float>(), std::vector<float>(scores.begin(), scores.begin() + k));
  for (size_t i = k; i < scores.size(); ++i) {
    if (scores[i] > best.top()) {
      best.pop();
      best.push(scores[i]);
    }
  }
  return best.top();
}

}  // namespace

Candidates scaled_candidates(const float* logits, int64_t vocab_size, float largest,
                             double temperature) {
  Candidates candidates;
  candidates.id.reserve(static_cast<size_t>(vocab_size));
  candidates.score.reserve(static_cast<size_t>(vocab_size));
  for (int64_t id = 0; id < vocab_size; ++id) {
    // In double: at temperatures near the smallest float the quotient leaves float32, to -infinity.
    const float score =
        static_cast<float>((static_cast<double>(logits[id]) - largest) / temperature);
    if (score == -std::numeric_limits<float>::infinity()) continue;
    candidates.id.push_back(static_cast<int32_t>(id));
    candidates.score.push_back(score);
  }
  return candidates;
}

void scale(Candidates& candidates, double temperature) {
  for (float& score : candidates.score) score = static_cast<float>(score / temperature);
  keep_if(candidates, [](float score) { return score != -std::numeric_limits<float>::infinity(); });
}

double log_probability_of(const Candidates& candidates, int32_t token) {
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (candidates.id[i] == token) return candidates.score[i] - std::log(total_weight(candidates));
  }
  return -std::numeric_limits<double>::infinity();
}

std::vector<ScoredToken> best_candidates(const Candidates& candidates, int64_t k) {
  std::vector<ScoredToken> best =
      best_tokens(candidates.score.data(), static_cast<int64_t>(candidates.size()), k);
  const double total = std::log(total_weight(candidates));
  for (ScoredToken& token : best) {
    token = {candidates.id[static_cast<size_t>(token.id)], static_cast<float>(token.score - total)};
  }
  return best;
}

double total_weight(const Candidates& candidates) {
  double total = 0;
  for (const float score : candidates.score) total += std::exp(score);
  return total;
}

double entropy(const Candidates& candidates) {
  double total = 0, weighted = 0;
  for (const float score : candidates.score) {
    const double weight = std::exp(score);
    total += weight;
    if (weight > 0) weighted += weight * score;  // 0 * -3e38 is 0 as well, but not of -infinity
  }
  return std::log(total) - weighted / total;
}

void keep_top_n_sigma(Candidates& candidates, double n) {
  if (n <= 0.0 || candidates.size() <= 1) return;
  const double size = static_cast<double>(candidates.size());
  double sum = 0, squares = 0, best = candidates.score[0];
  for (const float score : candidates.score) {
    sum += score;
    best = std::max<double>(best, score);
  }
  for (const float score : candidates.score) squares += (score - sum / size) * (score - sum / size);
  const double threshold = best - n * std::sqrt(squares / size);
  keep_if(candidates, [=](float score) { return score >= threshold; });
}

void keep_top_k(Candidates& candidates, int64_t k) {
  if (k <= 0 || static_cast<size_t>(k) >= candidates.size()) return;
  const float threshold = kth_largest(candidates.score, static_cast<size_t>(k));
  keep_if(candidates, [threshold](float score) { return score >= threshold; });
}

void keep_top_p(Candidates& candidates, double p) {
  if (p >= 1.0 || candidates.size() <= 1) return;
  const double total = total_weight(candidates);
  std::vector<uint32_t> order(candidates.size());
  std::iota(order.begin(), order.end(), 0u);
  const auto better = [&](uint32_t a, uint32_t b) {
    const float sa = candidates.score[a], sb = candidates.score[b];
    return sa != sb ? sa > sb : a < b;
  };
  // Sort only as many of the best as the nucleus needs: 64, then 8 times more, ...
  size_t sorted = 0, kept = 0;
  double mass = 0;
  for (size_t wanted = 64; kept == sorted && sorted < order.size(); wanted *= 8) {
    const size_t until = std::min(wanted, order.size());
    if (until < order.size()) {
      std::nth_element(order.begin() + static_cast<long>(sorted),
                       order.begin() + static_cast<long>(until), order.end(), better);
    }
    std::sort(order.begin() + static_cast<long>(sorted), order.begin() + static_cast<long>(until),
              better);
    sorted = until;
    while (kept < sorted && (kept == 0 || mass < p * total - kFloat32Resolution * total)) {
      mass += std::exp(candidates.score[order[kept++]]);
    }
  }
  order.resize(kept);
  keep_indices(candidates, order);
}

void keep_min_p(Candidates& candidates, double min_p) {
  if (min_p <= 0.0) return;
  const float best = *std::max_element(candidates.score.begin(), candidates.score.end());
  keep_if(candidates, [=](float score) { return std::exp(double{score} - best) >= min_p; });
}

void keep_typical(Candidates& candidates, double p) {
  if (p >= 1.0 || candidates.size() <= 1) return;
  const double total = total_weight(candidates);
  const double expected = entropy(candidates);
  std::vector<double> distance(candidates.size());
  for (size_t i = 0; i < distance.size(); ++i) {
    distance[i] = std::abs(std::log(total) - candidates.score[i] - expected);
  }
  std::vector<uint32_t> order(candidates.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return distance[a] < distance[b]; });
  size_t kept = 0;
  double mass = 0;
  while (kept < order.size() && (kept == 0 || mass < (p - kFloat32Resolution) * total)) {
    mass += std::exp(candidates.score[order[kept++]]);
  }
  const double last = distance[order[kept - 1]];
  while (kept < order.size() && distance[order[kept]] == last) ++kept;
  order.resize(kept);
  keep_indices(candidates, order);
}

void keep_probable(Candidates& candidates, double probability) {
  if (probability <= 0.0) return;
  const double best = *std::max_element(candidates.score.begin(), candidates.score.end());
  const double threshold = probability * total_weight(candidates);
  keep_if(candidates, [=](float score) { return score == best || std::exp(score) >= threshold; });
}

void keep_eta(Candidates& candidates, double epsilon) {
  if (epsilon <= 0.0) return;
  keep_probable(candidates, std::min(epsilon, std::sqrt(epsilon) * std::exp(-entropy(candidates))));
}

void drop_top_choices(Candidates& candidates, double threshold) {
  const double weight = threshold * total_weight(candidates);
  const auto reaches = [=](float score) { return std::exp(score) >= weight; };
  size_t least = candidates.size();
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (!reaches(candidates.score[i])) continue;
    if (least == candidates.size() || candidates.score[i] <= candidates.score[least]) least = i;
  }
  std::vector<uint32_t> kept;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (i == least || !reaches(candidates.score[i])) kept.push_back(static_cast<uint32_t>(i));
  }
  keep_indices(candidates, kept);
}

int32_t draw(const Candidates& candidates, double uniform) {
  std::vector<double> weights(candidates.size());
  double total = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    weights[i] = std::exp(candidates.score[i]);
    total += weights[i];
  }
  const double target = uniform * total;
  double mass = 0;
  size_t last_possible = 0;  // rounding may leave the sum just short of the target
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (weights[i] == 0) continue;
    last_possible = i;
    mass += weights[i];
    if (target < mass) break;
  }
  return candidates.id[last_possible];
}

}  // namespace onward

#include "sampling/filters.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/row_sampling.h"
#include "backend/row_scans.h"

namespace onward {
void scale(Candidates& candidates, double temperature) {
  if (temperature != 1) candidates.scale(temperature);
}

double entropy(const Candidates& candidates) {
  const double weighted =
      row_scans().dot(candidates.weights(), candidates.scores(), candidates.size());
  return std::log(candidates.total_weight()) - weighted / candidates.total_weight();
}

void keep_top_n_sigma(Candidates& candidates, double n) {
  if (n <= 0.0 || candidates.size() <= 1) return;
  const float* score = candidates.scores();
  const double size = static_cast<double>(candidates.size());
  constexpr float kAll = -std::numeric_limits<float>::infinity();
  const double mean = row_scans().sum_at_least(score, score, kAll, candidates.size()) / size;
  // The best score is near 0 and far above the mean, so the difference loses few digits.
  const double variance = row_scans().dot(score, score, candidates.size()) / size - mean * mean;
  candidates.keep_at_least(candidates.best() - n * std::sqrt(std::max(0.0, variance)));
}

void keep_top_k(Candidates& candidates, int64_t k) {
  if (k > 0 && k < candidates.size()) candidates.keep_best(k);
}

void keep_top_p(Candidates& candidates, double p) {
  if (p >= 1.0 || candidates.size() <= 1) return;
  candidates.keep_best_by_mass((p - kFloat32Resolution) * candidates.total_weight());
}

void keep_min_p(Candidates& candidates, double min_p) {
  if (min_p > 0.0) candidates.keep_at_least(candidates.best() + std::log(min_p));
}

void keep_typical(Candidates& candidates, double p) {
  if (p >= 1.0 || candidates.size() <= 1) return;
  // A surprise is log(total) - score: equal to the entropy where the score is this.
  const double centre = std::log(candidates.total_weight()) - entropy(candidates);
  candidates.keep_nearest_by_mass(static_cast<float>(centre),
                                  (p - kFloat32Resolution) * candidates.total_weight());
}

void keep_probable(Candidates& candidates, double probability) {
  if (probability <= 0.0) return;
  candidates.keep_at_least(std::log(probability * candidates.total_weight()));
}

void keep_eta(Candidates& candidates, double epsilon) {
  if (epsilon <= 0.0) return;
  keep_probable(candidates, std::min(epsilon, std::sqrt(epsilon) * std::exp(-entropy(candidates))));
}

void drop_top_choices(Candidates& candidates, double threshold) {
  std::vector<int32_t> likely =
      candidates.places_at_least(std::log(threshold * candidates.total_weight()));
  if (likely.size() <= 1) return;
  const auto worse = [&](int32_t a, int32_t b) {
    return candidates.score(a) != candidates.score(b) ? candidates.score(a) < candidates.score(b)
                                                      : a > b;
  };
  likely.erase(std::min_element(likely.begin(), likely.end(), worse));
  candidates.drop(likely);
}

int32_t draw(const Candidates& candidates, double uniform) {
  return candidates.id(candidates.place_at_mass(uniform * candidates.total_weight()));
}

double log_probability_of(const Candidates& candidates, int32_t token) {
  const int64_t place = candidates.place_of(token);
  if (place < 0) return -std::numeric_limits<double>::infinity();
  return candidates.score(place) - std::log(candidates.total_weight());
}

std::vector<ScoredToken> best_candidates(const Candidates& candidates, int64_t k) {
  std::vector<ScoredToken> best = best_tokens(candidates.scores(), candidates.size(), k);
  const double log_total = std::log(candidates.total_weight());
  for (ScoredToken& token : best) {
    token = {candidates.id(token.id), static_cast<float>(token.score - log_total)};
  }
  return best;
}

}  // namespace onward

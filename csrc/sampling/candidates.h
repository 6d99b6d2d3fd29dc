// Tokens that are still in the draw, and their weights. Filters shrink it by scans of whole rows;
// it knows nothing of their rules.
#pragma once

#include <cstdint>
#include <vector>

#include "sampling/crossing.h"

namespace onward {

// What scores are multiplied by at a temperature > 0. One outside 1e-100 to 1e100
// makes every difference of float32 scores 0 or infinite, as these do; and their inverses are
// normal numbers.
double inverse_of(double temperature);

// The smallest float that is not below x.
float rounded_up(double x);

// In ascending order of id. A score is (logit - largest logit) / temperature, so that the best is
// at most 0 and exp(score), the weight, never overflows. Holds three to five rows as long as the
// vocabulary, and keeps their memory for the next step: make one per thread, not per sequence.
class Candidates {
 public:
  // All tokens with a finite score; `largest` is that of `scores` and finite. temperature > 0,
  // however small. Only reads `scores`.
  void begin(const float* scores, int64_t vocab_size, float largest, double temperature = 1);

  // Divides the scores by a temperature, and makes that of the best 0 again. At least one stays.
  void scale(double temperature);

  int64_t size() const { return size_; }
  int32_t id(int64_t place) const { return every_id_ ? static_cast<int32_t>(place) : id_[place]; }
  float score(int64_t place) const { return score_[place]; }
  const float* scores() const { return score_.data(); }
  // The largest score.
  float best() const { return best_; }
  // The place of a token, -1 if it is not among them.
  int64_t place_of(int32_t token) const;

  // exp(score) of each.
  const float* weights() const;
  double total_weight() const;
  // The first place where the sum of the weights, in order of id, exceeds `mass`; the last one with
  // a weight, when rounding leaves the sum short of it.
  int64_t place_at_mass(double mass) const;

  // Keeps the scores that are at least this, or the best ones.
  void keep_at_least(double least);
  // Keeps the k best and their ties; 0 < k < size.
  void keep_best(int64_t k);
  // Keeps the best until their weights reach `mass`; of equals the lower ids.
  void keep_best_by_mass(double mass);
  // Keeps those whose scores are nearest to `centre` until their weights reach `mass`, and ties
  // with the last, at float32 resolution.
  void keep_nearest_by_mass(float centre, double mass);
  // Drops these places, ascending; at least one stays.
  void drop(const std::vector<int32_t>& places);

  // Places of the scores that are at least this.
  std::vector<int32_t> places_at_least(double least);

 private:
  const int32_t* ids() const { return every_id_ ? nullptr : id_.data(); }
  void keep_keys(const float* key, float least);
  void drop_banned();

  int64_t size_ = 0;
  bool every_id_ = true;  // no token is missing: a place is its id, and id_ holds nothing yet
  float best_ = 0;
  float lowest_ = 0;  // no score is below it
  std::vector<int32_t> id_;
  std::vector<float> score_;
  std::vector<float> key_;  // what a search goes by or counts, where it is not score or weight
  std::vector<int32_t> place_;
  CrossingSearch search_;
  mutable std::vector<float> weight_;  // made when first asked for
  mutable std::vector<double> mass_;   // of kMassPlaces weights each; empty: not made yet
  mutable double total_weight_ = 0;
};

}  // namespace onward

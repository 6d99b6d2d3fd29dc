// The tokens that are still in the draw, and their weights. Filters remove tokens by scans of whole
// rows.
#pragma once

#include <cstdint>
#include <vector>

#include "sampling/crossing.h"

namespace onward {

// The factor of the scores at a temperature > 0. Temperatures are bounded to 1e-100 and 1e100:
// beyond them every difference of float32 scores is 0 or infinite too, and these have normal
// inverses.
double inverse_of(double temperature);

// The smallest float that is not below x.
float rounded_up(double x);

// In ascending order of id. A score is (logit - largest logit) / temperature, so that the best is
// at most 0 and exp(score), the weight, never overflows. Holds three to five rows as long as the
// vocabulary and reuses their memory, so make one per thread, not per sequence.
class Candidates {
 public:
  // Takes all tokens with a finite score. `largest` is the largest of `scores`, and finite.
  // temperature > 0, however small.
  void begin(const float* scores, int64_t vocab_size, float largest, double temperature = 1);

  // Lets change(scores, size, best) write new scores in place. It returns the lowest of them; the
  // largest has to be 0. Tokens that it gives -infinity leave.
  template <typename Change>
  void change_scores(const Change& change) {
    lowest_ = change(score_.data(), size_, best_);
    best_ = 0;
    mass_.clear();
    drop_banned();
  }

  int64_t size() const { return size_; }
  int32_t id(int64_t place) const { return every_id_ ? static_cast<int32_t>(place) : id_[place]; }
  float score(int64_t place) const { return score_[place]; }
  const float* scores() const { return score_.data(); }
  // The largest score.
  float best() const { return best_; }
  // The place of a token; -1 if it was removed.
  int64_t place_of(int32_t token) const;

  // exp(score) of each.
  const float* weights() const;
  double total_weight() const;
  // The first place where the sum of the weights, in order of id, exceeds `mass`. If rounding keeps
  // the sum below it, the last place with a weight.
  int64_t place_at_mass(double mass) const;

  // Keeps the scores that are at least this. The best scores always stay.
  void keep_at_least(double least);
  // Keeps the k best and their ties; 0 < k < size.
  void keep_best(int64_t k);
  // Keeps the best until their weights reach `mass`; among equals, the lower ids.
  void keep_best_by_mass(double mass);
  // Keeps the scores nearest to `centre` until their weights reach `mass`, and ties with the last
  // one, at float32 resolution.
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
  bool every_id_ = true;  // no token was removed: a place is its id, and id_ is not used
  float best_ = 0;
  float lowest_ = 0;  // no score is below it
  std::vector<int32_t> id_;
  std::vector<float> score_;
  std::vector<float> key_;  // keys of a search that are not scores or weights
  std::vector<int32_t> place_;
  CrossingSearch search_;
  mutable std::vector<float> weight_;  // computed at the first use
  mutable std::vector<double> mass_;   // sums of kMassPlaces weights; empty: not computed yet
  mutable double total_weight_ = 0;
};

}  // namespace onward

#include "sampling/candidates.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/row_scans.h"
#include "sampling/best_tokens.h"

namespace onward {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kMassPlaces = 1024;

// Up to this k a heap of the k best costs less than a search.
constexpr int64_t kHeapSize = 128;

template <typename T>
void make_room(std::vector<T>& row, int64_t size) {
  if (row.size() < static_cast<size_t>(size + RowScans::kGatherRoom))
    row.resize(size + RowScans::kGatherRoom);
}

}  // namespace

double inverse_of(double temperature) { return 1 / std::clamp(temperature, 1e-100, 1e100); }

float rounded_up(double x) {
  const float nearest = static_cast<float>(x);
  return nearest < x ? std::nextafter(nearest, kInfinity) : nearest;
}

void Candidates::begin(const float* scores, int64_t vocab_size, float largest, double temperature) {
  make_room(score_, vocab_size);
  size_ = vocab_size;
  every_id_ = true;
  best_ = 0;
  // In double: at temperatures near the smallest float the quotient leaves float32, to -infinity.
  lowest_ = row_scans().rescale(scores, largest, inverse_of(temperature), size_, score_.data());
  mass_.clear();
  drop_banned();
}

void Candidates::drop_banned() {
  if (lowest_ == -kInfinity) keep_at_least(std::numeric_limits<float>::lowest());
}

int64_t Candidates::place_of(int32_t token) const {
  if (every_id_) return token < size_ ? token : -1;
  const auto end = id_.begin() + size_;
  const auto found = std::lower_bound(id_.begin(), end, token);
  return found != end && *found == token ? found - id_.begin() : -1;
}

const float* Candidates::weights() const {
  if (!mass_.empty()) return weight_.data();
  make_room(weight_, size_);
  total_weight_ = 0;
  for (int64_t first = 0; first < size_; first += kMassPlaces) {
    mass_.push_back(row_scans().exponentials(
        score_.data() + first, std::min(kMassPlaces, size_ - first), weight_.data() + first));
    total_weight_ += mass_.back();
  }
  return weight_.data();
}

double Candidates::total_weight() const {
  weights();
  return total_weight_;
}

int64_t Candidates::place_at_mass(double mass) const {
  const float* weight = weights();
  double sum = 0;
  for (size_t part = 0; part < mass_.size(); ++part) {
    if (sum + mass_[part] <= mass) {
      sum += mass_[part];
      continue;
    }
    const int64_t first = static_cast<int64_t>(part) * kMassPlaces;
    for (int64_t i = first; i < std::min(size_, first + kMassPlaces); ++i) {
      sum += weight[i];
      if (mass < sum) return i;
    }
  }
  int64_t last = size_ - 1;
  while (last > 0 && weight[last] == 0) --last;
  return last;
}

void Candidates::keep_keys(const float* key, float least) {
  make_room(id_, size_);
  const int64_t kept = row_scans().gather_range(key, least, kInfinity, score_.data(), ids(), size_,
                                                score_.data(), id_.data());
  if (kept == size_) return;
  size_ = kept;
  every_id_ = false;
  mass_.clear();
}

void Candidates::keep_at_least(double least) {
  const float bound = std::min(rounded_up(least), best_);
  if (bound <= lowest_) return;
  keep_keys(score_.data(), bound);
  lowest_ = bound;
}

void Candidates::keep_best(int64_t k) {
  if (k <= kHeapSize) return keep_at_least(best_tokens(score_.data(), size_, k).back().score);
  make_room(key_, size_);
  std::fill_n(key_.begin(), size_, 1.0f);
  const Crossing crossing = search_.find(score_.data(), key_.data(), size_,
                                         static_cast<double>(size_), static_cast<double>(k));
  keep_at_least(crossing.key);
}

void Candidates::keep_best_by_mass(double mass) {
  const Crossing crossing = search_.find(score_.data(), weights(), size_, total_weight(), mass);
  keep_at_least(crossing.key);
  std::vector<int32_t> excess;
  for (int64_t i = size_ - 1; static_cast<int64_t>(excess.size()) < crossing.excess; --i) {
    if (score_[i] == crossing.key) excess.push_back(static_cast<int32_t>(i));
  }
  std::reverse(excess.begin(), excess.end());
  drop(excess);
}

void Candidates::keep_nearest_by_mass(float centre, double mass) {
  make_room(key_, size_);
  for (int64_t i = 0; i < size_; ++i) key_[i] = -std::fabs(score_[i] - centre);
  const Crossing crossing = search_.find(key_.data(), weights(), size_, total_weight(), mass);
  keep_keys(key_.data(), crossing.key);
  best_ = row_scans().largest(score_.data(), size_);
}

void Candidates::drop(const std::vector<int32_t>& places) {
  if (places.empty()) return;
  if (every_id_) {
    make_room(id_, size_);
    for (int64_t i = 0; i < size_; ++i) id_[i] = static_cast<int32_t>(i);
    every_id_ = false;
  }
  int64_t kept = places[0];
  for (size_t i = 0; i < places.size(); ++i) {  // the tokens between two dropped ones move up
    const int64_t first = places[i] + 1;
    const int64_t last = i + 1 < places.size() ? places[i + 1] : size_;
    std::copy(id_.begin() + first, id_.begin() + last, id_.begin() + kept);
    std::copy(score_.begin() + first, score_.begin() + last, score_.begin() + kept);
    kept += last - first;
  }
  size_ = kept;
  mass_.clear();
  best_ = row_scans().largest(score_.data(), size_);
}

std::vector<int32_t> Candidates::places_at_least(double least) {
  make_room(key_, size_);
  make_room(place_, size_);
  const int64_t found =
      row_scans().gather_range(score_.data(), rounded_up(least), kInfinity, score_.data(), nullptr,
                               size_, key_.data(), place_.data());
  return {place_.begin(), place_.begin() + found};
}

}  // namespace onward

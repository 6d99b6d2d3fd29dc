#include "sampling/crossing.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "backend/row_scans.h"

namespace onward {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kGatherRoom = 16;    // RowScans::gather_range may write so many more
constexpr int64_t kSortedSize = 64;    // so many are sorted
constexpr int64_t kScalarSize = 4096;  // more are narrowed down by scans first
constexpr int64_t kBins = 256;
constexpr int64_t kSample = 512;
// How many standard deviations the sums of a sample are trusted to be near the truth. Where they
// are not, the search is slower, not wrong.
constexpr double kSampleDeviations = 2.5;

float above_it(float x) { return std::nextafter(x, kInfinity); }

// The keys between which the sample has the crossing: low <= key < high.
std::pair<float, float> bracket(const float* key, const float* weight, int64_t n, double below) {
  std::array<std::pair<float, float>, kSample> sample;
  for (int64_t i = 0; i < kSample; ++i) {
    const int64_t place = i * n / kSample;
    sample[i] = {key[place], weight[place]};
  }
  std::sort(sample.begin(), sample.end());
  // Summed from the worst key: the weights below the crossing are many and none is large, so that
  // a sample tells their sum far better than that of the few large ones above it.
  const double scale = static_cast<double>(n) / kSample;
  double sum = 0, squares = 0;
  int64_t low = 0, high = kSample;
  for (int64_t i = 0; i < kSample; ++i) {
    sum += sample[i].second;
    squares += double{sample[i].second} * sample[i].second;
    const double error =
        kSampleDeviations * std::sqrt(std::max(0.0, squares - sum * sum / kSample));
    if (scale * (sum + error) <= below) low = i;
    if (scale * (sum - error) >= below) {
      high = i;
      break;
    }
  }
  return {low == 0 ? -kInfinity : sample[low].first,
          high == kSample ? kInfinity : above_it(sample[high].first)};
}

}  // namespace

// The elements of `row` with low <= key < high.
CrossingSearch::Part CrossingSearch::gathered(const Part& row, float low, float high,
                                              double above) {
  key_.resize(static_cast<size_t>(row.size + kGatherRoom));
  weight_.resize(key_.size());
  place_.resize(key_.size());
  const int64_t size = row_scans().gather_range(row.key, low, high, row.weight, nullptr, row.size,
                                                weight_.data(), place_.data());
  for (int64_t i = 0; i < size; ++i) key_[i] = row.key[place_[i]];
  return {key_.data(), weight_.data(), size, above};
}

CrossingSearch::Part CrossingSearch::sampled(const Part& row, double total, double target) {
  const RowScans& scans = row_scans();
  const auto [low, high] = bracket(row.key, row.weight, row.size, total - target);
  const double above =
      high == kInfinity ? 0 : scans.sum_at_least(row.key, row.weight, high, row.size);
  if (above >= target) return gathered(row, high, kInfinity, 0);
  const Part middle = gathered(row, low, high, above);
  const double reached = above + scans.sum_at_least(middle.weight, middle.weight, 0, middle.size);
  if (reached >= target) return middle;
  return gathered(row, -kInfinity, low, reached);
}

// Cuts the range of keys into equal bins and leaves the one that holds the crossing, or nothing
// where the sum is not reached. Not all keys are equal, so that the part becomes smaller.
CrossingSearch::Part CrossingSearch::narrowed(const Part& part, float lowest, float highest,
                                              double target) {
  const double best = highest, bins_per_key = (kBins - 1) / (best - lowest);
  bin_.resize(static_cast<size_t>(part.size));
  for (int64_t i = 0; i < part.size; ++i) {
    bin_[i] = static_cast<uint8_t>((best - part.key[i]) * bins_per_key);
  }
  std::array<double, kBins> sums = {};
  for (int64_t i = 0; i < part.size; ++i) sums[bin_[i]] += part.weight[i];
  double above = part.above;
  int64_t bin = 0;
  while (bin < kBins && above + sums[bin] < target) above += sums[bin++];
  key_.resize(std::max(key_.size(), bin_.size()));
  weight_.resize(key_.size());
  int64_t kept = 0;
  for (int64_t i = 0; i < part.size; ++i) {
    if (bin_[i] != bin) continue;
    key_[kept] = part.key[i];
    weight_[kept++] = part.weight[i];
  }
  return {key_.data(), weight_.data(), kept, above};
}

Crossing CrossingSearch::find(const float* key, const float* weight, int64_t n, double total,
                              double target) {
  if (target <= 0) {
    const float best = row_scans().largest(key, n);
    return {best, std::count(key, key + n, best) - 1};
  }
  Part part = {key, weight, n, 0};
  if (n > kScalarSize) part = sampled(part, total, target);
  while (part.size > kSortedSize) {
    const auto [lowest, highest] = std::minmax_element(part.key, part.key + part.size);
    if (*lowest == *highest) break;
    part = narrowed(part, *lowest, *highest, target);
  }
  order_.resize(static_cast<size_t>(part.size));
  std::iota(order_.begin(), order_.end(), 0);
  if (part.size <= kSortedSize) {  // else all keys are equal
    std::sort(order_.begin(), order_.end(), [&](int32_t a, int32_t b) {
      return part.key[a] != part.key[b] ? part.key[a] > part.key[b] : a < b;
    });
  }
  double sum = part.above;
  size_t last = 0;
  while (last < order_.size() && (sum += part.weight[order_[last]]) < target) ++last;
  if (last == order_.size()) return {-kInfinity, 0};
  const float crossing = part.key[order_[last]];
  int64_t excess = 0;
  for (size_t i = last + 1; i < order_.size() && part.key[order_[i]] == crossing; ++i) ++excess;
  return {crossing, excess};
}

}  // namespace onward

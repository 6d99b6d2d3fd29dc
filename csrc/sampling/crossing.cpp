#include "sampling/crossing.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "backend/row_scans.h"

namespace onward {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kSortedSize = 64;    // up to this size, a sort
constexpr int64_t kScalarSize = 4096;  // above this size, scans narrow the row down first
constexpr int64_t kBins = 256;
constexpr int64_t kSample = 512;
// The assumed error of a sample's sums, in standard deviations. A larger error makes the search
// slower, not wrong.
constexpr double kSampleDeviations = 2.5;

float above_it(float x) { return std::nextafter(x, kInfinity); }

// Bits in the order of the floats; -0 comes one step before +0.
uint32_t ordered_bits(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

// Places of the sample, worst key first. Keys that agree in 24 bits count as equal. A counting
// sort, because the branches of comparisons would be unpredictable.
std::array<uint64_t, kSample> sample_order(const float* key, int64_t n) {
  std::array<uint64_t, kSample> order, other;  // the key's bits, then the place
  for (int64_t i = 0; i < kSample; ++i) {
    const int64_t place = i * n / kSample;
    order[i] = uint64_t{ordered_bits(key[place])} << 32 | static_cast<uint64_t>(place);
  }
  for (int shift = 40; shift < 64; shift += 8) {
    std::array<int32_t, 257> begin = {};
    for (const uint64_t entry : order) ++begin[(entry >> shift & 0xff) + 1];
    for (size_t digit = 1; digit < begin.size(); ++digit) begin[digit] += begin[digit - 1];
    for (const uint64_t entry : order) other[begin[entry >> shift & 0xff]++] = entry;
    order.swap(other);
  }
  return order;
}

// The keys between which the sample has the crossing: low <= key < high.
std::pair<float, float> bracket(const float* key, const float* weight, int64_t n, double below) {
  const std::array<uint64_t, kSample> order = sample_order(key, n);
  const auto place = [&](int64_t i) { return order[i] & 0xffffffffu; };
  // Summed from the worst key: there are many weights below the crossing and none is large, so a
  // sample estimates their sum far better than the sum of the few large weights above it.
  const double scale = static_cast<double>(n) / kSample;
  double sum = 0, squares = 0;
  int64_t low = 0, high = kSample;
  for (int64_t i = 0; i < kSample; ++i) {
    const double found = weight[place(i)];
    sum += found;
    squares += found * found;
    const double error =
        kSampleDeviations * std::sqrt(std::max(0.0, squares - sum * sum / kSample));
    if (scale * (sum + error) <= below) low = i;
    if (scale * (sum - error) >= below) {
      high = i;
      break;
    }
  }
  const float least = low == 0 ? -kInfinity : key[place(low)];
  if (high == kSample) return {least, kInfinity};
  const float greatest = key[place(high)];  // another key that agrees in 24 bits may be larger
  return {std::min(least, greatest), above_it(greatest)};
}

}  // namespace

// The elements of `row` with low <= key < high.
CrossingSearch::Part CrossingSearch::gathered(const Part& row, float low, float high,
                                              double above) {
  key_.resize(static_cast<size_t>(row.size + RowScans::kGatherRoom));
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

// Cuts the range of keys into equal bins and returns the bin of the crossing, or nothing if the sum
// is not reached. The keys are not all equal, so the part becomes smaller.
CrossingSearch::Part CrossingSearch::narrowed(const Part& part, float lowest, float highest,
                                              double target) {
  const double bins_per_key = (kBins - 1) / (double{highest} - lowest);
  scaled_.resize(static_cast<size_t>(part.size));
  bin_.resize(scaled_.size());
  row_scans().rescale(part.key, highest, bins_per_key, part.size, scaled_.data());
  for (int64_t i = 0; i < part.size; ++i) bin_[i] = static_cast<uint8_t>(-scaled_[i]);
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
    scaled_.resize(static_cast<size_t>(part.size));
    const float lowest = row_scans().rescale(part.key, 0, 1, part.size, scaled_.data());
    const float highest = row_scans().largest(part.key, part.size);
    if (lowest == highest) break;
    part = narrowed(part, lowest, highest, target);
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

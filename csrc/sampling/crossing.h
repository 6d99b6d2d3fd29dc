// Finds where a running sum of weights, best key first, reaches a target, without sorting the row.
#pragma once

#include <cstdint>
#include <vector>

namespace onward {

// The elements with this key or a larger one reach the sum, without the last `excess` elements that
// have exactly this key.
struct Crossing {
  float key;
  int64_t excess;
};

// Reuses its memory for the next search.
class CrossingSearch {
 public:
  // The smallest number of best keys (among equals, the first) whose weights sum up to `target` or
  // more: one if target <= 0, all if the sum is never reached. `total` is the sum of all n > 0
  // weights, none of which is negative. Sums are computed in float64.
  Crossing find(const float* key, const float* weight, int64_t n, double total, double target);

 private:
  struct Part {  // contains the crossing; in the order of the row
    const float* key;
    const float* weight;
    int64_t size;
    double above;  // the sum of the weights of all better keys
  };

  Part sampled(const Part& row, double total, double target);
  Part gathered(const Part& row, float low, float high, double above);
  Part narrowed(const Part& part, float lowest, float highest, double target);

  std::vector<float> key_;
  std::vector<float> weight_;
  std::vector<int32_t> place_;
  std::vector<float> scaled_;
  std::vector<uint8_t> bin_;
  std::vector<int32_t> order_;
};

}  // namespace onward

// Where a running sum of weights, best key first, reaches a target: a selection, not a sort. Knows
// nothing of tokens.
#pragma once

#include <cstdint>
#include <vector>

namespace onward {

// The sum is reached by all with this key or a larger one, without the last `excess` of those with
// this key.
struct Crossing {
  float key;
  int64_t excess;
};

// Keeps its memory for the next search.
class CrossingSearch {
 public:
  // The smallest number of best keys (of equals the first) whose weights sum up to `target` or
  // more: one if target <= 0, all if it is never reached. `total` is the sum of all n > 0 weights,
  // which are not negative. Sums run in float64.
  Crossing find(const float* key, const float* weight, int64_t n, double total, double target);

 private:
  struct Part {  // what the crossing is known to lie in; its order is that of the row
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

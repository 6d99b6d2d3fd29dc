// Whether a dtype can hold the values that are packed in it: refuses what would lose all its digits
// or become infinite. Does not know devices or layouts.
#pragma once

#include <vector>

#include "formats/sources.h"

namespace onward {

// Magnitudes that a dtype holds. A scale is an f16: its smallest value times the largest code is the
// least that is kept with all codes, and f16 itself keeps as many digits there as q8_0.
struct WeightRange {
  float low;  // a tensor with nothing larger loses what the dtype keeps elsewhere
  float high;
};
WeightRange weight_range(DType dtype);

// Collects the largest magnitude of each part of a matrix while it is packed. Outputs may be seen by
// several threads at once, each output by one.
class RangeCheck {
 public:
  RangeCheck(const std::vector<TensorSource>& parts, const std::vector<OutputSource>& outputs,
             const Matrix& matrix);

  // Reads outputs [first, first + count), as far as their values are rounded at all.
  void see(int64_t first, int64_t count);

  // WeightError that names the part: values beyond the dtype's range, or a part whose largest value
  // is below it. What is not finite stays so in every dtype, and is found in the logits.
  void finish() const;

 private:
  bool is_rounded(DType stored) const;

  const std::vector<TensorSource>& parts_;
  const std::vector<OutputSource>& outputs_;
  const Matrix& matrix_;
  std::vector<float> largest_;  // finite magnitude of each output
};

}  // namespace onward

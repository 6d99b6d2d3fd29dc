// Checks whether a dtype can hold the values that are packed in it. Values that would lose all
// their digits or become infinite are refused.
#pragma once

#include <vector>

#include "formats/sources.h"

namespace onward {

// Magnitudes that a dtype holds. A scale is an f16. Its smallest value times the largest code is
// the smallest magnitude that keeps all codes. f16 itself keeps as many digits there as q8_0.
struct WeightRange {
  float low;  // a tensor whose largest value is below it loses precision
  float high;
};
WeightRange weight_range(DType dtype);

// Collects the largest magnitude of each part of a matrix while it is packed. Several threads may
// call `see` at once, for different outputs.
class RangeCheck {
 public:
  RangeCheck(const std::vector<TensorSource>& parts, const std::vector<OutputSource>& outputs,
             const Matrix& matrix);

  // Reads outputs [first, first + count) if their values are rounded.
  void see(int64_t first, int64_t count);

  // WeightError that names the part: values beyond the dtype's range, or a part whose largest value
  // is below it. NaN and infinity stay so in every dtype, and are reported with the logits.
  void finish() const;

 private:
  bool is_rounded(DType stored) const;

  const std::vector<TensorSource>& parts_;
  const std::vector<OutputSource>& outputs_;
  const Matrix& matrix_;
  std::vector<float> largest_;  // finite magnitude of each output
};

}  // namespace onward

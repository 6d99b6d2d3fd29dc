#include "formats/range_check.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

#include "base/error.h"

namespace onward {
namespace {

constexpr int64_t kReadValues = 1024;
constexpr float kSmallestHalf = 0x1p-24f;
constexpr float kLargestHalf = 65504.0f;

float largest_of(const OutputSource& output) {
  float values[kReadValues];
  float largest = 0.0f;
  for (int64_t begin = 0; begin < output.columns; begin += kReadValues) {
    const int64_t count = std::min(kReadValues, output.columns - begin);
    read_values(output, begin, count, values);
    for (int64_t i = 0; i < count; ++i) {
      const float magnitude = std::fabs(values[i]);
      largest = magnitude > largest && magnitude < INFINITY ? magnitude : largest;
    }
  }
  return largest;
}

std::string text(float value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.3g", static_cast<double>(value));
  return buffer;
}

}  // namespace

WeightRange weight_range(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return {127 * kSmallestHalf, kLargestHalf};
    case DType::bf16:
      return {0.0f, 0x1.fep127f};
    case DType::q8_0:
      return {127 * kSmallestHalf, 127 * kLargestHalf};
    case DType::q4_0:
      return {8 * kSmallestHalf, 8 * kLargestHalf};
    case DType::q4_1:
      return {8 * kSmallestHalf, kLargestHalf};
    default:
      return {0.0f, INFINITY};
  }
}

RangeCheck::RangeCheck(const std::vector<TensorSource>& parts,
                       const std::vector<OutputSource>& outputs, const Matrix& matrix)
    : parts_(parts), outputs_(outputs), matrix_(matrix), largest_(outputs.size()) {}

bool RangeCheck::is_rounded(DType stored) const {
  const DType packed = matrix_.dtype;
  return packed != DType::f32 && stored != packed && !holds_same_codes(stored, packed);
}

void RangeCheck::see(int64_t first, int64_t count) {
  for (int64_t i = first; i < first + count; ++i) {
    const OutputSource& output = outputs_[static_cast<size_t>(i)];
    if (output.row != nullptr && is_rounded(output.dtype)) {
      largest_[static_cast<size_t>(i)] = largest_of(output);
    }
  }
}

void RangeCheck::finish() const {
  const WeightRange range = weight_range(matrix_.dtype);
  for (size_t part = 0; part < parts_.size(); ++part) {
    if (!is_rounded(parts_[part].dtype)) continue;
    const auto begin = largest_.begin() + matrix_.offsets[part];
    const float largest = *std::max_element(begin, begin + parts_[part].rows);
    std::string found;
    if (largest > range.high) {
      found = "has values up to " + text(largest) + ", expected at most " + text(range.high);
    } else if (largest > 0 && largest < range.low) {
      found =
          "has no value above " + text(largest) + ", expected one of at least " + text(range.low);
    } else {
      continue;
    }
    const std::string which = parts_.size() > 1 ? "part " + std::to_string(part) + " " : "";
    throw WeightError(which + found + " for " + dtype_name(matrix_.dtype));
  }
}

}  // namespace onward
